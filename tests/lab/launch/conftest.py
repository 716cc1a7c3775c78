"""Real repositories, a job that reports what it was given, and launches of it as processes."""

import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.processes import git, killed_at_end, run_zoerefine
from zoerefine.base import secrets
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.git.address import parse_address
from zoerefine.lab.launch.git.changes import Changes, read_changes
from zoerefine.lab.launch.git.mirror import fetch_commit
from zoerefine.lab.launch.job import Job
from zoerefine.lab.launch.plan import make_plan
from zoerefine.lab.launch.workspace.workspace import workspace

SCRIPT = Path(__file__).resolve().parents[3] / "platform" / "run_from_commit.py"

# Words in the config choose what the job does.
JOB = """
import argparse, json, os, signal, sys, time
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--config"), parser.add_argument("--fixed")
parser.add_argument("rest", nargs="*")
args = parser.parse_args()
text = Path(args.config).read_text()
run = Path(os.environ["ZOEREFINE_RUN_FOLDER"])
print("version", Path(__file__).with_name("version.txt").read_text().strip())
print("config", text.strip(), args.rest, args.fixed)
print("folder", os.getcwd())
print("first on the path", os.environ["PYTHONPATH"].split(os.pathsep)[0])
if "wait" in text:
    try:
        print("waiting", flush=True)
        while True:
            time.sleep(60)
    except KeyboardInterrupt:
        print("stopped with a checkpoint")
        sys.exit(130)
if "stubborn" in text:
    signal.signal(signal.SIGINT, lambda *_: print("asked to stop", flush=True))
    print("ready", flush=True)
    while True:
        time.sleep(60)
if "leave" in text:  # files in the working directory; the first half takes a while
    for number in range(300):
        folder = Path("out") / str(number % 7)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(str(number))
        time.sleep(0.002 if number < 150 else 0)
if "fail" in text:
    sys.exit("it went wrong")
if "code: " in text:
    sys.exit(int(text.partition("code: ")[2].split()[0]))
if "steps" in text:  # a job that resumes: its checkpoint is the list of steps that are done
    gate = Path(text.partition("gate: ")[2].split("\\n")[0])  # after 3 steps it waits for this file
    with open(run / "steps.txt", "a+b", buffering=0) as checkpoint:
        checkpoint.seek(0)
        for step in range(len(checkpoint.readlines()), 12):
            while step >= 3 and not gate.exists():
                time.sleep(0.02)
            time.sleep(0.03)
            checkpoint.write(f"{step} {os.environ.get('ZOEREFINE_TEST_NODE', '')}\\n".encode())
noise = time.time() if "random" in text else 0.0
results = {"loss": len(text) + noise, "images_per_s": time.time()}
(run / "results.json").write_text(json.dumps(results))
"""


class Repository:
    """A git repository in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def init(self):
        self.folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch", "main")
        return self

    def git(self, *words, stdin=""):
        return git(self.folder, *words, stdin=stdin)

    def commit(self, version):
        (self.folder / "job.py").write_text(JOB)
        (self.folder / "version.txt").write_text(version)
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", version)
        return self.git("rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def own_secrets(monkeypatch):
    """A password that one test has registered, e.g. `000000`, is not a secret in the next."""
    monkeypatch.setattr(secrets, "_registered", set())


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A repository with two commits. Its name ends in letters of `.git`."""
    made = Repository(tmp_path_factory.mktemp("template") / "tight").init()
    made.first = made.commit("one")
    made.second = made.commit("two")
    return made


@pytest.fixture
def repository(template, tmp_path):
    """A copy of that repository for one test."""
    return copy_of(template, tmp_path / "tight")


def copy_of(repository, folder):
    shutil.copytree(repository.folder, folder, symlinks=True)
    made = Repository(folder)
    made.first, made.second = repository.first, repository.second
    return made


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("KEY: value\n")
    return path


@pytest.fixture
def commit_with(repository):
    """Commit files and a script that imports tinything: commit_with(name, text, ...)."""

    def commit(*files):
        for name, text in zip(files[::2], files[1::2], strict=True):
            (repository.folder / name).write_text(text)
        script = "import sys, tinything; print('tinything', tinything.VERSION, sys.prefix)\n"
        (repository.folder / "uses.py").write_text(script)
        return repository.commit("three")

    return commit


@pytest.fixture
def wheels(tmp_path):
    return tmp_path / "wheels"


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """uv keeps nothing from before."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of mirrors and workspaces, for this process and for launches."""
    monkeypatch.setenv("ZOEREFINE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def launch_words(repository, config, *words, commit=None, repo=None):
    """The options that launch the repository's job; more words come last."""
    return [
        *("--repo", repo or repository.folder, "--commit", commit or repository.first),
        *("--config", config, "--module", "job.py", *words),
    ]


def launch_command(*words, **options):
    """The command of a process that launches the repository's job."""
    return [sys.executable, SCRIPT, *map(str, launch_words(*words, **options))]


@pytest.fixture
def launch(tmp_path, home, repository, config):
    """Launch the repository's job: launch(*words) -> finished process, or one in the background.

    A finished one must have the exit code 0, or `code`.
    """
    with killed_at_end() as start:

        def run(*words, env=None, background=False, code=0, **options):
            if not background:
                words = launch_words(repository, config, *words, **options)
                return run_zoerefine(tmp_path, "run", *words, env=env, code=code)
            command = launch_command(repository, config, *words, **options)
            return start(command, cwd=tmp_path, env=os.environ | (env or {}))

        yield run


@pytest.fixture
def plan(repository, config, home):
    """Plan the repository's job: plan("HEAD", allow_dirty=True) -> plan; options are those of Job.

    `repo`, `config`: in the place of the test's own.
    """
    own = config

    def one(commit, module="job.py", repo=repository.folder, config=own, **options):
        return make_plan(Job(str(repo), commit, config, module, **options), home)

    return one


@pytest.fixture
def enter(repository, home, tmp_path):
    """Enter a commit's workspace for a run, until `enter.leave()` or the test's end.

    `dirty`: with the uncommitted changes.
    """
    with ExitStack() as stack:

        def one(commit=None, run="run", repo=None, dirty=False):
            source = parse_address(str(repo or repository.folder))
            mirror, full = fetch_commit(source, commit or repository.first, home)
            none = tmp_path / "none.yaml"  # no config of the repository's
            changes = read_changes(source, full, True, none) if dirty else Changes()
            place = workspace(source, mirror, full, changes, home, tmp_path / run)
            return stack.enter_context(place).folder

        one.leave = stack.close
        yield one


@pytest.fixture
def owned(tmp_path):
    """A program that must not run: owned.program, and the file that it would make: owned.file."""
    found = SimpleNamespace(file=tmp_path / "owned", program=tmp_path / "program.sh")
    found.program.write_text(f"#!/bin/sh\ntouch {found.file}\ncat 2>/dev/null\n")
    found.program.chmod(0o755)
    return found


@pytest.fixture
def only_run(tmp_path):
    """The one run that a test has launched."""

    def find(name="job"):
        there = (tmp_path / "runs" / name).iterdir()
        folders = [path for path in there if path.is_dir() and not path.is_symlink()]
        if not folders:
            raise FileNotFoundError  # `wait_until` waits for it
        (folder,) = folders
        return RunDir(folder)

    return find


@pytest.fixture
def command(tmp_path, home):
    """Run a command in a folder of the user's: command(*words, code=0) -> finished process."""
    return lambda *words, code=0: run_zoerefine(tmp_path, *words, code=code)
