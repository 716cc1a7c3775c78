"""Runs zoerefine's commands in forks of one process that has loaded everything once.

    server = server_of_user(user)
    done = server.run(["train", "--config", "a.yaml"], cwd=folder)    done.code, done.out, done.err
    done = server.run(["-c", "print(1)"], cwd=folder)                 runs code as `python -c` does

A fork starts in milliseconds, a new process in seconds. It runs as the user that is given. Tests
that run a command as this user share one server, also those of other test processes, each of which
has a fork of it: run_verb(["train", ...], cwd).
"""

import atexit
import gc
import importlib
import io
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from zoerefine.base.files.file_lock import lock

LOADED = (
    "PIL.JpegImagePlugin",
    "alembic.command",
    "cv2",
    "git",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_pdf",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "optuna.storages._rdb.models",
    "rich.table",
    "sqlalchemy.dialects.sqlite",
    "zoerefine.lab.analysis.analyze",
    "zoerefine.lab.analysis.diff",
    "zoerefine.lab.search.driver",
    "zoerefine.lab.search.dashboard",
    "zoerefine.lab.launch.launcher",
    "zoerefine.commands.run",
)
LOADED_WITH_TORCH = (
    "torch",
    "torch._inductor",  # torch.use_deterministic_algorithms loads it
    "torch.utils.tensorboard",
    "zoerefine.depth.training.job",
    "zoerefine.depth.training.check.checks",
    "zoerefine.depth.training.check.profile",
    "zoerefine.depth.exporting.export",
    "zoerefine.depth.exporting.show",
    "zoerefine.depth.infer.pipeline",
    "zoerefine.depth.study.trials",
)
WITHOUT_TORCH = "without torch"
# Commands that never load torch: a fork of a process without it costs half.
LABORATORY = {"analyze", "diff", "reproduce", "run", "runs"}

CHECKOUT = Path(__file__).resolve().parents[1]
AT_START = dict(os.environ)  # before any test has changed it
SERVERS = "ZOEREFINE_TEST_SERVERS"  # names the folder of the sockets (tiers.py)
# Variables that count when a process starts: a fork would not see a change.
READ_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "ONEDNN_", "MPL", "GLIBC_")


@dataclass(frozen=True)
class Done:
    """A command that has ended; a code below 0 is the signal that ended it."""

    code: int
    out: str
    err: str
    seconds: float


class VerbServer:
    """The side of the tests: asks for commands, one after the other."""

    def __init__(self, requests, answers, process=None):
        self.requests, self.answers, self.process = requests, answers, process

    def run(self, words, cwd, env=None, stop_at="", largest_file=None, kill_after=None):
        """Run a command to its end.

        Args:
            env: environment variables to set; a value None removes one.
            stop_at: a text of its standard output after which it gets SIGINT.
            largest_file: the limit on the size of files that it can write.
            kill_after: seconds after which it gets SIGKILL.
        """
        request = {
            "words": [str(word) for word in words],
            "cwd": str(cwd),
            "env": env or {},
            "stop_at": stop_at,
            "largest_file": largest_file,
            "kill_after": kill_after,
        }
        print(json.dumps(request), file=self.requests, flush=True)
        answer = self.answers.readline()
        assert answer, "the server of commands has ended"
        done = Done(**json.loads(answer))
        if done.code == -signal.SIGKILL:
            note_kill(request["words"][0])
        return done

    def close(self):
        """End the server, or one's fork of it."""
        self.requests.close()
        self.answers.close()
        if self.process:
            self.process.wait()


def note_kill(verb):
    """Count a command that was killed while it ran, for the last lines of the tests (tiers.py)."""
    if path := os.environ.get("ZOEREFINE_KILLS_LOG"):
        with open(path, "a") as file:
            file.write(f"{verb}\n")


PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


def command_of(*words):
    return [sys.executable, "-m", "tests.verb_server", *words]


def server_of_user(user):
    """A server that another user runs."""
    process = user.start(command_of(), **PIPES)
    return VerbServer(process.stdin, process.stdout, process)


@cache
def own_server(*words):
    """This test process's fork of the server, and the environment that the server has.

    The first test process that needs it starts it, and it listens as long as that process lives.
    """
    connection = socket.socket(socket.AF_UNIX)
    path = Path(os.environ[SERVERS], *words, "socket")
    path.parent.mkdir(exist_ok=True)
    with lock(path.with_suffix(".lock")):
        try:
            connection.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            command = command_of(*words, str(path))
            started = subprocess.Popen(command, cwd=CHECKOUT, env=AT_START, **PIPES)
            atexit.register(VerbServer(started.stdin, started.stdout, started).close)
            assert started.stdout.readline(), "the server of commands did not start"
            connection.connect(str(path))
    server = VerbServer(connection.makefile("w"), connection.makefile())
    connection.close()  # the files keep it
    atexit.register(server.close)
    return server, json.loads(server.answers.readline())


