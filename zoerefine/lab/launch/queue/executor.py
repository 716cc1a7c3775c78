"""Where launches run: as processes of this machine, or on a cluster.

An executor has three verbs: `submit` starts a launch and returns its ticket, `poll` and `cancel`
take the ticket. To add a kind of cluster, write one file with a context manager like
`local_executor` and a row in `zoerefine.base.registries.EXECUTORS`.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from zoerefine.base.errors import UserError
from zoerefine.base.registries import EXECUTORS
from zoerefine.base.yaml.read import Document
from zoerefine.lab.launch.job import read_setting
from zoerefine.lab.launch.process.child import ONLY, NodePlace, child_setup
from zoerefine.lab.launch.variables import OWN_FOLDER, python_path


def reserved(key: str, default: Any, help: str) -> Any:
    """Declare a field of `Resources`: its key in the group CLUSTER, and its option's help."""
    return field(default=default, metadata={"key": key, "help": help})


@dataclass(frozen=True)
class Resources:
    """What a cluster reserves for each job. Each field is an option of `run` and `search`, and a
    key of CLUSTER, whose declaration has the bounds. Each node has what is reserved.

    Attributes:
        gpus: a fraction lets jobs share a GPU, on Ray.
        grace: seconds.
    """

    gpus: float = reserved(
        "GPUS", 0.0, "clusters: GPUs reserved for each job; with ray, 0.5: two jobs share one"
    )
    cpus: int = reserved("CPUS", 1, "clusters: CPU cores reserved for each job (default: 1)")
    nodes: int = reserved(
        "NODES", 1,
        "clusters: nodes of each job; --processes is for all of them together (default: 1)",
    )  # fmt: skip
    memory: str = reserved("MEMORY", "", "slurm: memory of each job, such as 32G")
    partition: str = reserved("PARTITION", "", "slurm: the partition, or several: gpu,long")
    time: str = reserved(
        "TIME", "",
        "slurm: the time limit of a job: 90 (minutes), 12:00:00 or 2-00 (days-hours). A job that "
        "reaches it saves a checkpoint and is queued again",
    )  # fmt: skip
    grace: int = reserved(
        "GRACE_S", 120, "slurm: seconds before its limit at which a job stops (default: 120)"
    )
    requeues: int = reserved(
        "REQUEUES", 50, "slurm: how often a job is queued again at its time limit (default: 50)"
    )

    def __post_init__(self) -> None:
        """Raises `UserError` for a value that nothing can reserve."""
        for one in fields(self):
            if (value := getattr(self, one.name)) != one.default:
                from zoerefine.base.config import check_value  # not for every launch

                check_value(f"CLUSTER.{one.metadata['key']}", value, f"--{one.name}")


NO_RESOURCES = Resources()


def refuse_resources(executor: str, resources: Resources, known: Sequence[str]) -> None:
    """Raises `UserError`, naming the option, where an executor cannot reserve what is asked for.

    Args:
        known: the fields of `Resources` that it reserves.
    """
    for one in fields(Resources):
        if one.name not in known and getattr(resources, one.name) != one.default:
            raise UserError(f"--executor {executor} has no use for --{one.name}: leave it out")


@dataclass(frozen=True)
class JobOutcome:
    """How a launch ended.

    Attributes:
        code: the exit code as a shell gives it: 128 + N after signal N.
        message: the launcher's last line; empty where it is not known.
        by_cluster: the message is why the cluster ended the launch, which its run does not know.
    """

    code: int
    message: str = ""
    by_cluster: bool = False


class ExecutorBusy(Exception):
    """A cluster takes no launch for now, or does not answer. Later it may take it."""


class Executor(Protocol):
    """Runs launches somewhere.

    Attributes:
        keeps_jobs: whether launches go on when the command that submitted them has ended. They
            are submitted all at once, since the cluster queues them.
    """

    keeps_jobs: bool

    def submit(self, words: Sequence[str], folder: Path) -> Any:
        """Start `zoerefine run WORDS...` and return its ticket.

        Where launches go on by themselves, one that an earlier command started in this folder is
        found and not started twice. A ticket may say by `is_waiting` that the launch waits for its
        turn. It may have a `note`: why it waits, or what the queue shows until the run has written
        something.

        Args:
            folder: the launch's own, for files of the executor: a run directory.

        Raises:
            ExecutorBusy: the same call may succeed later.
            UserError: the cluster refuses the launch, which leaves nothing in the folder.
        """

    def poll(self, ticket: Any) -> JobOutcome | None:
        """How the launch ended; None while it runs."""

    def cancel(self, ticket: Any) -> None:
        """Ask the launch to save a checkpoint and stop; a second call kills it."""


