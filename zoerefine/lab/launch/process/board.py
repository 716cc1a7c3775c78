"""What the nodes of a job tell one another: files in a folder of the run that all of them see.

<run>/.nodes/<group>/k.json        what node k does: it is ready, was asked to stop, has ended
<run>/.nodes/<group>/start.json    by node 0, once all are ready: where torchrun's processes
                                   find one another
"""

import json
import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoerefine.base.files.atomic import write_json
from zoerefine.base.run_dir import RunDir

NODE = "ZOEREFINE_NODE"  # the variable: a `NodePlace` as JSON
# The exit code of node 0's launch where its job has failed and another node does not answer. Slurm
# may take minutes until it calls that node dead.
NODE_LOST = 75


@dataclass(frozen=True)
class NodePlace:
    """A node's place in a job.

    Attributes:
        group: a name of its own for each time that the job is started.
        number: 0 for the node that has the run.
        nodes: how many there are.
        address: by which the other nodes reach node 0; only node 0 needs it.
    """

    group: str = ""
    number: int = 0
    nodes: int = 1
    address: str = ""

    def variables(self) -> dict[str, str]:
        """The environment of the launch on this node."""
        return {NODE: json.dumps(asdict(self))} if self.nodes > 1 else {}


ONLY = NodePlace()


def place_here() -> NodePlace:
    """The place of this machine in the job that an executor started on it."""
    given = os.environ.get(NODE)
    return NodePlace(**json.loads(given)) if given else ONLY


FOLDER = ".nodes"
START = "start.json"


class NodeBoard:
    """The folder of one start of a job, as a node uses it."""

    def __init__(self, run: RunDir, place: NodePlace) -> None:
        self.run, self.place = run, place
        self.folder = run.path / FOLDER / place.group
        self._told: dict[str, Any] = {"host": socket.gethostname()}

    def create(self) -> None:
        """Make the folder; each node does, and the first one succeeds."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def tell(self, **facts: Any) -> None:
        """Add facts to what the other nodes see of this one."""
        if not facts.items() <= self._told.items():
            write_json(self._file_of(self.place.number), self._told | facts)
            self._told |= facts

    def seen(self, number: int) -> dict[str, Any]:
        """What a node has told; empty before it has told anything."""
        return read(self._file_of(number))

    def announce(self, start: Mapping[str, Any]) -> None:
        """Let the other nodes start."""
        write_json(self.folder / START, dict(start))

    def announced(self) -> dict[str, Any]:
        """What node 0 has announced; empty before that."""
        return read(self.folder / START)

    def remove_others(self) -> None:
        """Remove what earlier starts have left that were killed."""
        for other in set(self.folder.parent.iterdir()) - {self.folder}:
            shutil.rmtree(other, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder, and those above it where they are empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # another start has begun, or the job has written something
            self.folder.parent.rmdir()
            self.run.path.rmdir()

    def _file_of(self, number: int) -> Path:
        return self.folder / f"{number}.json"


def read(path: Path) -> dict[str, Any]:
    """A JSON file; empty where it cannot be read yet."""
    with suppress(OSError, ValueError):
        return dict(json.loads(path.read_bytes()))
    return {}


def name_of(number: int, state: Mapping[str, Any]) -> str:
    """A node as messages name it."""
    return f"node {number} ({state['host']})"
