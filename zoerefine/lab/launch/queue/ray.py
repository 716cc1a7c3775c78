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
from uuid import uuid4

from zoerefine.base.errors import INTERRUPTED, KILLED, UserError, needed
from zoerefine.base.machine.cores import use_reserved_cores
from zoerefine.base.machine.memory import use_reserved_gpus
from zoerefine.lab.launch.process.child import ONLY, NodePlace
from zoerefine.lab.launch.process.nodes import NODE_LOST
from zoerefine.lab.launch.queue.executor import (
    JobOutcome,
    LaunchProcess,
    Resources,
    refuse_resources,
)

RETRIES = 20  # nodes that may die under one job
POLL_S = 0.2
ENDING_S = 120.0  # for all nodes to end where one has failed
STOP_S = 10.0  # for the others to save a checkpoint where one has died
FREE_S = 5.0
NODE_ENDS_S = 10.0  # for a node that ends to kill a task after its launch


@contextmanager
def ray_executor(resources: Resources) -> Iterator["RayExecutor"]:
    """Connected to the cluster at RAY_ADDRESS.

    Raises `UserError` where there is none, or Ray cannot reserve these resources.
    """
    refuse_resources("ray", resources, ("gpus", "cpus", "nodes"))
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        raise UserError(
            "RAY_ADDRESS is not set: set it to the cluster's head node, e.g. 10.0.0.1:6379"
        )
    with needed("Ray is not installed", "cluster"):
        import ray
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
    """The tasks of a launch: one, or one on each of several nodes.

    Attributes:
        references: Ray's, node 0's first.
        group: the placement group that puts them on different nodes; None for a single task.
        deaths: how often the launch was started again because a node had died.
        ended_s: when a part of the launch ended that the others must follow; 0 before that.
    """

    words: list[str]
    references: list[Any]
    group: Any = None
    deaths: int = 0
    ended_s: float = 0.0
    cancelled: int = 0


class LostTask(JobOutcome):
    """The node of a task, or its process there, has died."""


class RayExecutor:
    """Each ticket is a task that runs the launcher to its end, or such a task on each node."""

    keeps_jobs = False

    def __init__(self, ray: Any, resources: Resources) -> None:
        self._ray, self._resources = ray, resources
        options = {"num_cpus": resources.cpus, "num_gpus": resources.gpus}
        self._task = ray.remote(**options)(run_launch)

    def submit(self, words: Sequence[str], folder: Path) -> RayTicket:
        ticket = RayTicket(list(words), [])
        self._start(ticket)
        return ticket

    def _start(self, ticket: RayTicket) -> None:
        if self._resources.nodes == 1:
            task = self._task.options(max_retries=RETRIES)
            ticket.references = [task.remote(ticket.words, self._resources, {})]
            return
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        nodes = self._resources.nodes
        bundle = {"CPU": self._resources.cpus, "GPU": self._resources.gpus}
        bundle = {name: count for name, count in bundle.items() if count}
        ticket.group = placement_group([bundle] * nodes, strategy="STRICT_SPREAD")
        name = uuid4().hex
        ticket.ended_s = 0.0
        ticket.references = [
            self._task.options(
                max_retries=0,  # all of them start again together
                scheduling_strategy=PlacementGroupSchedulingStrategy(ticket.group, number),
            ).remote(
                ticket.words, self._resources, {"group": name, "number": number, "nodes": nodes}
            )
            for number in range(nodes)
        ]

    def poll(self, ticket: RayTicket) -> JobOutcome | None:
        outcomes = [self._outcome(reference) for reference in ticket.references]
        if ticket.group is None:
            return outcomes[0]
        is_lost = any(isinstance(one, LostTask) or (one and one.code == NODE_LOST)
                      for one in outcomes)  # fmt: skip
        if is_lost and ticket.deaths < RETRIES and not ticket.cancelled:
            self._restart(ticket, running=None in outcomes)
            return None
        first = outcomes[0]
        if first is None:
            return None
        if first.code and None in outcomes and not ticket.cancelled:
            ticket.ended_s = ticket.ended_s or time.monotonic()
            if time.monotonic() - ticket.ended_s < ENDING_S:
                return None  # Ray may say that the other node has died
        self._free(ticket)
        return first

    def _outcome(self, reference: Any) -> JobOutcome | None:
        """How a task ended; None while it runs."""
        ready, _ = self._ray.wait([reference], timeout=0)
        if not ready:
            return None
        try:
            outcome: JobOutcome = self._ray.get(reference)
        except (self._ray.exceptions.TaskCancelledError, self._ray.exceptions.RayTaskError):
            return JobOutcome(INTERRUPTED)
        except self._ray.exceptions.RayError as error:
            return LostTask(KILLED, str(error).splitlines()[0])
        return outcome

    def _restart(self, ticket: RayTicket, running: bool) -> None:
        """Stop what still runs of a launch whose node has died; then start all of it again."""
        if not ticket.ended_s:
            ticket.ended_s = time.monotonic()
            first, *others = ticket.references
            # Node 0's launch passes the wish on, unless it is node 0 that has died.
            is_first_lost = isinstance(self._outcome(first), LostTask)
            for reference in others if is_first_lost else [first]:
                self._ray.cancel(reference)
        if running and time.monotonic() - ticket.ended_s < STOP_S:
            return
        self._free(ticket)
        ticket.deaths += 1
        self._start(ticket)

    def _free(self, ticket: RayTicket) -> None:
        """Give the nodes of a launch back; what still runs is killed."""
        from ray.util.placement_group import remove_placement_group

        self._ray.wait(ticket.references, num_returns=len(ticket.references), timeout=FREE_S)
        for reference in ticket.references:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
        remove_placement_group(ticket.group)

    def cancel(self, ticket: RayTicket) -> None:
        """Node 0's launch passes the wish on to the others."""
        ticket.cancelled += 1
        with suppress(self._ray.exceptions.RayError):
            self._ray.cancel(ticket.references[0], force=ticket.cancelled > 1)


def run_launch(words: list[str], reserved: Resources, place: dict[str, Any]) -> JobOutcome:
    """The task: run the launcher on this node to its end.

    Args:
        reserved: here.
        place: the node's `NodePlace` without its address; empty for a job on one node.
    """
    use_reserved_cores(os.environ, reserved.cpus)
    use_reserved_gpus(os.environ, reserved.gpus)
    launch = LaunchProcess(words, place=place_of(place))
    while True:
        try:
            outcome = launch.poll()
            if outcome is not None:
                if outcome.code == KILLED:
                    # A node that ends may kill us next. Ray starts the task again only if its
                    # launch was not reported as killed before that.
                    time.sleep(NODE_ENDS_S)
                return outcome
            time.sleep(POLL_S)
        except KeyboardInterrupt:  # this is how Ray cancels a task
            launch.stop()
            return launch.wait()


def place_of(place: dict[str, Any]) -> NodePlace:
    """A node's place with the address by which Ray reaches this node."""
    if not place:
        return ONLY
    from ray.util import get_node_ip_address

    return NodePlace(**place, address=get_node_ip_address())
