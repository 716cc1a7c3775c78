"""A real repository with a script that says what it was given."""

import subprocess

import pytest

JOB = """
import argparse, os, signal, sys, time
from pathlib import Path
parser = argparse.ArgumentParser()
parser.add_argument("--config"), parser.add_argument("rest", nargs="*")
args = parser.parse_args()
print("version", Path(__file__).with_name("version.txt").read_text().strip())
print("config", Path(args.config).read_text().strip(), args.rest)
print("folder", os.getcwd())
print("first on the path", os.environ["PYTHONPATH"].split(os.pathsep)[0])
text = Path(args.config).read_text()
if "wait" in text:
    try:
        print("waiting", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("stopped with a checkpoint")
        sys.exit(130)
if "fail" in text:
    sys.exit("it went wrong")
"""


class Repository:
    """A git repository in a folder, with the commits that tests ask for."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
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
