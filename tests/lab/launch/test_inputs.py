"""Files that a job finds in its workspace: those of an earlier run, or of a folder (--input)."""

import json
import subprocess

import pytest

from tests.foreign import commit_files
from zoerefine.base.errors import UserError
from zoerefine.lab.launch.workspace.left import digest_inputs

PATTERN = r"--metric-pattern=loss (\S+)"
MAKE = """
import json, random
random.seed(1)
json.dump([random.random() for _ in range(5)], open("data.json", "w"))
"""
TRAIN = """
import json, os, pathlib, sys
data = json.load(open("data.json"))
assert pathlib.Path("data.json").exists()
pathlib.Path("model.txt").write_text(str(sum(data)))
print("loss", sum(data) + float(sys.argv[1] if len(sys.argv) > 1 else 0))
"""


def run_of(done):
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def loss(tmp_path, run):
    return float((tmp_path / run / "log.txt").read_text().rpartition("loss ")[2])


def test_an_earlier_run_gives_its_files_to_another_job(command, tmp_path):
    code = commit_files(tmp_path / "code", {"make.py": MAKE, "train.py": TRAIN})
    words = ["--repo", "code", "--commit", "HEAD", "--module"]
    assert command("run", *words, "train.py").returncode == 1
    run_of(command("run", *words, "make.py"))
    job = [*words, "train.py", PATTERN, "--input", "runs/make/latest"]
    run = run_of(command("run", *job))
    left = json.loads((tmp_path / run / "left.json").read_text())["files"]
    assert [one["path"] for one in left] == ["model.txt"]
    inputs = json.loads((tmp_path / run / "inputs.json").read_text())
    assert [list(files) for files in inputs.values()] == [["data.json"]]
    assert command("reproduce", run).returncode == 0
    space = ["--metric", "loss", "--search", "x=[1, 2]", "--grid", "--name", "s"]
    done = command("search", *job, *space, "--", "{x}")
    assert done.returncode == 0, done.stderr
    done = command("run", *job, "--seeds", "1,2", "--seed-key", "x", "--", "{x}")
    assert done.returncode == 0, done.stderr
    source = next((tmp_path / "runs/make").glob("*-*")) / "left/data.json"
    source.write_text("[1]")
    done = command("reproduce", run)
    assert done.returncode == 2 and "data.json is not what was recorded" in done.stdout
    assert loss(tmp_path, run_of(command("run", *job))) == 1.0  # another job
    (code / "data.json").write_text("[2]")
    subprocess.run(["git", "add", "data.json"], cwd=code, check=True)
    who = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *who, "commit", "-qm", "data"], cwd=code, check=True)
    done = command("run", *job)
    assert done.returncode == 2 and "the commit has a file in the place of" in done.stderr


def test_a_folder_lies_in_the_workspace_as_in_the_repository(command, tmp_path):
    script = 'print("loss", open("data/a/x.txt").read(), open("more/y.txt").read())'
    code = commit_files(tmp_path / "code", {"train.py": script, ".gitignore": "data\n"})
    for name in ("code/data/a/x.txt", "elsewhere/more/y.txt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("3")
    words = ["--repo", "code", "--commit", "HEAD", "--module", "train.py", PATTERN]
    words += ["--input", str(code / "data"), "--input", "elsewhere/more"]
    run = run_of(command("run", *words))
    assert "loss 3 3" in (tmp_path / run / "log.txt").read_text()
    assert command("reproduce", run).returncode == 0
    shown = command("show", run).stdout
    assert f"--input={code}/data --input={tmp_path}/elsewhere/more" in shown
    done = command("run", *words, "--input", "absent")
    assert done.returncode == 2 and "absent is not a folder" in done.stderr


@pytest.mark.parametrize(
    ("second", "words"), [("x.txt", "would lie at one place"), ("x.txt/y", "would lie inside the")]
)
def test_two_folders_with_a_file_for_one_path_are_refused(tmp_path, second, words):
    for name in ("a/data/x.txt", f"b/data/{second}", "b/data/z.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    folders = [tmp_path / "a/data", tmp_path / "b/data"]
    assert len(digest_inputs([folders[0]] * 2, None)) == 1
    with pytest.raises(UserError, match=f"^--input: .*{second} .*{words}"):
        digest_inputs(folders, None)
