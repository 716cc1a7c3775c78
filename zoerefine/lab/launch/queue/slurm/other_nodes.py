"""The other nodes of a Slurm job on several: a step (srun) that runs the launcher on each of them.

The job's script runs on node 0, and so does the launch that has the run. Only that launch is asked
to stop; it passes this on (`launch/process/nodes.py`). A node that dies ends the whole job, which
Slurm puts back in its queue.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from zoerefine.lab.launch.process.child import NodePlace
from zoerefine.lab.launch.queue.executor import LaunchProcess
from zoerefine.lab.launch.queue.slurm.commands import SlurmError, run_slurm
from zoerefine.lab.launch.queue.slurm.submission import SlurmFiles

PROGRAM = "zoerefine.lab.launch.queue.slurm.other_nodes"
ENDING_S = 100.0  # for node 0 to end after the others, and for them to end after it
ADDRESS = re.compile(r"\bNodeAddr=(\S+)")


def first_place(number: str, nodes: int) -> NodePlace:
    """The place of the node that runs the script of a job."""
    group = f"{number}-{os.environ.get('SLURM_RESTART_COUNT', '0')}"
    return NodePlace(group, 0, nodes, node_address())


def node_address() -> str:
    """How other nodes reach this one: as Slurm's daemons do."""
    name = os.environ.get("SLURMD_NODENAME", os.uname().nodename)
    try:
        found = ADDRESS.search(run_slurm("scontrol", "--oneliner", "show", "node", name))
    except SlurmError:
        found = None
    return found[1] if found else name


class OtherNodes:
    """The step that runs the launches on all nodes but the first."""

    def __init__(self, files: SlurmFiles, place: NodePlace) -> None:
        others = place.nodes - 1
        command = ["srun", "--relative=1", f"--nodes={others}", f"--ntasks={others}"]
        command += ["--ntasks-per-node=1", f"--cpus-per-task={os.environ['SLURM_CPUS_PER_TASK']}"]
        command += ["--kill-on-bad-exit=0", sys.executable, "-P", "-m", PROGRAM]
        self._step = subprocess.Popen(
            [*command, str(files.folder), place.group], stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        self._ended_s = 0.0

    def wanted_stops(self) -> int:
        """How often to stop node 0's launch, because it goes on although the others have failed.

        Where they have succeeded it may go on: rank 0 often evaluates alone, or collects files.
        """
        if not self._step.poll():  # they run, or have succeeded
            return 0
        self._ended_s = self._ended_s or time.monotonic()
        return min(2, int((time.monotonic() - self._ended_s) / ENDING_S))

    def wait(self, seconds: float = ENDING_S) -> None:
        """Wait for the other launches after node 0's has ended; end what does not."""
        try:
            self._step.wait(seconds)
        except subprocess.TimeoutExpired:
            self._step.kill()
            self._step.wait()


def main() -> int:
    """Run the launch of one other node; the arguments are the job's folder and group."""
    # Slurm sends it to every process of the job, so the training has it, too.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    files, group = SlurmFiles(Path(sys.argv[1])), sys.argv[2]
    job = json.loads(files.job_file.read_text(encoding="utf-8"))
    place = NodePlace(group, int(os.environ["SLURM_PROCID"]) + 1, job["nodes"])
    launch = LaunchProcess(job["words"], ignores_sigterm=True, place=place)
    outcome = launch.wait()
    print(launch.messages(), file=sys.stderr, flush=True)
    return outcome.code


if __name__ == "__main__":
    sys.exit(main())
