"""kill -9 of a push or a pull: nothing looks whole, and the same command then goes on."""

import os
import random
import time

import pytest

from tests.lab.archive.conftest import contents
from tests.processes import ended, kills

KILLS = kills(3)
RUN = "demo/b77d9226"
OBJECTS = 9  # different contents of the run


def test_a_killed_push_leaves_no_archive_and_goes_on(
    bucket, run, start, command, store, wait_until
):
    store.hold("PUT", after=3)
    process = start("push", run, bucket.url)
    wait_until(lambda: len(bucket.names()) == 3, process)
    process.kill()
    process.communicate()
    store.release()
    assert all("/objects/" in name for name in bucket.names())
    _, out, err = command("pull", "--runs", "back", f"{bucket.url}/{RUN}", code=2)
    assert not out and "is not an archive" in err

    before = store.count("PUT")
    command("push", run, bucket.url)
    assert store.count("PUT") - before == OBJECTS + 1 - 3  # .lock is an object, too
    command("pull", "--runs", "back", f"{bucket.url}/{RUN}")


def test_a_killed_pull_leaves_no_run_and_goes_on(
    bucket, run, start, command, store, wait_until, tmp_path
):
    command("push", run, bucket.url)
    target = tmp_path / "back" / RUN
    unfinished = target.with_name(".b77d9226.pulling") / "run"
    expected = contents(run)

    def complete():
        there = contents(unfinished) if unfinished.exists() else {}
        return sum(bool(data) and expected[path] == data for path, data in there.items())

    store.hold("GET", after=4)
    process = start("pull", "--runs", "back", f"{bucket.url}/{RUN}")
    wait_until(lambda: complete() == 4, process)
    err = command("pull", "--runs", "back", f"{bucket.url}/{RUN}", code=2).err
    assert "another process pulls" in err
    process.kill()
    process.communicate()
    store.release()
    assert not target.exists()

    before = store.count("GET")
    command("pull", "--runs", "back", f"{bucket.url}/{RUN}")
    assert store.count("GET") - before == OBJECTS - 4
    assert contents(target) == expected
    assert os.listdir(target.parent) == [target.name]


@pytest.mark.parametrize("verb", ["push", "pull"])
def test_after_kills_at_any_moment_the_copy_is_whole(verb, folder, run, start, command, tmp_path):
    words = {
        "push": ("push", run, folder.url),
        "pull": ("pull", "--runs", "back", f"{folder.url}/{RUN}"),
    }
    if verb == "pull":
        command(*words["push"])
    draw = random.Random(verb)
    for _ in range(KILLS):
        process = start(*words[verb])
        time.sleep(draw.uniform(0.1, 0.5))
        process.kill()
        ended(process, verb)
    for name in ("push", "pull"):
        command(*words[name])
    assert contents(tmp_path / "back" / RUN) == contents(run)
    assert os.listdir(tmp_path / "back" / "demo") == ["b77d9226"]
