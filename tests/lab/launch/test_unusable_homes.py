"""A home for mirrors and workspaces that cannot be used is one line that names another choice.

The commands are started by another user than root, so that permissions count.
"""

import os
import sys

import pytest

from tests.lab.launch.conftest import copy_of
from zoerefine.base.run_dir import RunDir

# Variables of the environment; None: not set. `{closed}` belongs to root, `{file}` is a file.
HOMES = {
    "no home folder": {"HOME": "/nonexistent/home"},
    "a home that cannot be written": {"HOME": "{closed}"},
    "a home that is a file": {"HOME": "{file}"},
    "no variable HOME": {"HOME": None, "XDG_CACHE_HOME": "{closed}/cache"},
    "a cache folder that cannot be written": {"XDG_CACHE_HOME": "{closed}"},
    "a chosen folder that cannot be written": {"ZOEREFINE_HOME": "{closed}/zoerefine"},
    "a chosen folder that is there and closed": {"ZOEREFINE_HOME": "{closed}"},
    "a chosen folder below a file": {"ZOEREFINE_HOME": "{file}/zoerefine"},
    "a chosen folder of an unknown user": {"ZOEREFINE_HOME": "~nobody-of-this-name/x"},
}
COMMANDS = {
    "run": "run --repo {repo} --commit main --config job.yaml --module job.py",
    "search": "search --repo {repo} --commit main --config job.yaml --module job.py --metric loss "
    "--search KEY=[1,2] --trials 1",
    "reproduce": "reproduce {run}",
}


@pytest.fixture
def user(other_user, template):
    """The other user, with a repository, a config, and a finished run of an earlier launch."""
    copy_of(template, other_user.folder / "repo")
    (other_user.folder / "job.yaml").write_text("KEY: value\n")
    other_user.own(other_user.folder)
    closed = other_user.folder / "closed"
    closed.mkdir(mode=0o555)  # root's
    (other_user.folder / "file").write_text("")
    return other_user


def run(user, name, **variables):
    folder = user.folder
    places = {"repo": folder / "repo", "run": folder / "runs" / "job" / "latest"}
    words = COMMANDS[name].format(**places).split()
    unset = [f"--unset={key}" for key, value in variables.items() if value is None]
    given = {key: value for key, value in variables.items() if value is not None}
    chosen = {key: value.format(closed=folder / "closed", file=folder / "file")
              for key, value in given.items()}  # fmt: skip
    command = ["env", *unset, sys.executable, "-m", "zoerefine", *words]
    return user.run(command, env={"GIT_CONFIG_GLOBAL": os.devnull, **chosen})


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unusable_home_is_one_line_that_suggests_another(user, name):
    if name == "reproduce":
        done = run(user, "run")
        assert done.returncode == 0, done.stderr
    before = sorted(user.folder.rglob("*"))
    for what, variables in HOMES.items():
        done = run(user, name, **variables)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), (what, done.stderr)
        assert "ZOEREFINE_HOME" in done.stderr and "--home" in done.stderr, (what, done.stderr)
        assert sorted(user.folder.rglob("*")) == before, what


def test_a_home_that_pythonpath_cannot_name_is_refused(launch, tmp_path):
    done = launch(env={"ZOEREFINE_HOME": f"{tmp_path}/a:b"}, code=2)
    assert done.stderr.count("\n") == 1
    assert "contains ':'" in done.stderr and "ZOEREFINE_HOME" in done.stderr
    assert not (tmp_path / "a:b").exists()


def test_the_suggested_variable_makes_the_launch_work(user):
    home = user.folder / "elsewhere"
    done = run(user, "run", HOME="/nonexistent/home", ZOEREFINE_HOME=str(home))
    assert done.returncode == 0, done.stderr
    assert RunDir(user.folder / "runs" / "job" / "latest").status().state == "finished"
    assert (home / "workspaces").is_dir()