def open_executor(
    name: str, resources: Resources = NO_RESOURCES
) -> AbstractContextManager[Executor]:
    """The executor of a name in `registries.EXECUTORS`.

    Raises `UserError` where there is no such executor, its package is not installed, its cluster
    cannot be reached, or it does not know these resources.
    """
    EXECUTORS.check(name, "--executor")
    opened: AbstractContextManager[Executor] = EXECUTORS.load(name)(resources)
    return opened


KEY_OF = {one.name: f"CLUSTER.{one.metadata['key']}" for one in fields(Resources)}


def cluster_settings(document: Document, overrides: Sequence[str]) -> dict[str, Any]:
    """The fields of `Resources` that a config sets. Raises `UserError` for a wrong value."""
    from zoerefine.base.config import check_value  # not for every launch: it takes a while
    from zoerefine.base.config.schema import KEYS
    from zoerefine.base.config.value_types import Text

    found = {}
    for name, key in KEY_OF.items():
        setting = read_setting(document, overrides, key)
        if setting.value is not None:
            is_text = isinstance(KEYS[key].type, Text)
            found[name] = check_value(key, setting.as_text() if is_text else setting.value)
    return found


def agreed_settings(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings of all jobs of a queue. Raises `UserError` where they differ."""
    first = dict(found[0]) if found else {}
    for other in found[1:]:
        for name, key in KEY_OF.items():
            if first.get(name) != other.get(name):
                raise UserError(
                    f"the configs of this queue differ in {key}: launch them apart, or set it "
                    "for all by a KEY VALUE word"
                )
    return first


class LaunchProcess:
    """A running `zoerefine run`, with its messages. The job's output is in the run's log.txt."""

    def __init__(
        self, words: Sequence[str], ignores_sigterm: bool = False, place: NodePlace = ONLY
    ) -> None:
        """Start it.

        Args:
            place: of this node in a job of several.
            ignores_sigterm: for a cluster that sends SIGTERM to the job itself, too, and the
                launcher would pass on a second one.
        """
        path = python_path(os.environ, OWN_FOLDER)
        environment = {**os.environ, "PYTHONPATH": path, **place.variables()}
        self._messages: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed with us)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zoerefine", "run", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._messages,
            preexec_fn=partial(prepare, child_setup(), ignores_sigterm),
            start_new_session=True,
        )

    def poll(self) -> JobOutcome | None:
        """How it ended; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        lines = self.messages().splitlines() or [""]
        return JobOutcome(128 - code if code < 0 else code, lines[-1])

    def wait(self) -> JobOutcome:
        """How it ended, once it has."""
        self._process.wait()
        outcome = self.poll()
        assert outcome is not None
        return outcome

    def stop(self) -> None:
        """Ask it to save a checkpoint and stop; a second call kills the job."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGINT)

    def messages(self) -> str:
        """What it has printed, once it has ended."""
        self._messages.seek(0)
        return self._messages.read().decode(errors="replace").strip()


def prepare(setup: Callable[[], None], ignores_sigterm: bool) -> None:
    """In the new process, before the launcher starts.

    A Python that is interrupted while it starts ends with exit code 1, as if the job had failed. So
    an interrupt waits until `run_command` can answer it.
    """
    setup()
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    if ignores_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def local_executor(resources: Resources) -> Iterator["LocalExecutor"]:
    """Raises `UserError` where resources are asked for: nothing here can reserve them."""
    if resources.gpus:
        raise UserError(
            "--executor local cannot reserve GPUs, its jobs see all of them: leave out --gpus, "
            "and set CUDA_VISIBLE_DEVICES to choose"
        )
    refuse_resources("local", resources, ())
    yield LocalExecutor()


class LocalExecutor:
    """Each ticket is a launcher's process."""

    keeps_jobs = False

    def submit(self, words: Sequence[str], folder: Path) -> LaunchProcess:
        return LaunchProcess(words)

    def poll(self, ticket: LaunchProcess) -> JobOutcome | None:
        return ticket.poll()

    def cancel(self, ticket: LaunchProcess) -> None:
        ticket.stop()
