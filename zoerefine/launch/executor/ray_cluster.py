"""Launches as tasks of a Ray cluster: each task runs our launcher on its node.

The node takes the code from its own mirror at the exact commit; Ray carries only the command's
words. When a node dies, Ray starts its tasks again on other nodes. The launcher there finds the
unfinished run, in a folder that all nodes share, and the job resumes from its last checkpoint.
"""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError
from zoerefine.launch.executor import JobOutcome, Resources, refuse_resources
from zoerefine.launch.executor.launch_process import LaunchProcess

RETRIES = 20  # nodes that may die under one job
KILLED = 137
POLL_S = 0.2


@contextmanager
def ray_executor(resources: Resources) -> Iterator["RayExecutor"]:
    """Connected to the cluster at RAY_ADDRESS.

    Raises `UserError` where there is none, or Ray cannot reserve these resources.
    """
    refuse_resources("ray", resources, ("gpus", "cpus"))
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        raise UserError(
            "RAY_ADDRESS is not set: set it to the cluster's head node, e.g. 10.0.0.1:6379"
        )
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed: pip install 'zoerefine[cluster]'") from None
    # A driver started by `uv run` would make Ray start every worker through uv, too.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise UserError(f"no Ray cluster at RAY_ADDRESS {address}: {error}") from None
    try:
        yield RayExecutor(ray, resources)
    finally:
        ray.shutdown()


@dataclass
class RayTicket:
    """A task of the cluster."""

    reference: Any
    cancelled: int = 0


class RayExecutor:
    """Each ticket is a task that runs the launcher to its end."""

    keeps_jobs = False

    def __init__(self, ray: Any, resources: Resources) -> None:
        self._ray = ray
        options = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "max_retries": RETRIES}
        self._task = ray.remote(**options)(run_launch)

    def submit(self, words: Sequence[str], folder: Path) -> RayTicket:
        return RayTicket(self._task.remote(list(words)))

    def poll(self, ticket: RayTicket) -> JobOutcome | None:
        ready, _ = self._ray.wait([ticket.reference], timeout=0)
        if not ready:
            return None
        try:
            outcome: JobOutcome = self._ray.get(ticket.reference)
        except (self._ray.exceptions.TaskCancelledError, self._ray.exceptions.RayTaskError):
            return JobOutcome(130)
        except self._ray.exceptions.RayError as error:
            return JobOutcome(KILLED, str(error).splitlines()[0])
        return outcome

    def cancel(self, ticket: RayTicket) -> None:
        ticket.cancelled += 1
        with suppress(self._ray.exceptions.RayError):
            self._ray.cancel(ticket.reference, force=ticket.cancelled > 1)


def run_launch(words: list[str]) -> JobOutcome:
    """The task: run the launcher on this node to its end."""
    launch = LaunchProcess(words)
    while True:
        try:
            outcome = launch.poll()
            if outcome is not None:
                return outcome
            time.sleep(POLL_S)
        except KeyboardInterrupt:  # this is how Ray cancels a task
            launch.stop()
            return launch.wait()