def server_of(verb):
    """The server that runs a command."""
    return own_server(*[WITHOUT_TORCH] * (verb in LABORATORY))


def changed_variables(verb):
    """Variables that were set since the server started; None for one that was removed."""
    old, new = server_of(verb)[1], os.environ
    return {name: new.get(name) for name in {*old, *new} if old.get(name) != new.get(name)}


def needs_a_new_process(verb, env):
    """Whether a variable differs that Python or a library reads only at its start."""
    return any(name.startswith(READ_AT_START) for name in changed_variables(verb) | env)


def run_verb(words, cwd, env=None, **options):
    """Run a command in the tests' environment and the folder `cwd`; options as `run` has them."""
    env = changed_variables(words[0]) | (env or {})
    return server_of(words[0])[0].run(words, cwd, env, **options)


def serve(*words):
    """The side of the commands: a fork for each line of standard input, or of each connection."""
    load(with_torch=WITHOUT_TORCH not in words)
    if words and words[-1] != WITHOUT_TORCH:
        listen(words[-1])
    else:
        answer(sys.stdin, os.fdopen(os.dup(1), "w"))


def load(with_torch):
    for name in LOADED:
        importlib.import_module(name)
    if with_torch:
        with suppress(ModuleNotFoundError):  # of torch
            for name in LOADED_WITH_TORCH:
                importlib.import_module(name)
    read_migrations_once()
    gc.freeze()  # a fork would copy every page whose objects its collector looks at


def read_migrations_once():
    """Alembic else runs all files of Optuna's migrations at each opening of a database."""
    from alembic.script import ScriptDirectory
    from optuna.storages import RDBStorage

    known, make = {}, ScriptDirectory.from_config

    def from_config(config):
        place = config.get_main_option("script_location")
        if place not in known:
            known[place] = make(config)
        return known[place]

    ScriptDirectory.from_config = staticmethod(from_config)
    RDBStorage("sqlite://")


def listen(path):
    """Serve each connection in a fork, until standard input ends."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("it listens", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            answers = connection.makefile("w")
            print(json.dumps(dict(os.environ)), file=answers, flush=True)
            answer(connection.makefile(), answers)
            os._exit(0)
        connection.close()


def answer(requests, answers):
    for line in requests:
        print(json.dumps(fork(json.loads(line))), file=answers, flush=True)


def fork(request):
    """Run a request in a child process; returns what `Done` holds."""
    start = time.monotonic()
    pipes = [os.pipe(), os.pipe()]
    pid = os.fork()
    if pid == 0:
        in_child(request, [write for _, write in pipes])
    for _, write in pipes:
        os.close(write)
    texts = ["", ""]

    def read(number):
        with open(pipes[number][0], encoding="utf-8", errors="replace") as pipe:
            for line in pipe:
                texts[number] += line
                if number == 0 and request["stop_at"] and request["stop_at"] in line:
                    os.kill(pid, signal.SIGINT)

    readers = [threading.Thread(target=read, args=(number,)) for number in (0, 1)]
    for reader in readers:
        reader.start()
    if request["kill_after"] is not None:
        time.sleep(request["kill_after"])
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    for reader in readers:
        reader.join()
    code = os.waitstatus_to_exitcode(status)
    return {"code": code, "out": texts[0], "err": texts[1], "seconds": time.monotonic() - start}


def in_child(request, outputs):
    """Run the command as the console script would, and end."""
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(io.FileIO(number, "w", closefd=False), line_buffering=True)
            for number in (1, 2)
        )
        for key, value in request["env"].items():
            os.environ.pop(key, None) if value is None else os.environ.update({key: value})
        os.chdir(request["cwd"])
        words = request["words"]
        if request["largest_file"] is not None:
            limit = request["largest_file"]
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        code = run_code(*words[1:]) if words[0] == "-c" else run_words(words)
    except SystemExit as error:  # argparse
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_words(words):
    from zoerefine.cli import main

    sys.argv[:] = ["zoerefine", *words]
    return main(words)


def run_code(code, *words):
    sys.argv[:], sys.path[0] = ["-c", *words], ""
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    return 0


if __name__ == "__main__":
    serve(*sys.argv[1:])
