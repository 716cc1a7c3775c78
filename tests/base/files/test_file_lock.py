"""File locks: they exclude processes and threads, end with their holders, and can be probed."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.processes import killed_at_end
from zoerefine.base.errors import UserError
from zoerefine.base.files.file_lock import Wait, is_locked, lock, try_lock, writer_lock

HOLD = """
import sys
from pathlib import Path
from zoerefine.base.files.file_lock import lock
with lock(Path(sys.argv[1]), shared="shared" in sys.argv):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "some.lock"


@pytest.fixture
def hold(path):
    """Another process that holds the lock until it is killed."""
    with killed_at_end() as start:

        def started(*words):
            process = start([sys.executable, "-c", HOLD, path, *words], stdin=subprocess.PIPE)
            assert process.stdout.readline() == "held\n"
            return process

        yield started


def test_a_lock_excludes_others_and_ends_with_kill_9(path, hold):
    holder = hold()
    with try_lock(path) as descriptor:
        assert descriptor is None
    assert is_locked(path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert not is_locked(path)
    with lock(path), try_lock(path) as descriptor:
        assert descriptor is None  # threads and later calls of one process are excluded too


@pytest.fixture
def ended_pid():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.mark.parametrize("wait", [Wait.FOR_NOBODY, Wait.FOR_CHILD])
def test_a_lock_of_a_living_writer_is_refused_with_its_number(path, hold, wait):
    pid = hold().pid
    expected = rf"folder is being written by another process \({pid} on here\)"
    with pytest.raises(UserError, match=expected), writer_lock(path, lambda: (pid, "here"), wait):
        pass


@pytest.mark.parametrize("wait", [Wait.FOR_CHILD, Wait.FOR_WRITER])
def test_the_child_of_a_killed_writer_gets_a_moment_to_end(path, hold, ended_pid, wait):
    holder = hold()

    def writer():  # is asked while the lock is held
        holder.kill()
        return (ended_pid if wait is Wait.FOR_CHILD else holder.pid), "here"

    with writer_lock(path, writer, wait) as descriptor:
        assert descriptor is not None
        assert is_locked(path)


def test_shared_holders_share_and_exclude_a_single_one(path, hold):
    hold("shared")
    with lock(path, shared=True), try_lock(path) as descriptor:
        assert descriptor is None


def test_a_child_that_inherits_the_descriptor_keeps_the_lock(path):
    with lock(path) as descriptor:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[descriptor])
        other = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert is_locked(path)
    child.communicate()
    assert not is_locked(path)  # only who was given the descriptor holds it
    other.communicate()


def test_asking_takes_no_lock_and_writes_nothing(path):
    assert not is_locked(path)
    assert not path.parent.exists()
    with lock(path):
        pass
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            is_locked(path)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(2000):
            with try_lock(path) as descriptor:
                assert descriptor is not None
    finally:
        stop.set()
        asking.join()


def test_whoever_waits_for_a_removed_lock_file_takes_the_new_one(path, wait_until):
    links = []

    def wait():
        with lock(path) as descriptor:
            links.append(os.fstat(descriptor).st_nlink)

    def opened():
        return [one.resolve() for one in Path("/proc/self/fd").iterdir()].count(path.resolve())

    with lock(path) as descriptor:
        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until(lambda: opened() == 2)
        path.unlink()
        with lock(path):  # a new file: not the one whose descriptor we hold
            assert os.fstat(descriptor).st_nlink == 0
    waiting.join(30)
    assert links == [1]  # the removed file has none


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="file/inside cannot be written to"),
        lock(tmp_path / "file" / "inside" / "a.lock"),
    ):
        pass


def test_a_lock_that_needs_its_folder_does_not_make_it(path):
    with pytest.raises(FileNotFoundError), try_lock(path, make_folder=False):
        pass
    assert not path.parent.exists()
