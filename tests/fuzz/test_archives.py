"""Damaged manifests of archives: pulled, or refused with a sentence; nothing beside is written."""

import hashlib
import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.limits import WORDS, bounded, changed, damaged, fuzzed
from zoerefine.base.run_dir import RunDir
from zoerefine.lab.archive.manifest import MANIFEST
from zoerefine.lab.archive.pull import pull
from zoerefine.lab.archive.push import push
from zoerefine.lab.archive.remote import Remote


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """An archive of two small files, alone in its parent, and its manifest."""
    folder = tmp_path_factory.mktemp("fuzz") / "all"
    run = folder / "runs" / "demo" / "c0ffee"
    (run / "left").mkdir(parents=True)
    (run / "provenance.json").write_text('{"commit": "c0ffee"}')
    (run / "left" / "a.txt").write_text("a")
    push(RunDir(run), Remote(str(folder / "archives")))
    place = folder / "archives" / "demo" / "c0ffee"
    return folder, place, (place / MANIFEST).read_bytes()


def pull_changed(archive, data):
    """Pull the archive with another manifest; every file has the digest that it states."""
    folder, place, _ = archive
    (place / MANIFEST).write_bytes(data)
    shutil.rmtree(folder / "back", ignore_errors=True)
    with bounded(folder):
        target = pull(Remote(str(place)), folder / "back")
        for file in json.loads(data)["files"]:
            content = (target / file["path"]).read_bytes()
            assert hashlib.sha256(content).hexdigest() == file["sha256"]
    assert {path.name for path in folder.iterdir()} - {"back"} == {"archives", "runs"}


@fuzzed
@given(data=st.data())
def test_a_damaged_manifest(archive, data):
    pull_changed(archive, data.draw(damaged(archive[2])))


@fuzzed
@given(data=st.data())
def test_a_manifest_with_other_values(archive, data):
    manifest = json.loads(archive[2])
    row = data.draw(st.sampled_from(range(len(manifest["files"]))))
    if data.draw(st.booleans()):
        manifest = data.draw(changed(manifest))
    else:
        manifest["files"][row] = data.draw(changed(manifest["files"][row]))
    pull_changed(archive, json.dumps(manifest).encode())


@fuzzed
@given(parts=st.lists(st.sampled_from([*WORDS, "..", ".", "a", "left"]), max_size=5))
def test_a_manifest_with_another_path(archive, parts):
    manifest = json.loads(archive[2])
    manifest["files"][0]["path"] = "/".join(parts)
    pull_changed(archive, json.dumps(manifest).encode())
