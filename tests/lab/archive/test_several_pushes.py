"""Several pushes of one run at once: a whole archive, or an error and a push that repairs it."""

import os
import shutil
import threading
from contextlib import contextmanager
from itertools import count

import pytest
from fsspec.implementations.local import LocalFileSystem

from tests.lab.archive.conftest import contents
from zoerefine.base.files.atomic import digest_file
from zoerefine.lab.archive.remote import Remote

RUN = "demo/b77d9226"
CHANGES = ("replace", "remove")
REQUESTS = ("read", "sizes", "blocks", "write", *CHANGES)


@contextmanager
def before_request(names, number, action):
    """Do something before a push's request of this number, of those with these names.

    Yields a list, with True when it was done.
    """
    lock, requests, done = threading.Lock(), count(), []

    def counted(real, *words):
        with lock:
            is_this = not done and next(requests) == number
            if is_this:
                done.append(True)
        if is_this:
            action()
        return real(*words)

    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            real = getattr(Remote, name)
            patch.setattr(Remote, name, lambda *words, real=real: counted(real, *words))
        yield done


def renew(path):
    path.write_bytes(os.urandom(1000))


@pytest.mark.parametrize("other", ["later", "earlier"])
@pytest.mark.parametrize(("kind", "names"), [("folder", REQUESTS), ("bucket", CHANGES)])
def test_two_pushes_at_once_end_with_a_whole_archive_or_an_error(
    request, kind, names, other, run, command, tmp_path
):
    """The run changed between the pushes. The second one comes before each request of the first."""
    place = request.getfixturevalue(kind)
    for path in (run / "checkpoints").glob("[2-5].pt"):
        path.unlink()
    copy = tmp_path / "copy" / RUN  # what the first push replaces
    changed = run / "checkpoints" / "1.pt" if other == "later" else copy / "config.yaml"
    pushed = run if other == "later" else copy

    def ends_well(number, url):
        """Whether the second push came; asserts how both ended."""
        shutil.copytree(run, copy, dirs_exist_ok=True)
        command("push", copy, url)
        renew(run / "checkpoints" / "0.pt")
        states, codes = [contents(copy), contents(run)], []

        def push_another():
            renew(changed)
            states.append(contents(pushed))
            codes.append(command("push", pushed, url, code=None).code)

        with before_request(names, number, push_another) as came:
            code, _, err = command("push", run, url, code=None)
        assert code == 0 or "run the same command again" in err or "changed while" in err, err
        back, again = tmp_path / f"back-{number}", tmp_path / f"again-{number}"
        pulled, _, reason = command("pull", "--runs", back, f"{url}/{RUN}", code=None)
        assert contents(back / RUN) in states if pulled == 0 else 2 in (code, *codes), reason
        command("push", run, url)
        command("pull", "--runs", again, f"{url}/{RUN}")
        assert contents(again / RUN) == contents(run)
        return bool(came)

    moments = next(n for n in count() if not ends_well(n, f"{place.url}/{n}"))
    assert moments >= len(names)


def test_two_pushes_that_replace_a_manifest_at_once_both_succeed(
    folder, run, command, monkeypatch, tmp_path
):
    real = LocalFileSystem.mv

    def move(*words, **options):
        monkeypatch.setattr(LocalFileSystem, "mv", real)
        command("push", run, folder.url)
        return real(*words, **options)

    monkeypatch.setattr(LocalFileSystem, "mv", move)
    command("push", run, folder.url)
    command("pull", "--runs", "back", f"{folder.url}/{RUN}")
    assert contents(tmp_path / "back" / RUN) == contents(run)
    assert [name for name in folder.names() if "/objects/" not in name] == [f"{RUN}/manifest.json"]


def test_an_object_that_another_push_writes_again_stays_whole(folder, run, command, monkeypatch):
    """The other push has begun to write an object when it is read back after it was sent."""
    real, one = Remote.blocks, digest_file(run / "checkpoints" / "0.pt")

    def read_meanwhile(objects, name):
        if name != one:
            return real(objects, name)
        monkeypatch.setattr(Remote, "blocks", real)
        read = []

        def written():
            read.extend(real(objects, name))
            yield from read

        Remote(objects.url).write(name, written())
        return iter(read)

    monkeypatch.setattr(Remote, "blocks", read_meanwhile)
    command("push", run, folder.url)
