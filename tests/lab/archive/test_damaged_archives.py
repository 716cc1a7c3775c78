"""Archives that are damaged or made to do harm: one line, and nothing outside is written."""

import hashlib
import json
import os

import pytest

from tests.lab.archive.conftest import contents

RUN = "demo/b77d9226"
MANIFEST = f"{RUN}/manifest.json"


@pytest.mark.parametrize("damage", ["changed", "shorter", "longer", "missing"])
def test_a_damaged_object_is_refused_by_pull_and_sent_again_by_push(
    place, run, command, tmp_path, damage
):
    command("push", run, place.url)
    whole = (run / "checkpoints" / "3.pt").read_bytes()
    name = f"{RUN}/objects/{hashlib.sha256(whole).hexdigest()}"
    if damage == "missing":
        place.remove(name)
    else:
        changed = bytes([whole[0] ^ 1]) + whole[1:]
        place.write(name, {"changed": changed, "shorter": whole[:-1], "longer": whole * 40}[damage])

    _, out, err = command("pull", "--runs", "back", f"{place.url}/{RUN}", code=2)
    assert not out and "is missing or damaged" in err and "3.pt" in err
    assert not (tmp_path / "back" / RUN).exists()

    assert "0.2 MB sent" in command("push", run, place.url).err
    command("pull", "--runs", "back", f"{place.url}/{RUN}")
    assert contents(tmp_path / "back" / RUN) == contents(run)


@pytest.fixture
def pull(folder, run, tmp_path, command):
    """Pull the run after its manifest was replaced by a text, or changed; returns the message.

    Nothing may appear but what the pull itself writes below `back`.
    """
    command("push", run, folder.url)

    def changed(change, code=2):
        if callable(change):
            document = json.loads(folder.read(MANIFEST))
            change(document)
            change = json.dumps(document).encode()
        folder.write(MANIFEST, change)
        before = sorted(os.listdir(tmp_path))
        words = ("pull", "--quiet", "--runs", "back", f"{folder.url}/{RUN}")
        err = command(*words, code=code).err
        assert set(os.listdir(tmp_path)) <= {*before, "back"}
        assert code == 0 or err.count("\n") == 1
        return err

    return changed


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 200_000, b"{}", b'{"kind": "other"}',
     b'{"schema": 1}', b"1" * 5000],
)  # fmt: skip
def test_a_text_that_is_no_manifest_is_never_overwritten(text, pull, folder, run, command):
    assert "is not the manifest of an archive" in pull(text)
    command("push", run, folder.url, code=2)
    assert folder.read(MANIFEST) == text


def test_a_huge_manifest_is_not_read_to_its_end(folder, run, command):
    command("push", run, folder.url)
    os.truncate(folder.path / MANIFEST, 2**40)  # a hole, which takes no room
    err = command("pull", "--runs", "back", f"{folder.url}/{RUN}", code=2).err
    assert "larger than 64 MiB" in err


HOSTILE = [
    "../escaped", "a/../../../escaped", "/tmp/escaped", "//tmp/escaped", "a//b", "a/./b", ".", "..",
    "", "a/", "nul\0byte", "x" * 5000, "a/" * 200 + "b", "\ud800", None, 3, ["a"],
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: repr(path)[:20])
def test_a_hostile_path_of_a_file_is_refused(path, pull, tmp_path):
    def change(document):
        document["files"][0]["path"] = path

    assert "its file" in pull(change)
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    "name",
    ["../../escaped", "/tmp/escaped", "demo", "demo/latest", "demo/.git", "demo/-x",
     "demo/a\x1b[2J", "demo/*", "a/b/c/d/e", "..", "", None],
)  # fmt: skip
def test_a_hostile_name_of_a_run_is_refused(name, pull, tmp_path):
    err = pull(lambda document: document.update(name=name))
    assert "its run's name" in err and "\x1b" not in err
    assert not (tmp_path / "back").exists()


FIELDS = [
    ("bytes", -1), ("bytes", True), ("bytes", 1.5), ("bytes", "1"), ("bytes", 2**63),
    ("sha256", "../manifest.json"), ("sha256", "A" * 64), ("sha256", 3), ("modified_ns", -(10**20)),
    ("modified_ns", 10**20), ("modified_ns", "now"), ("executable", 1), ("bytes", None),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), FIELDS)
def test_a_field_of_a_wrong_kind_or_range_is_refused(key, value, pull, tmp_path):
    def change(document):
        document["files"][0][key] = value

    assert "damaged" in pull(change)
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [("state", "running?"), ("identity", []), ("identity", {"commit": 1}), ("files", {}),
     ("files", [3]), ("left_out", None), ("schema", 2)],
)  # fmt: skip
def test_a_manifest_with_a_wrong_part_is_refused(key, value, pull):
    assert "damaged" in pull(lambda document: document.update({key: value}))


@pytest.mark.parametrize("path", ["config.yaml", "config.yaml/inner"])
def test_a_path_twice_or_as_file_and_folder_is_refused(path, pull, tmp_path):
    def change(document):
        document["files"].append(document["files"][0] | {"path": path})

    pull(change)
    assert not (tmp_path / "back").exists()


def test_more_bytes_than_the_disk_has_are_refused_before_a_transfer(pull, tmp_path):
    def change(document):
        document["files"][-1]["bytes"] = 2**62

    assert "make room" in pull(change)
    assert not any(path.suffix == ".pt" for path in (tmp_path / "back").rglob("*"))


def test_links_in_an_unfinished_pull_are_not_followed(pull, tmp_path):
    """Somebody else may have written into the runs folder."""
    outside = tmp_path / "home"
    (outside / "0.pt").write_text("mine")
    unfinished = tmp_path / "back" / "demo" / ".b77d9226.pulling" / "run"
    unfinished.mkdir(parents=True)
    (unfinished / "checkpoints").symlink_to(outside)
    (unfinished / "config.yaml").symlink_to(outside / "0.pt")
    pull(lambda document: None, code=0)
    assert contents(outside) == {b"0.pt": b"mine"}
    assert contents(tmp_path / "back" / RUN) == contents(tmp_path / "runs" / RUN)
