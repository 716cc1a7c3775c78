"""Real repositories, a job that says what it was given, and launches of it as processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zoerefine.launch import redaction
from zoerefine.run_dir import RunDir

SCRIPT = Path(__file__).resolve().parents[2] / "platform" / "run_from_commit.py"

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
        time.sleep(60)
    except KeyboardInterrupt:
        print("stopped with a checkpoint")
        sys.exit(130)
if "stubborn" in text:
    signal.signal(signal.SIGINT, lambda *_: print("asked to stop", flush=True))
    print("ready", flush=True)
    while True:
        time.sleep(60)
if "fail" in text:
    sys.exit("it went wrong")
if "litter" in text:
    Path("left.txt").write_text("left by " + str(args.rest))
if "steps" in text:  # a job that resumes: its checkpoint is the list of steps that are done
    with open(run / "steps.txt", "a+b", buffering=0) as checkpoint:
        checkpoint.seek(0)
        for step in range(len(checkpoint.readlines()), 12):
            time.sleep(0.4 if "slow" in text else 0.1)
            checkpoint.write(f"{step} {os.environ.get('ZOEREFINE_TEST_NODE', '')}\\n".encode())
noise = time.time() if "random" in text else 0.0
results = {"loss": len(text) + noise, "images_per_s": time.time()}
(run / "results.json").write_text(json.dumps(results))
"""


class Repository:
    """A git repository in a folder, with the commits that tests ask for."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch", "main")

    def git(self, *words, stdin=""):
        who = ["-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always"]
        words = ["git", *who, *map(str, words)]
        options = {"cwd": self.folder, "capture_output": True, "text": True, "check": True}
        return subprocess.run(words, input=stdin, **options).stdout.strip()

    def commit(self, version):
        (self.folder / "job.py").write_text(JOB)
        (self.folder / "version.txt").write_text(version)
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", version)
        return self.git("rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def own_secrets(monkeypatch):
    """A password of one test, `000000` say, is no secret in the next one's patch."""
    monkeypatch.setattr(redaction, "_registered", set())


@pytest.fixture
def repository(tmp_path):
    """A repository named after letters of '.git', with two commits."""
    made = Repository(tmp_path / "tight")
    made.first = made.commit("one")
    made.second = made.commit("two")
    return made


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("KEY: value\n")
    return path


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Where mirrors and workspaces go, for this process and for launches."""
    monkeypatch.setenv("ZOEREFINE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def launch(tmp_path, home, repository, config):
    """Launch the repository's job; more words come last."""

    def command(*words, commit=None, repo=None):
        return [
            *(sys.executable, SCRIPT, "--repo", repo or repository.folder),
            *("--commit", commit or repository.first, "--config", config),
            *("--module", "job.py", *words),
        ]

    def run(*words, env=None, background=False, **options):
        start = subprocess.Popen if background else subprocess.run
        more = {} if background else {"timeout": 60}
        return start(
            list(map(str, command(*words, **options))),
            cwd=tmp_path,
            env=os.environ | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    return run


@pytest.fixture
def only_run(tmp_path):
    """The one run that a test has launched."""

    def find(name="job"):
        (folder,) = (p for p in (tmp_path / "runs" / name).iterdir() if p.name != "latest")
        return RunDir(folder)

    return find
