"""Commands that tests run, and what the system says of processes."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from tests.verb_server import CHECKOUT, needs_a_new_process, note_kill, run_verb

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def stat_of(pid):
    """State, parent and so on of a process. Raises `OSError` where there is none."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def is_alive(pid):
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return stat_of(pid)[0] != "Z"
    except OSError:
        return False


def children(pid):
    """Processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descendants(pid):
    """All processes below a process, and itself."""
    listing = run_program(["ps", "-eo", "pid,ppid"]).stdout
    parents = dict(map(int, line.split()) for line in listing.splitlines()[1:])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


@contextmanager
def killed_at_end():
    """Starts processes: start(command, **options of Popen); they are killed at the end."""
    started = []

    def start(command, **options):
        started.append(subprocess.Popen(list(map(str, command)), **PIPES | options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def git(folder, *words, stdin=""):
    """Run git in a folder, as an author; returns its output."""
    who = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always"]
    command, pipes = ["git", *who, *map(str, words)], {"capture_output": True, "text": True}
    return subprocess.run(command, cwd=folder, input=stdin, check=True, **pipes).stdout.strip()


def kills(usual):
    """How many rounds a kill test makes."""
    return int(os.environ.get("ZOEREFINE_TEST_KILLS") or usual)


def ended(process, verb):
    """Wait for a process that was killed, and count it if it still ran."""
    process.communicate()
    if process.returncode == -signal.SIGKILL:
        note_kill(verb)


def end_of(process, code=0):
    """What a process prints to its end, to each of both streams; it must have this exit code."""
    out, errors = process.communicate(timeout=600)  # which only ends a test that would wait forever
    assert process.returncode == code, errors
    return out, errors


def parent_of(pid):
    """The process that started it, or has adopted it."""
    return int(stat_of(pid)[1])


def platform_command(name, *words):
    return [sys.executable, CHECKOUT / "platform" / f"{name}.py", *map(str, words)]


def zoerefine_command(*words):
    return [sys.executable, "-m", "zoerefine", *map(str, words)]


def run_script(folder, name, *words, env=None, code=0):
    """Run the command of platform/<name>.py in a folder, in a fork where that is the same."""
    name = "run" if name == "run_from_commit" else name
    return run_zoerefine(folder, name, *words, env=env, code=code)


def run_zoerefine(folder, *words, env=None, code=0):
    """Run a command in a folder, in a fork where that is the same; `env` adds variables.

    It must end with the exit code `code`; None: with any.
    """
    words, env = list(map(str, words)), env or {}
    is_program = not any("\0" in word for word in words)  # no process can be given such a word
    if is_program and needs_a_new_process(words[0], env):
        pipes = {"capture_output": True, "text": True, "timeout": 900}
        done = subprocess.run(zoerefine_command(*words), cwd=folder, env=os.environ | env, **pipes)
    else:
        done = completed(words, run_verb(words, folder, env))
    assert code in (None, done.returncode), done.stdout + done.stderr
    return done


def run_python(code, *words, folder=CHECKOUT):
    """Run code in a fork that has loaded torch and ours, but no library beside them."""
    return completed(words, run_verb(["-c", code, *words], folder))


def run_program(command, code=0, **options):
    """Run a command, whose output is text; `options` are those of `subprocess.run`.

    It must end with the exit code `code`; None: with any.
    """
    words = command if options.get("shell") else list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, **options)
    assert code in (None, done.returncode), done.stdout[-3000:] + done.stderr[-3000:]
    return done


def run_new_python(code, *words, exit_code=0, **options):
    """Run code in a new Python process; `options` are those of `subprocess.run`."""
    return run_program([sys.executable, "-c", code, *words], exit_code, **options)


def completed(words, done):
    return subprocess.CompletedProcess(words, done.code, done.out, done.err)
