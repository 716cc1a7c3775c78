"""A job on several nodes: the executor starts the same launch on each of them.

Node 0 has the run: its lock, its state and its results. Node k has a launch of its own, whose log,
state and provenance are in the run's folder `node-k`. Node 0 passes stop signals on, so an executor
tells node 0 alone. Where one node fails, all end.

The nodes tell one another what they do by files in a folder of the run that all of them see:

<run>/.nodes/<group>/k.json        what node k does: it is ready, was asked to stop, has ended
<run>/.nodes/<group>/start.json    by node 0, once all are ready: where torchrun's processes
                                   find one another
"""

import json
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import write_json
from zoerefine.base.messages import say
from zoerefine.base.run_dir import RunDir
from zoerefine.base.threads import repeating
from zoerefine.lab.launch.process.child import Meeting, NodePlace, OneNode, StopForwarding
from zoerefine.lab.launch.process.end_reason import EFFECT, NODE_ENDED

# The exit code of node 0's launch where its job has failed and another node does not answer. Slurm
# may take minutes until it calls that node dead.
NODE_LOST = 75
FOLDER = ".nodes"
START = "start.json"


def read(path: Path) -> dict[str, Any]:
    """A JSON file; empty where it cannot be read yet."""
    with suppress(OSError, ValueError):
        return dict(json.loads(path.read_bytes()))
    return {}


def name_of(number: int, state: Mapping[str, Any]) -> str:
    """A node as messages name it."""
    return f"node {number} ({state['host']})"


POLL_S = 0.2
SAY_S = 30.0  # between messages that say for whom a node waits
LOST_S = 10.0  # for processes to end by themselves where those of another node have ended
GRACE_S = 30.0  # that a job has to stop
ENDING_S = 90.0  # for the other nodes to end after node 0; more than both together


