"""Scripts of other projects, launched without changing a line of them."""

import os
import subprocess
import sys

import pytest

from tests.foreign import KINDS
from zoerefine.run_dir import RunDir


@pytest.fixture
def run_foreign(tmp_path, home):
    """Launch in a folder of the user's: run_foreign(repository, *words) -> finished process."""
    user = tmp_path / "user"
    user.mkdir()

    def run(repository, *words, env=None):
        command = [sys.executable, "-m", "zoerefine", "run", *repository.job(), *map(str, words)]
        settings = {"capture_output": True, "text": True, "env": os.environ | (env or {})}
        done = subprocess.run(command, cwd=user, timeout=300, **settings)
        run.run = RunDir(user / "runs" / repository.config.split("/")[-1].split(".")[0] / "latest")
        return done

    run.user = user
    return run


@pytest.mark.parametrize("kind", KINDS)
def test_a_launch_gives_the_number_that_the_script_gives_by_hand(
    foreign_repository, run_foreign, tmp_path, kind
):
    repository = foreign_repository(kind)
    by_hand = repository.run_by_hand(tmp_path / "by hand", lr=0.03, seed=2, epochs=3)
    words = repository.set(lr=0.03, seed=2, epochs=3)
    done = run_foreign(repository, "--cwd", "caller", *words)
    assert done.returncode == 0, done.stderr
    assert repository.final(run_foreign.user) == by_hand
