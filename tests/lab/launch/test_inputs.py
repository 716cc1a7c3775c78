"""Files that a job finds in its workspace: those of an earlier run, or of a folder (--input)."""

import json

import pytest

from tests.foreign import commit_files, write_files
from tests.lab.launch.test_included_configs import PATTERN, loss, run_of
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.launch.workspace.workspace import digest_inputs

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


def test_an_earlier_run_gives_its_files_to_another_job(command, tmp_path):
    code = commit_files(tmp_path / "code", {"make.py": MAKE, "train.py": TRAIN})
    words = ["--repo", "code", "--commit", "HEAD", "--module"]
    command("run", *words, "train.py", code=1)
    run_of(command("run", *words, "make.py"))
    job = [*words, "train.py", PATTERN, "--input", "runs/make/latest"]
    run = run_of(command("run", *job))
    left = json.loads((tmp_path / run / "left.json").read_text())["files"]
    assert [one["path"] for one in left] == ["model.txt"]
    inputs = json.loads((tmp_path / run / "inputs.json").read_text())
    assert [list(files) for files in inputs.values()] == [["data.json"]]
    command("reproduce", run)
    space = ["--metric", "loss", "--search", "x=[1, 2]", "--grid", "--name", "s"]
    command("search", *job, *space, "--", "{x}")
    command("run", *job, "--seeds", "1,2", "--seed-key", "x", "--", "{x}")
    source = next((tmp_path / "runs/make").glob("*-*")) / "left/data.json"
    source.write_text("[1]")
    assert "data.json is not what was recorded" in command("reproduce", run, code=2).stdout
    assert loss(tmp_path, run_of(command("run", *job))) == 1.0  # another job
    commit_files(code, {"data.json": "[2]"})
    assert "the commit has a file in the place of" in command("run", *job, code=2).stderr


def test_a_folder_lies_in_the_workspace_as_in_the_repository(command, tmp_path):
    script = 'print("loss", open("data/a/x.txt").read(), open("more/y.txt").read())'
    code = commit_files(tmp_path / "code", {"train.py": script, ".gitignore": "data\n"})
    write_files(tmp_path, {"code/data/a/x.txt": "3", "elsewhere/more/y.txt": "3"})
    words = ["--repo", "code", "--commit", "HEAD", "--module", "train.py", PATTERN]
    words += ["--input", str(code / "data"), "--input", "elsewhere/more"]
    run = run_of(command("run", *words))
    assert "loss 3 3" in (tmp_path / run / "log.txt").read_text()
    command("reproduce", run)
    shown = command("show", run).stdout
    assert f"--input={code}/data --input={tmp_path}/elsewhere/more" in shown
    assert "absent is not a folder" in command("run", *words, "--input", "absent", code=2).stderr


def test_a_run_that_failed_is_named_and_one_that_runs_is_refused(command, tmp_path):
    half = "open('half.txt', 'w').write('1'); raise SystemExit(3)"
    commit_files(tmp_path / "code", {"make.py": half, "use.py": "print(open('half.txt').read())"})
    words = ["--repo", "code", "--commit", "HEAD", "--module"]
    command("run", *words, "make.py", code=3)
    use = [*words, "use.py", "--input", "runs/make/latest"]
    assert "is failed: its files may not be all that its job writes" in command("run", *use).stderr
    with RunDir(tmp_path / "runs" / "make" / "latest").locked():
        (tmp_path / "runs/make/latest/status.json").write_text('{"state": "running"}')
        assert "is running: its files are there when" in command("run", *use, code=2).stderr


@pytest.mark.parametrize(
    ("second", "words"), [("x.txt", "would lie at one place"), ("x.txt/y", "would lie inside the")]
)
def test_two_folders_with_a_file_for_one_path_are_refused(tmp_path, second, words):
    names = ("a/data/x.txt", f"b/data/{second}", "b/data/z.txt")
    write_files(tmp_path, {name: name for name in names})
    folders = [tmp_path / "a/data", tmp_path / "b/data"]
    assert len(digest_inputs([folders[0]] * 2, None)) == 1
    with pytest.raises(UserError, match=f"^--input: .*{second} .*{words}"):
        digest_inputs(folders, None)


def test_an_empty_folder_and_a_link_to_a_folder_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty has no files: is it the right folder"):
        digest_inputs([tmp_path / "empty"], None)
    write_files(tmp_path, {"data/x.txt": "x"})
    (tmp_path / "data/more").symlink_to(tmp_path / "empty")
    with pytest.raises(UserError, match="data/more is a link to a folder: copy that folder"):
        digest_inputs([tmp_path / "data"], None)
