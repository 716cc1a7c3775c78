"""Training in several real processes, forked from one that has imported torch once."""

import multiprocessing
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.ports import reserved_port

CHECKOUT = Path(__file__).resolve().parents[3]


class Ranks:
    """`zoerefine train` in `count` processes, with the environment that torchrun gives them."""

    def __init__(self, folder, count, words):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["zoerefine.depth.training.job"])
        self.reserved = ExitStack()
        port = self.reserved.enter_context(reserved_port())
        self.outputs = [folder / f"rank{rank}.txt" for rank in range(count)]
        self.processes = [
            context.Process(
                target=run_rank, args=(rank, count, port, output, list(map(str, words)))
            )
            for rank, output in enumerate(self.outputs)
        ]
        with_checkout = os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = with_checkout  # for the server, which the first start starts
        try:
            for process in self.processes:
                process.start()
        finally:
            os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)

    def wait(self):
        """The exit codes, when all have ended."""
        for process in self.processes:
            process.join(180)
        alive = [process for process in self.processes if process.is_alive()]
        for process in alive:
            process.kill()
        self.reserved.close()
        assert not alive, self.output
        return [process.exitcode for process in self.processes]

    @property
    def output(self):
        return "\n".join(path.read_text() for path in self.outputs if path.exists())


def run_rank(rank, count, port, output, words):
    """One process of a training; its output goes to a file."""
    from zoerefine.cli import main

    os.environ |= {
        "TORCHELASTIC_RUN_ID": "test", "RANK": str(rank), "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
    }  # fmt: skip
    os.chdir(output.parent)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(output, "w") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
        code = main(["train", *words])
        sys.stdout.flush()
    os._exit(code)
