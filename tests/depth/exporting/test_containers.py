"""The file formats of bundles: one manifest and one face, and no altered byte is accepted."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import BUNDLE_NAMES
from zoerefine.depth.exporting.bundle.bundle import (
    bundle_of,
    copy_bundle,
    load_bundle,
    read_bundle,
    read_manifest,
    save_bundle,
)
from zoerefine.depth.exporting.bundle.containers import CONTAINERS, container_of
from zoerefine.depth.exporting.engine_kinds import EngineKind, engine_kind
from zoerefine.depth.exporting.source import ExportSource
from zoerefine.depth.model import build_refiner

KINDS = ["torchscript", "openvino", "onnx", "aoti"]  # one for each container
WITHOUT_TORCHSCRIPT = Path(__file__).with_name("run_without_torchscript.py")


def make_source():
    """A refiner with random weights, for pictures of 24x32."""
    refiner = build_refiner({"NAME": "small", "BASE": 4, "MAX_LOG": 1.0, "CONFIDENCE": True})
    refiner.trained.fill_(True)
    return ExportSource(refiner.eval(), 24, 32, lambda: iter(()))


@pytest.fixture(scope="module")
def paths(request, tmp_path_factory):
    """A bundle of each container by its kind; their files have no suffix."""
    folder, found = tmp_path_factory.mktemp("containers"), {}
    for name in KINDS:
        kind = engine_kind(name)
        if kind.missing_requirement():
            continue
        if name == "aoti":
            shutil.copyfile(request.getfixturevalue("aoti_bundle"), folder / name)
        else:
            manifest = {"engine": name, "precision": "fp32", "run": "abc", "torch": "2"}
            save_bundle(kind.build(make_source(), "fp32"), manifest, folder / name)
        found[name] = folder / name
    return found


@pytest.fixture(params=KINDS)
def bundle(request, paths):
    """The bundle of each container."""
    if request.param not in paths:
        pytest.skip(engine_kind(request.param).missing_requirement())
    return paths[request.param]


def test_every_container_has_a_kind_here_and_a_name_in_a_run():
    used = {engine_kind(name).CONTAINER.suffix for name in KINDS}
    assert used == {one.suffix for one in CONTAINERS}
    assert set(BUNDLE_NAMES) == {f"refiner{suffix}" for suffix in used}


def test_a_bundle_is_recognised_by_its_content(bundle, frames):
    engine = load_bundle(bundle)
    assert engine.manifest["engine"] == bundle.name
    assert container_of(bundle.read_bytes()) is engine_kind(bundle.name).CONTAINER
    depth, spread = engine.with_confidence(*frames(2, 30, 40))
    assert depth.shape == spread.shape == (2, 30, 40)


def test_a_file_that_takes_the_place_of_a_verified_bundle_is_not_read(
    bundle, tmp_path, frames, monkeypatch
):
    """It comes between the verification and the load, and again before the first picture."""
    path = tmp_path / "replaced"
    shutil.copyfile(bundle, path)
    kind, wanted = engine_kind(bundle.name), load_bundle(bundle)
    facts = kind.machine_facts()

    def replace():
        (tmp_path / "other").write_bytes(b"no bundle at all")
        (tmp_path / "other").replace(path)
        return facts

    monkeypatch.setattr(kind, "machine_facts", replace)
    engine = load_bundle(path)
    assert path.read_bytes() == b"no bundle at all"
    assert engine.digest == wanted.digest
    inputs = frames(1, 24, 32)
    np.testing.assert_array_equal(engine(*inputs), wanted(*inputs))


def places_in(data):
    """Places all over a file: random ones, both ends, and, of an archive, all of its headers."""
    rng = np.random.default_rng(0)
    places = {*rng.integers(0, len(data), 200), *range(40), *range(len(data) - 200, len(data), 3)}
    for signature in (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"):
        start = -1
        while (start := data.find(signature, start + 1)) >= 0:
            places |= set(range(start, min(start + 60, len(data)), 7))
    return sorted(map(int, places))


def test_a_flipped_bit_in_the_headers_of_the_manifest_is_refused(bundle, tmp_path):
    data, path = bundle.read_bytes(), tmp_path / "flipped"
    name, headers = b"manifest.json", {b"PK\x01\x02": 46, b"PK\x03\x04": 30}
    starts = [data.rfind(one, 0, data.rfind(name, 0, end)) for one, end in zip(
        headers, (len(data), data.rfind(name)), strict=True)]  # fmt: skip
    for start, length in zip(starts, headers.values(), strict=True):
        for bit in range(8 * length if start >= 0 else 0):
            flipped = bytearray(data)
            flipped[start + bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            with pytest.raises(UserError, match=r"engine bundle|altered|schema|has no"):
                load_bundle(path)


def test_a_flipped_bit_anywhere_is_refused_before_anything_is_loaded(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(engine_kind(bundle.name), "load", None)  # calling it would be a TypeError
    data, path = bundle.read_bytes(), tmp_path / "flipped"
    for number, place in enumerate(places_in(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << number % 8
        path.write_bytes(flipped)
        with pytest.raises(UserError, match=r"engine bundle|altered|schema|has no"):
            load_bundle(path)


@pytest.mark.parametrize("change", ["added", "cut", "between"])
def test_added_and_missing_bytes_are_refused(bundle, tmp_path, change):
    data, path = bundle.read_bytes(), tmp_path / "changed"
    between = data[:1000] + b"0" + data[1000:]
    path.write_bytes({"added": data + b"0", "cut": data[:-1], "between": between}[change])
    with pytest.raises(UserError, match=r"altered|damaged"):
        read_manifest(path)


def test_a_copy_has_other_facts_and_files_and_the_same_engine(bundle, tmp_path, frames):
    copy = tmp_path / "copy"
    for number in (1, 2):  # the second time, both are replaced
        source = bundle if number == 1 else tmp_path / "copy 1"
        copy = tmp_path / f"copy {number}"
        copy_bundle(
            read_bundle(source), copy, {"commit": f"c{number}"}, {"note.txt": b"%d" % number}
        )
    manifest = read_manifest(copy)
    assert (manifest["commit"], read_bundle(copy).file("note.txt")) == ("c2", b"2")
    assert manifest["digest"] != read_manifest(bundle)["digest"]
    assert read_bundle(copy).find_file("absent.txt") is None
    inputs = frames(1, 24, 32)
    np.testing.assert_array_equal(load_bundle(copy)(*inputs), load_bundle(bundle)(*inputs))


def test_a_compressed_manifest_is_refused_unread(tmp_path):
    """A small file could expand without end."""
    path = tmp_path / "bomb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("engine.xml", "")
        archive.writestr("manifest.json", "{}")
    with pytest.raises(UserError, match=r"damaged engine bundle \(manifest.json is compressed\)"):
        read_manifest(path)


def test_without_torchscript_the_other_kinds_export_and_run(paths):
    """torch.jit's functions are patched to raise, in a process of its own.

    The bundle of aoti was built and run in such a process, too.
    """
    kinds = [name for name in paths if name not in ("torchscript", "aoti")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", WITHOUT_TORCHSCRIPT, *kinds],
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == kinds, done.stderr[-2000:]


def test_torchscript_cannot_hide_from_that_check():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", WITHOUT_TORCHSCRIPT, "torchscript"],
        capture_output=True,
        text=True,
    )
    assert "TorchScript is used" in done.stderr


def test_a_folder_stands_for_the_bundle_that_was_exported_last(run, command):
    older = run.engine / "refiner.openvino"
    older.write_bytes(run.bundle.read_bytes())  # newer than refiner.ts
    assert bundle_of(run.path) == bundle_of(run.engine) == older
    assert read_manifest(older)["engine"] == "torchscript"
    done = command("show", run.engine)
    assert f"using {older}" in done.err
    assert f"bundle      {older}" in done.out
    assert f"zoerefine show {older}" in command("show", run.path).out
    assert "zoerefine export" in command("infer", run.path.parent, "--rgb", "a", "--out", "b").err


def test_the_face_of_a_kind_is_documented():
    assert {"CONTAINER", "GRAPHS", "TAKES_ARRAYS"} <= set(EngineKind.__annotations__)
