"""Frames of a depth camera, and `zoerefine bag` in this process."""

import pytest

from tests.finished import run_here


@pytest.fixture(scope="session")
def frames():
    """Ten frames of 64x48 pixels. Tests must not change them."""
    from tests.depth.ros.bags import random_frames

    return random_frames(10)


@pytest.fixture
def bag(exported_run, tmp_path, monkeypatch, capsys):
    """Run `zoerefine bag` with the bundle, in the test's folder: bag(*words) -> Finished."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        return run_here(capsys, "bag", exported_run.bundle, *words)

    return run


@pytest.fixture
def refused(bag, tmp_path):
    """Run a command that must fail with one line, and leave nothing: refused(*words) -> line."""

    def run(*words):
        before = sorted(tmp_path.rglob("*"))
        done = bag(*words)
        assert done.code == 2, done
        *_, line = done.err.splitlines()
        assert line.startswith("error: ") and "Traceback" not in done.err
        assert sorted(tmp_path.rglob("*")) == before
        return line

    return run
