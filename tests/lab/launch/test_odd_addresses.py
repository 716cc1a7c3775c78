"""Odd paths, names and repositories: they work, or are refused in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.foreign import write_files
from tests.lab.launch.conftest import SCRIPT
from zoerefine.lab.launch.housekeeping import clean, stored_folders


def one_line(done):
    lines = [line for line in done.stderr.strip().splitlines() if line.startswith("error:")]
    assert "Traceback" not in done.stderr
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    "repo",
    [
        *("{file}", "http://[::1", "~nosuch/x", "a" * 300, "https://host:x/r", "http://[::1/x]"),
        *("{file}/below", "ssh://[x/y", "a\0b"),
    ],
)
def test_an_odd_repository_is_one_line(launch, config, repo):
    assert "--repo" in one_line(launch(repo=repo.format(file=config), code=2))


@pytest.mark.parametrize(
    "words",
    [
        ("--home", "~nosuch/x"),
        ("--home", "h" * 300),
        ("--home", "{file}"),
        ("--home", "{file}/below"),
        ("--runs", "r" * 300),
        ("--runs", "{file}"),
        ("--config", "c" * 300 + ".yaml"),
        ("--config", "~nosuch/c.yaml"),
        ("--module", "m" * 300 + ".py"),
        ("--module", "m" * 300),
        ("--name", "n" * 300),
        ("--caller", "c" * 300),
        ("--commit", "f" * 300),
        ("--branch", "b" * 300),
        ("--seeds", "0:2000000000"),
        ("--seeds", "5:1"),
    ],
)
def test_an_odd_option_is_one_line(launch, config, words):
    one_line(launch(*(word.format(file=config) for word in words), code=2))


@pytest.mark.parametrize("name", [b"caf\xe9", "日本".encode(), b"a b:c;d'\"$x", b"new\nline"])
@pytest.mark.parametrize("dirty", [False, True])
def test_folders_of_any_name_can_be_launched(repository, config, tmp_path, name, dirty):
    place = os.path.join(os.fsencode(tmp_path), name)
    os.mkdir(place)
    os.rename(repository.folder, os.path.join(place, b"repo"))
    folder = os.path.join(place, b"repo")
    if dirty:
        with open(os.path.join(folder, b"version.txt"), "w") as file:
            file.write("uncommitted")
    command = [sys.executable, SCRIPT, "--repo", folder, "--commit", "HEAD", "--config", config]
    home = tmp_path / "home" if b":" in name else os.path.join(place, b"home")  # for PYTHONPATH
    command += ["--module", "job.py", "--home", home]
    command += ["--runs", os.path.join(place, b"runs"), *(["--allow-dirty"] if dirty else [])]
    done = subprocess.run([os.fsencode(str(w)) if not isinstance(w, bytes) else w for w in command],
                          cwd=tmp_path, capture_output=True)  # fmt: skip
    if b"\n" in name:
        assert done.returncode in (0, 2)
        assert b"Traceback" not in done.stderr
        return
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert (b"uncommitted" if dirty else b"version two") in done.stdout


def test_a_remote_whose_head_is_unborn_can_be_launched(repository, launch):
    repository.git("symbolic-ref", "HEAD", "refs/heads/absent")
    launch(commit="main", repo=f"file://{repository.folder}")
    done = launch("K", "1", commit="HEAD", repo=f"file://{repository.folder}", code=2)
    assert "HEAD" in one_line(done)


def test_a_run_that_was_moved_can_be_shown_and_reproduced(launch, only_run, tmp_path, command):
    launch()
    moved = tmp_path / "elsewhere" / "deep" / "job" / "id"
    moved.parent.mkdir(parents=True)
    only_run().path.rename(moved)
    shown, again = command("show", moved), command("reproduce", moved, code=None)
    assert "Traceback" not in shown.stderr + again.stderr


def test_show_makes_control_characters_visible(launch, only_run, command):
    launch("KEY", "\x1b]0;owned\x07\x1b[2Jx\r\u202e")
    done = command("show", only_run().path)
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "owned" in done.stdout


@pytest.fixture
def precious(tmp_path):
    """A user's folder with a file in every place that --clean might look into."""
    names = ["0" * 40 + ".0", "tight-" + "0" * 12 + ".git", "0" * 16, "." + "0" * 40 + ".0.ab.tmp"]
    write_files(tmp_path / "precious", {f"{name}/file": "precious" for name in names})
    return tmp_path / "precious"


@pytest.mark.parametrize("level", ["workspaces", "workspaces/tight-000000000000",
                                   f"workspaces/tight-000000000000/{'0' * 40}.0",
                                   "environments", "environments/" + "0" * 16, "mirrors",
                                   "mirrors/tight-000000000000.git"])  # fmt: skip
@pytest.mark.parametrize("discard", [False, True])
def test_clean_follows_no_symbolic_link(tmp_path, precious, level, discard):
    link = tmp_path / "home" / level
    link.parent.mkdir(parents=True)
    link.symlink_to(precious)
    before = sorted(precious.rglob("*"))
    assert clean(tmp_path / "home", older_than_days=0, keep=0, discard=discard) == []
    assert stored_folders(tmp_path / "home") == []
    assert sorted(precious.rglob("*")) == before
    assert link.is_symlink()


def test_clean_removes_only_folders_that_have_our_names(tmp_path):
    """A project may have folders of these names, and be given as --home by mistake."""
    mine = ["environments/dev/a", "workspaces/a/data/b", "mirrors/mine.git/c", "records/x"]
    write_files(tmp_path, dict.fromkeys(mine, "mine"))
    assert clean(tmp_path, older_than_days=0, keep=0, discard=True) == []
    assert all(Path(tmp_path / name).exists() for name in mine)
