"""Jobs of several processes on one machine, which torchrun starts and watches.

torchrun passes a stop signal on, and ends all processes where one fails. Where torchrun itself is
killed, they go on alone: `end_processes` ends them, so that a run never has two writers.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from zoerefine.run_dir import RUN_FOLDER, RunDir

ENDING_S = 5.0  # for killed processes to end
POLL_S = 0.01


def job_command(python: Path, program: Sequence[str], processes: int) -> list[str]:
    """Python and its words for the job: the job itself, or torchrun, which starts it N times.

    Args:
        program: as `job_module.job_program` gives it.
    """
    if processes == 1:
        return [str(python), *program]
    # Standalone: torchrun chooses a free port, on which the processes find one another.
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [str(python), *start, *program]


def end_processes(run: RunDir) -> None:
    """Kill what a killed torchrun has left of a run on this machine."""
    deadline = time.monotonic() + ENDING_S
    while (found := [*processes_of(run)]) and time.monotonic() < deadline:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def processes_of(run: RunDir) -> Iterator[int]:
    """This user's processes that torchrun has started for a run, by their environment."""
    ours = f"{RUN_FOLDER}={run.path}".encode(errors="surrogateescape")
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or it has ended
            variables = (entry / "environ").read_bytes().split(b"\0")
            if ours in variables and any(one.startswith(b"LOCAL_RANK=") for one in variables):
                yield int(entry.name)
