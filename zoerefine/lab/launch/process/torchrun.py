"""torchrun, which starts the processes of a job and watches them on each machine.

It passes a stop signal on, and ends all processes where one fails. Where torchrun itself is killed,
they go on alone: `end_processes` ends them, so that a run never has two writers. What it
reports of a failed process is read by end_reason.py.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

from zoerefine.base.run_dir import RUN_FOLDER, RunDir

# torchrun's options for one machine: it chooses a free port, on which the processes find one
# another.
ALONE = ("--standalone",)
ENDING_S = 5.0  # for killed processes to end
POLL_S = 0.01


def torchrun_words(processes: int, meeting: Sequence[str] = ALONE) -> list[str]:
    """Python's words before those of a job that torchrun starts N times.

    Args:
        processes: on this machine.
        meeting: torchrun's options for where the processes of all machines find one another.
    """
    return ["-m", "torch.distributed.run", *meeting, f"--nproc-per-node={processes}"]


def end_processes(run: RunDir, node: int = 0) -> None:
    """Kill what a killed torchrun has left of a run on this machine.

    Args:
        node: the number of this machine's node in the job.
    """
    deadline = time.monotonic() + ENDING_S
    while (found := [*processes_of(run, node)]) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)
        time.sleep(POLL_S)


def processes_of(run: RunDir, node: int = 0) -> Iterator[int]:
    """This user's processes that torchrun has started for a run, by their environment.

    Several nodes may be on one machine; torchrun calls a node's number GROUP_RANK.
    """
    ours = {f"{RUN_FOLDER}={run.path}".encode(errors="surrogateescape"), b"GROUP_RANK=%d" % node}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or it has ended
            if ours <= set((entry / "environ").read_bytes().split(b"\0")):
                yield int(entry.name)
