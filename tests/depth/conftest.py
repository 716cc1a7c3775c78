"""Commands in this process."""

from functools import partial

import pytest

from tests.finished import run_here


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run a command in the test's folder: command("export", run, code=0) -> Finished."""
    monkeypatch.chdir(tmp_path)
    return partial(run_here, capsys)
