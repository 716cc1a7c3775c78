"""Frames of a depth camera, and `zoerefine bag` in this process."""

from functools import partial

import pytest


@pytest.fixture(scope="session")
def frames():
    """Ten frames of 64x48 pixels. Tests must not change them."""
    from tests.depth.ros.bags import random_frames

    return random_frames(10)


@pytest.fixture
def bag(exported_run, command):
    """Run `zoerefine bag` with the bundle, in the test's folder: bag(*words) -> Finished."""
    return partial(command, "bag", exported_run.bundle)


@pytest.fixture
def refused(bag, tmp_path):
    """Run a command that must fail with one line, and leave nothing: refused(*words) -> line."""

    def run(*words):
        before = sorted(tmp_path.rglob("*"))
        done = bag(*words, code=2)
        *_, line = done.err.splitlines()
        assert line.startswith("error: ") and "Traceback" not in done.err
        assert sorted(tmp_path.rglob("*")) == before
        return line

    return run
