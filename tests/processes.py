"""Commands that tests run, and what the system says of processes."""

import os
import subprocess
import sys
from pathlib import Path

from tests.verb_server import CHECKOUT, needs_a_new_process, run_verb


def stat_of(pid):
    """State, parent and so on of a process. Raises `OSError` where there is none."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def is_alive(pid):
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return stat_of(pid)[0] != "Z"
    except OSError:
        return False


def parent_of(pid):
    """The process that started it, or has adopted it."""
    return int(stat_of(pid)[1])


def platform_command(name, *words):
    return [sys.executable, CHECKOUT / "platform" / f"{name}.py", *map(str, words)]


def zoerefine_command(*words):
    return [sys.executable, "-m", "zoerefine", *map(str, words)]


def run_script(folder, name, *words, env=None):
    """Run the command of platform/<name>.py in a folder, in a fork where that is the same."""
    return run_zoerefine(folder, "run" if name == "run_from_commit" else name, *words, env=env)


def run_zoerefine(folder, *words, env=None):
    """Run a command in a folder, in a fork where that is the same; `env` adds variables."""
    words, env = list(map(str, words)), env or {}
    if needs_a_new_process(env):
        pipes = {"capture_output": True, "text": True, "timeout": 900}
        return subprocess.run(zoerefine_command(*words), cwd=folder, env=os.environ | env, **pipes)
    done = run_verb(words, folder, env)
    return subprocess.CompletedProcess(words, done.code, done.out, done.err)
