"""A node's place in a job of several nodes, which the executor gives to the launch there."""

import json
import os
from dataclasses import asdict, dataclass

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