class SeveralNodes(OneNode):
    """What node 0 and the others have in common."""

    def __init__(self, run: RunDir, place: NodePlace, processes: int) -> None:
        super().__init__(run, place, processes)
        self.folder = run.path / FOLDER / place.group
        self._told: dict[str, Any] = {"host": socket.gethostname()}
        self._stop_s = 0.0  # when the job is stopped because it has ended elsewhere

    def tell(self, **facts: Any) -> None:
        """Add facts to what the other nodes see of this one."""
        if not facts.items() <= self._told.items():
            write_json(self.folder / f"{self.place.number}.json", self._told | facts)
            self._told |= facts

    def seen(self, number: int) -> dict[str, Any]:
        """What a node has told; empty before it has told anything."""
        return read(self.folder / f"{number}.json")

    @contextmanager
    def taking_part(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            yield
        except BaseException as error:
            reason = str(error) if isinstance(error, UserError) else type(error).__name__
            self.tell(ended=1, reason=reason)
            raise
        else:
            status = self.own.status()
            self.tell(ended=int(status.state != "finished"), reason=status.reason)

    @contextmanager
    def watching(self, stops: StopForwarding) -> Iterator[None]:
        def watch() -> None:
            with suppress(OSError):  # of a shared folder; it is tried again
                self._watch(stops)

        try:
            with repeating(watch, POLL_S):
                yield
        finally:
            self._after(stops)

    def _watch(self, stops: StopForwarding) -> None:
        raise NotImplementedError

    def _after(self, stops: StopForwarding) -> None:
        """Called when the job has ended here, before its end is recorded."""

    def _stop_for(self, reason: str, stops: StopForwarding) -> None:
        """Stop the job here because it has ended elsewhere; kill it after the grace time.

        Not where it was asked to stop: torchrun kills what does not.
        """
        if stops.count:
            return
        now = time.monotonic()
        self._stop_s = self._stop_s or now + LOST_S
        if now > self._stop_s:
            self._stop_s = now + GRACE_S
            stops.fail(reason)


class FirstNode(SeveralNodes):
    """Node 0, which has the run."""

    _has_waited = False

    @contextmanager
    def taking_part(self) -> Iterator[None]:
        try:
            with super().taking_part():
                yield
        finally:
            self._wait_for_ends()
            shutil.rmtree(self.folder, ignore_errors=True)
            with suppress(OSError):  # another start has begun, or the job has written something
                self.folder.parent.rmdir()
                self.run.path.rmdir()

    def meet(self, attempt: int) -> Meeting:
        for killed in set(self.folder.parent.iterdir()) - {self.folder}:  # earlier starts
            shutil.rmtree(killed, ignore_errors=True)
        self._wait_until_ready()
        start = {"address": self.place.address, "port": free_port(), "attempt": attempt}
        write_json(self.folder / START, start)
        return meeting_at(self.place, start)

    def _wait_until_ready(self) -> None:
        waiting = Waiting()
        while True:
            states = {number: self.seen(number) for number in self._others}
            for number, state in states.items():
                if "ended" in state:
                    raise UserError(f"{name_of(number, state)}: {state['reason']}")
            missing = [number for number, state in states.items() if "ready" not in state]
            if not missing:
                return
            waiting.say_for(f"{len(missing)} of {self.place.nodes} nodes to prepare the job")

    @property
    def _others(self) -> range:
        return range(1, self.place.nodes)

    def _watch(self, stops: StopForwarding) -> None:
        self.tell(stops=stops.count)
        if reason := self._failure_elsewhere():
            self._stop_for(reason, stops)

    def _after(self, stops: StopForwarding) -> None:
        self.tell(stops=stops.count, left=True)
        self._wait_for_ends(stops)
        if stops.count:
            self.is_alone = False
        else:
            stops.failure = self._failure_elsewhere()

    def _failure_elsewhere(self) -> str:
        """Why the job has failed on another node; empty where it has not."""
        states = {number: self.seen(number) for number in self._others}
        failed = [(number, state) for number, state in states.items() if state.get("ended")]
        if not failed:
            return ""
        causes = [one for one in failed if not EFFECT.search(one[1]["reason"])]
        number, state = (causes or failed)[0]
        return f"{name_of(number, state)}: {state['reason']}"

    def _wait_for_ends(self, stops: StopForwarding | None = None) -> None:
        """Wait once for the other nodes that have taken part; one that is dead does not answer.

        Args:
            stops: a signal ends the wait.
        """
        count = stops.count if stops else 0
        deadline = time.monotonic() + ENDING_S
        while not self._has_waited and time.monotonic() < deadline:
            states = [self.seen(number) for number in self._others]
            self.is_alone = not all("ended" in state for state in states if state)
            if not self.is_alone or (stops and stops.count > count):
                break
            time.sleep(POLL_S)
        self._has_waited = True


class OtherNode(SeveralNodes):
    """A node that takes part in the run of node 0."""

    def __init__(self, run: RunDir, place: NodePlace, processes: int) -> None:
        super().__init__(run, place, processes)
        self.own = RunDir(run.path / f"node-{place.number}")

    def meet(self, attempt: int) -> Meeting:
        self.tell(ready=True)
        waiting = Waiting()
        while not (start := read(self.folder / START)):
            if "ended" in (first := self.seen(0)):
                raise UserError(f"{name_of(0, first)}: {first['reason']}")
            waiting.say_for("node 0 to prepare the job")
        return meeting_at(self.place, start)

    def _watch(self, stops: StopForwarding) -> None:
        first = self.seen(0)
        for _ in range(stops.count, first.get("stops", 0)):
            stops.stop()
        if first.get("left"):
            self._stop_for(f"{name_of(0, first)}: {NODE_ENDED}", stops)


class Waiting:
    """A wait for other nodes that says so now and then."""

    def __init__(self) -> None:
        self._said_s = time.monotonic() - SAY_S + 2  # the first time after two seconds

    def say_for(self, whom: str) -> None:
        """Wait a moment."""
        if time.monotonic() - self._said_s > SAY_S:
            say(f"waiting for {whom}")
            self._said_s = time.monotonic()
        time.sleep(POLL_S)


def meeting_at(place: NodePlace, start: Mapping[str, Any]) -> Meeting:
    """The meeting that node 0 has announced."""
    words = (
        f"--nnodes={place.nodes}",
        f"--node-rank={place.number}",
        f"--master-addr={start['address']}",
        f"--master-port={start['port']}",
    )
    return Meeting(words, start["attempt"])


def free_port() -> int:
    """A TCP port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
