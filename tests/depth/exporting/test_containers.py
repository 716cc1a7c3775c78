"""The file formats of bundles: one manifest and one face, and no altered byte is accepted."""

import shutil
import sys

import numpy as np
import pytest

from tests.processes import CHECKOUT, run_program
from zoerefine.base.errors import UserError
from zoerefine.base.run_dir import BUNDLE_NAMES
from zoerefine.depth.exporting.bundle import bundle as bundles
from zoerefine.depth.exporting.bundle.containers import CONTAINERS, container_of
from zoerefine.depth.exporting.engine_kinds import engine_kind

KINDS = ["torchscript", "openvino", "onnx", "aoti"]  # one for each container
WITHOUT_TORCHSCRIPT = "tests.depth.exporting.without_torchscript"


@pytest.fixture(scope="module")
def paths(request, builder, tmp_path_factory):
    """A bundle of each container by its kind; their files have no suffix."""
    folder, found = tmp_path_factory.mktemp("containers"), {}
    for name in KINDS:
        kind = engine_kind(name)
        if kind.missing_requirement():
            continue
        is_aoti = name == "aoti"
        made = request.getfixturevalue("aoti_bundle") if is_aoti else builder.bundle(kind, "fp32")
        found[name] = folder / name
        shutil.copyfile(made, found[name])
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
    engine = bundles.load_bundle(bundle)
    assert engine.manifest["engine"] == bundle.name
    assert container_of(bundle.read_bytes()) is engine_kind(bundle.name).CONTAINER
    depth, spread = engine.arrays(*frames(2, 30, 40))
    assert depth.shape == spread.shape == (2, 30, 40)


def test_a_file_that_takes_the_place_of_a_verified_bundle_is_not_read(
    bundle, tmp_path, frames, monkeypatch
):
    """It comes between the verification and the load, and again before the first picture."""
    path = tmp_path / "replaced"
    shutil.copyfile(bundle, path)
    kind, wanted = engine_kind(bundle.name), bundles.load_bundle(bundle)
    facts = kind.machine_facts()

    def replace():
        (tmp_path / "other").write_bytes(b"no bundle at all")
        (tmp_path / "other").replace(path)
        return facts

    monkeypatch.setattr(kind, "machine_facts", replace)
    engine = bundles.load_bundle(path)
    assert path.read_bytes() == b"no bundle at all"
    assert engine.digest == wanted.digest
    inputs = frames(1, 24, 32)
    np.testing.assert_array_equal(engine(*inputs), wanted(*inputs))


def flips_in(data):
    """Places and bits: random ones, both ends, all headers, each bit of the manifest's."""
    rng = np.random.default_rng(0)
    places = {*rng.integers(0, len(data), 200), *range(40), *range(len(data) - 200, len(data), 3)}
    for signature in (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"):
        start = -1
        while (start := data.find(signature, start + 1)) >= 0:
            places |= set(range(start, min(start + 60, len(data)), 7))
    yield from ((place, number % 8) for number, place in enumerate(sorted(map(int, places))))
    listed, local = data.rfind(b"PK\x01\x02", 0, data.rfind(b"manifest.json")), -1
    if listed >= 0:
        local = data.rfind(b"PK\x03\x04", 0, data.rfind(b"manifest.json", 0, listed))
        yield from ((start + bit // 8, bit % 8) for start, length in ((listed, 46), (local, 30))
                    for bit in range(8 * length))  # fmt: skip


def test_a_changed_bit_or_byte_anywhere_is_refused_before_anything_is_loaded(
    bundle, tmp_path, monkeypatch
):
    monkeypatch.setattr(engine_kind(bundle.name), "load", None)  # calling it would be a TypeError
    data, path = bundle.read_bytes(), tmp_path / "changed"

    def is_refused(changed):
        path.write_bytes(changed)
        with pytest.raises(UserError, match=r"engine bundle|altered|schema|has no"):
            bundles.load_bundle(path)

    for place, bit in flips_in(data):
        flipped = bytearray(data)
        flipped[place] ^= 1 << bit
        is_refused(flipped)
    for changed in (data + b"0", data[:-1], data[:1000] + b"0" + data[1000:]):
        is_refused(changed)


def test_a_copy_has_other_facts_and_files_and_the_same_engine(bundle, tmp_path, frames):
    first, copy = tmp_path / "first", tmp_path / "copy"  # the second time, both are replaced
    bundles.copy_bundle(bundles.read_bundle(bundle), first, {"commit": "c1"}, {"note.txt": b"1"})
    bundles.copy_bundle(bundles.read_bundle(first), copy, {"commit": "c2"}, {"note.txt": b"2"})
    manifest = bundles.read_manifest(copy)
    assert (manifest["commit"], bundles.read_bundle(copy).file("note.txt")) == ("c2", b"2")
    assert manifest["digest"] != bundles.read_manifest(bundle)["digest"]
    assert bundles.read_bundle(copy).find_file("absent.txt") is None
    inputs = frames(1, 24, 32)
    np.testing.assert_array_equal(
        bundles.load_bundle(copy)(*inputs), bundles.load_bundle(bundle)(*inputs)
    )


def test_without_torchscript_the_other_kinds_export_and_run(paths, tmp_path):
    """torch.jit's functions are patched to raise, in a process of its own.

    The bundle of aoti was built and run in such a process, too. The kind torchscript comes last:
    it cannot hide from that check.
    """
    kinds = [name for name in paths if name not in ("torchscript", "aoti")]
    program = [sys.executable, "-W", "ignore", "-m", WITHOUT_TORCHSCRIPT]
    done = run_program([*program, tmp_path, *kinds, "torchscript"], code=1, cwd=CHECKOUT)
    assert done.stdout.split() == kinds, done.stderr[-2000:]
    assert "TorchScript is used" in done.stderr


def test_a_folder_stands_for_the_bundle_that_was_exported_last(run, command):
    last = run.engine / "refiner.openvino"
    last.write_bytes(run.bundle.read_bytes())
    run.exported_file.write_text(f"{last.name}\n")
    assert bundles.bundle_of(run.path) == bundles.bundle_of(run.engine) == last
    assert bundles.read_manifest(last)["engine"] == "torchscript"
    done = command("show", run.engine)
    assert f"using {last}" in done.err
    assert f"bundle      {last}" in done.out
    assert f"zoerefine show {last}" in command("show", run.path).out
    done = command("infer", run.path.parent, "--rgb", "a", "--out", "b", code=2)
    assert "zoerefine export" in done.err
