"""Packing: the right values, modes, resumes, changes, too little disk, and damaged input."""

import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.depth.data.conftest import build
from tests.processes import ended, kills, run_program
from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import digest_json
from zoerefine.base.files.images import write_png
from zoerefine.base.machine.memory import PAGE
from zoerefine.depth.data.cache.cache import (
    BROKEN,
    PACKED,
    SCHEMA,
    TABLE_DIGEST,
    open_cache,
    read_header,
    write_header,
)
from zoerefine.depth.data.cache.decode import read_frame
from zoerefine.depth.data.cache.frame_packer import FramePacker
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.cache.partial import PartialCache
from zoerefine.depth.data.depth_codec import HABITATDYN
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.data.loading.loader import Loader
from zoerefine.depth.data.loading.sampler import OrderOptions, Sampler
from zoerefine.depth.training.job import run_training

KILLS = kills(3)


def frames_of(root):
    return open_dataset(root).frames


# The packed values against a reference: decoded by Pillow, averaged in float64.


def areas(old, new):
    """The matrix [new, old] that averages the old cells that each new cell covers."""
    edges = np.arange(new + 1) * (old / new)
    left, right = edges[:-1, None], edges[1:, None]
    cells = np.arange(old)[None]
    overlap = np.minimum(right, cells + 1) - np.maximum(left, cells)
    return overlap.clip(0) * (new / old)


def reduced(values, height, width):
    rows, columns = areas(values.shape[0], height), areas(values.shape[1], width)
    taller = np.tensordot(rows, values.astype(np.float64), 1)  # [y, w, ...]
    return np.moveaxis(np.tensordot(columns, taller, (1, 1)), 0, 1)


def reference_depth(values, height, width):
    share = reduced(values > 0, height, width)
    total = reduced(values, height, width)
    return np.where(share >= 0.5 - 1e-9, total / share.clip(1e-9), 0)


@pytest.mark.parametrize("size", [(192, 256), (96, 128), (180, 320)])
def test_packed_values_equal_a_float64_reference(tmp_path, size):
    rng = np.random.default_rng(0)
    folder = tmp_path / "frames"
    folder.mkdir()
    rgb = cv2.resize(rng.integers(0, 256, (30, 40, 3), np.uint8), (640, 480))
    Image.fromarray(rgb).save(folder / "a.jpg", quality=95)
    depth = rng.integers(1, 65536, (480, 640), np.uint16) * (rng.random((480, 640)) < 0.6)
    zoe = np.sort(rng.integers(1, 65536, (480, 640), np.uint16), 1)
    for name, values in (("d", depth.astype(np.uint16)), ("z", zoe)):
        Image.fromarray(values).save(folder / f"{name}.png")
    (folder / "frames.csv").write_text("clip,rgb,depth,pseudo\nk,a.jpg,d.png,z.png\n")
    record = build_cache(open_dataset(folder), *size, tmp_path / "caches").read(0)
    decoded = np.asarray(Image.open(folder / "a.jpg"))
    # Two JPEG decoders may differ by one level, rounding by a half.
    assert np.abs(record["rgb"] - reduced(decoded, *size)).max() <= 1.5
    for name, values in (("depth", depth), ("zoe", zoe)):
        expected = reference_depth(values, *size)
        np.testing.assert_array_equal(record[name] > 0, np.rint(expected) > 0)
        assert np.abs(record[name] - expected).max() <= 0.51, name


# The modes


def read_all(cache):
    sampler = Sampler(cache, cache.indices(cache.scenes), 5, 0, OrderOptions())
    loader = Loader(cache, sampler, 2)
    return {int(i): row.clone() for b in loader for i, row in zip(b.index, b.rows, strict=True)}


@pytest.mark.parametrize("mode", ["fill", "off", "rebuild"])
def test_every_mode_gives_the_same_records(world, packed, tmp_path, mode):
    expected = read_all(packed)
    cache = build(world, tmp_path / mode, mode=mode)
    for _ in range(2):
        found = read_all(cache)
        assert found.keys() == expected.keys()
        assert all((found[i] == expected[i]).all() for i in found)
    assert cache.dataset_digest == packed.dataset_digest
    assert bool(list((tmp_path / mode).glob("*/cache.json"))) == (mode != "off")
    for name in ("records.bin", "frames.npy") if mode != "off" else ():
        assert (cache.folder / name).read_bytes() == (packed.folder / name).read_bytes()


def test_records_are_written_and_copied_through_aligned_memory(copied_world, tmp_path, monkeypatch):
    offsets, write = [], PartialCache._write

    def noted(self, index, record, state):
        offsets.append(record.ctypes.data % PAGE)
        write(self, index, record, state)

    monkeypatch.setattr(PartialCache, "_write", noted)
    build(copied_world, tmp_path)
    frames_of(copied_world)[0].zoe.write_bytes(frames_of(copied_world)[1].zoe.read_bytes())
    build(copied_world, tmp_path)  # copies 15 records and packs one
    assert offsets == [0] * 32


def test_filling_resumes_and_keeps_its_order_when_it_is_done(copied_world, tmp_path):
    path = frames_of(copied_world)[3].depth
    path.write_bytes(b"")
    with pytest.raises(UserError, match="1 of 16 frames cannot be packed"):
        read_all(build(copied_world, tmp_path / "strict", mode="fill"))
    cache = build(copied_world, tmp_path / "c", mode="fill", max_broken=0.1)
    records = np.empty((2, cache.stride // 8), np.int64)
    cache.records.gather(np.array([0, 5]), records)
    again = build(copied_world, tmp_path / "c", mode="fill", max_broken=0.1)
    assert (again.frames["state"] == 1).sum() == 2
    assert len(read_all(again)) == 16  # with the broken frame, whose record is all zeros
    filled = build(copied_world, tmp_path / "c", mode="fill", max_broken=0.1)
    assert len(filled.indices(filled.scenes)) == 16
    assert not filled.read(3)["depth"].any()
    packed = build(copied_world, tmp_path / "c", max_broken=0.1)
    assert len(packed.indices(packed.scenes)) == 15
    assert str(path) in (packed.folder / "broken.json").read_text()


def test_training_is_bit_exact_in_every_mode(tiny):
    digests = {}
    for mode in ("build", "fill", "off"):
        cfg = load_config(tiny, ["RUN.NAME", mode, "CACHE.MODE", mode, "CACHE.ROOT", mode])
        run = run_training(cfg)
        digests[mode] = (run.weights_digest_file.read_text(),
                         run.read_json(run.results_file)["data_digest"],
                         run.read_json(run.provenance_file)["dataset_digest"])  # fmt: skip
    assert digests["build"] == digests["fill"] == digests["off"]


def test_only_what_changed_is_packed_again(copied_world, tmp_path, capsys):
    first = build(copied_world, tmp_path / "c")
    frames = frames_of(copied_world)
    changed, added, removed = frames[2], frames[5], frames[9]
    changed.zoe.write_bytes(frames[3].zoe.read_bytes())
    for path in added.files.values():
        shutil.copyfile(path, path.with_stem("90009"))
    for path in removed.files.values():
        path.unlink()
    # A frame that is decoded again is broken now.
    for frame in frames_of(copied_world):
        if frame.name not in (changed.name, "90009"):
            spoil(frame.rgb)
    second = build(copied_world, tmp_path / "c", max_broken=0.5)
    assert "copying 14 of 16 frames, unchanged since" in capsys.readouterr().err
    assert second.folder != first.folder
    names = {second.frame_name(i): i for i in second.indices(second.scenes)}
    for i in range(len(first)):
        name = first.frame_name(i)
        if frames[i] in (changed, removed):
            continue
        np.testing.assert_array_equal(second.read(names[name])["rgb"], first.read(i)["rgb"])


def exchange(path, other):
    """Put a copy of another file in the place of one; returns what brings the first one back."""
    away = path.with_suffix(".away")
    path.rename(away)
    shutil.copyfile(other, path)
    return lambda: away.replace(path)


@pytest.mark.parametrize("mode", ["fill", "off"])
def test_a_file_that_is_exchanged_after_the_data_set_was_opened_is_not_packed(
    copied_world, packed, tmp_path, mode
):
    """Also if the first one comes back later, with its old time."""
    cache = build(copied_world, tmp_path, mode=mode)
    row = np.empty((1, cache.stride // 8), np.int64)
    frames = frames_of(copied_world)
    for field in ("rgb", "depth", "zoe", "objects"):
        bring_back = exchange(getattr(frames[2], field), getattr(frames[3], field))
        with pytest.raises(UserError, match=r"has changed since the data set was opened"):
            cache.records.gather(np.array([2]), row)
        bring_back()
    cache.records.gather(np.array([2]), row)
    again = build(copied_world, tmp_path)
    np.testing.assert_array_equal(again.read(2)["rgb"], packed.read(2)["rgb"])


def test_a_file_that_is_exchanged_only_while_it_is_decoded_is_not_packed(
    copied_world, tmp_path, monkeypatch
):
    other = tmp_path / "other.jpg"  # a copy: another thread exchanges every frame's file
    shutil.copy(frames_of(copied_world)[3].rgb, other)

    def read_another(frame, *options):
        bring_back = exchange(frame.rgb, other)
        try:
            return read_frame(frame, *options)
        finally:
            bring_back()

    monkeypatch.setattr("zoerefine.depth.data.cache.decode.read_frame", read_another)
    with pytest.raises(UserError, match=r"has changed since the data set was opened"):
        build(copied_world, tmp_path, max_broken=1.0)


def test_a_file_that_is_listed_in_another_column_is_packed_again(copied_world, tmp_path):
    """As after a correction of frames.csv: the file's name, size and time are the same."""
    frame = frames_of(copied_world)[0]
    shutil.copy(frame.zoe, tmp_path / "z.png")
    rgb, depth = (path.relative_to(tmp_path) for path in (frame.rgb, frame.depth))
    rows = [f"a,{rgb},{depth},,z.png", f"a,{rgb},{depth},z.png,"]
    found = []
    for row in rows:
        text = f"clip,rgb,depth,pseudo,objects,depth_unit_m\n{row},0.04\n"
        (tmp_path / "frames.csv").write_text(text)
        found.append(build(tmp_path, tmp_path / "c", max_broken=1.0))
    assert [cache.frames["state"][0] for cache in found] == [BROKEN, PACKED]
    assert found[0].folder != found[1].folder


def listed_clips(root, files, names):
    """A frames.csv of scenes a and b, each a clip; the letter of each frame's clip in `names`."""
    rows = [",".join([clip, *paths, "0.04"]) for clip, paths in zip(names, files, strict=True)]
    (root / "frames.csv").write_text("\n".join(["clip,rgb,depth,pseudo,depth_unit_m", *rows]))
    return build(root, root / "c")


def test_a_frame_that_is_listed_in_another_clip_is_packed_again(copied_world, tmp_path, capsys):
    """Its files and its place among the frames are the same, but its scene is another one."""
    files = [
        [str(path.relative_to(tmp_path)) for path in list(frame.files.values())[:3]]
        for frame in frames_of(copied_world)[:4]
    ]
    first, second = (listed_clips(tmp_path, files, names) for names in ("aabb", "abbb"))
    assert [second.frame_name(i).split("/")[0] for i in range(4)] == ["a", "b", "b", "b"]
    assert second.indices(("b",)).tolist() == [1, 2, 3]
    assert first.dataset_digest != second.dataset_digest
    assert "copying 4 of 4 frames" in capsys.readouterr().err
    assert listed_clips(tmp_path, files, "aabb").folder == first.folder


@pytest.mark.parametrize(
    ("column", "here", "there"),
    [("depth_unit_m", "0.002", "0.001"), ("classes", "dog", "cat"), ("speed", "1", "2")],
)
def test_data_of_another_unit_class_or_speed_have_another_digest(
    copied_world, tmp_path, column, here, there
):
    """The stored bytes are the same; the metres, or the groups of the figures, are not."""
    frame = frames_of(copied_world)[0]
    rgb, zoe = (path.relative_to(tmp_path) for path in (frame.rgb, frame.zoe))
    caches = []
    for value in (here, there, here):
        table = f"clip,rgb,depth,pseudo,{column}\nk,{rgb},{zoe},{zoe},{value}\n"
        (tmp_path / "frames.csv").write_text(table)
        caches.append(build(tmp_path, tmp_path / "c"))
    first, second, third = caches
    assert first.records_digest == second.records_digest
    assert first.dataset_digest != second.dataset_digest
    assert (first.folder, first.dataset_digest) == (third.folder, third.dataset_digest)


def test_where_folders_tell_the_clips_a_cache_of_before_is_used(copied_world, tmp_path):
    """The digest then is of settings, clips and files, as in caches without the frames' clips."""
    packer = FramePacker(open_dataset(copied_world), 24, 32, 1, 0.0)
    clips = [dataclasses.asdict(clip) for clip in packer.dataset.clips]
    files = hashlib.sha256(packer.dataset.fingerprints().tobytes()).hexdigest()
    pseudo = packer.pseudo.as_json()
    assert packer.digest == digest_json([SCHEMA, packer.settings, clips, files, pseudo])[:16]


def test_a_cache_of_before_with_frames_in_other_clips_is_refused_until_it_is_packed_again(
    copied_world, packed, tmp_path
):
    folder = build(copied_world, tmp_path).folder
    frames = np.load(folder / "frames.npy")
    frames["clip"][3] = 1
    np.save(folder / "frames.npy", frames)
    header = read_header(folder)
    write_header(folder, {name: header[name] for name in header if name != TABLE_DIGEST})
    with pytest.raises(
        UserError, match=r"its frames were listed in other clips: CACHE.MODE rebuil"
    ):
        build(copied_world, tmp_path)
    again = build(copied_world, tmp_path, mode="rebuild")
    assert again.frame_name(3) == build(copied_world, tmp_path).frame_name(3)
    assert again.frame_name(3) == packed.frame_name(3)


def test_a_cache_of_an_earlier_version_is_left_alone_and_packed_anew_with_one_line(
    world, packed, tmp_path, capsys
):
    old = tmp_path / "0123456789abcdef"
    shutil.copytree(packed.folder, old)
    header = json.loads((old / "cache.json").read_text())
    (old / "cache.json").write_text(json.dumps(header | {"schema": 4}))
    cache = build(world, tmp_path)
    assert cache.folder.name == packed.folder.name
    [line] = [line for line in capsys.readouterr().err.splitlines() if "0123456789abcdef" in line]
    assert "is of another version (schema 5 is needed)" in line
    with pytest.raises(UserError, match=r"is of another version \(schema 5 is needed\): delete it"):
        open_cache(old)


def spoil(path):
    """Overwrite a file's bytes but keep its size and time."""
    stat = path.stat()
    path.write_bytes(b"\0" * stat.st_size)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_a_partial_cache_with_a_damaged_record_is_packed_to_the_same_bytes(world, packed, tmp_path):
    cache = build(world, tmp_path, mode="fill")
    cache.records.gather(np.arange(5), np.empty((5, cache.stride // 8), np.int64))
    with open(tmp_path / f"{packed.folder.name}.partial" / "records.bin", "r+b") as file:
        file.seek(2 * packed.stride)
        file.write(b"damage")
    again = build(world, tmp_path)
    for name in ("records.bin", "frames.npy"):
        assert (again.folder / name).read_bytes() == (packed.folder / name).read_bytes()


def test_a_packed_cache_is_opened_without_writing_anything(world, tmp_path):
    folder = build(world, tmp_path).folder
    (tmp_path / f"{folder.name}.lock").unlink()
    before = sorted(tmp_path.rglob("*"))
    tmp_path.chmod(0o500)
    try:
        assert build(world, tmp_path).folder == folder
    finally:
        tmp_path.chmod(0o700)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_build_leaves_no_file_open(world, tmp_path):
    program = (
        "from zoerefine.depth.data.layouts.readers import open_dataset\n"
        "from zoerefine.depth.data.cache.pack import build_cache\n"
        "from pathlib import Path\n"
        f"build_cache(open_dataset({str(world)!r}), 24, 32, Path({str(tmp_path)!r}))\n"
    )
    done = run_program([sys.executable, "-W", "error::ResourceWarning", "-c", program])
    assert "ResourceWarning" not in done.stderr, done.stderr


def test_too_little_disk_space_is_an_error_before_anything_is_written(world, tmp_path):
    with pytest.raises(UserError, match=r"packing 16 frames needs [\d.,]+ MiB, and .* has .* left"):
        build_cache(open_dataset(world), 100_000, 100_000, tmp_path / "c")
    assert not [path for path in (tmp_path / "c").rglob("*") if path.name == "records.bin"]


SLOW_BUILD = """
import sys, time
from pathlib import Path
from zoerefine.depth.data.cache import decode
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.cache.partial import PartialCache
from zoerefine.depth.data.layouts.readers import open_dataset

read_frame = decode.read_frame

def slow(*words):
    time.sleep(float(sys.argv[3]))
    return read_frame(*words)

decode.read_frame = slow
build_cache(open_dataset(sys.argv[1]), 192, 256, Path(sys.argv[2]), 2)
"""


def test_what_a_killed_build_left_half_written_gets_into_no_cache(world, packed, tmp_path):
    partial = tmp_path / f"{packed.digest}.partial"
    partial.mkdir()
    (partial / ".frames.npy.0123abcd.tmp").write_bytes(b"half")
    assert not list(build(world, tmp_path).folder.glob(".frames*"))


def test_killed_builds_resume_to_the_same_bytes(world, tmp_path):
    command = [sys.executable, "-c", SLOW_BUILD, world]
    killed = 0
    expected = build_cache(open_dataset(world), 192, 256, tmp_path / "not killed", 2).folder
    rng = np.random.default_rng(0)
    for kill in range(KILLS):
        place = tmp_path / f"killed-{kill // 3}"  # up to three kills of one build
        builder = subprocess.Popen([*command, place, "0.1"], stderr=subprocess.DEVNULL)
        while builder.poll() is None and not list(place.glob("*.partial")):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.25))  # a whole build takes 0.8 s
        builder.send_signal(signal.SIGKILL)
        ended(builder, "pack")
        killed += builder.returncode == -signal.SIGKILL
    assert killed
    for place in tmp_path.glob("killed-*"):
        subprocess.run([*command, place, "0"], check=True, capture_output=True)
        built = next(place.glob("*/cache.json")).parent
        for name in ("records.bin", "frames.npy", "cache.json"):
            assert (built / name).read_bytes() == (expected / name).read_bytes(), name
        assert not list(place.glob("*.partial"))
        open_cache(built)


# Damaged input: each kind is left out, and named.


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-200])


def of_pixels(pixels):
    return lambda path: cv2.imwrite(str(path), pixels)


COLOURS = np.arange(48 * 64 * 3, dtype=np.uint8).reshape(48, 64, 3)
DAMAGES = {
    "truncated": ("rgb", cut_short, "cut short"),
    "eight bits": ("zoe", of_pixels(np.ones((48, 64), np.uint8)), "has 8 bits"),
    "another size": ("zoe", of_pixels(np.ones((40, 64), np.uint16)), "differ in size"),
    "no bytes": ("depth", lambda path: path.write_bytes(b""), "0 bytes"),
    "a folder": ("depth", lambda path: path.unlink() or path.mkdir(), "cannot be read: Is a dir"),
    "a loop": ("objects", lambda path: path.unlink() or path.symlink_to(path), "symbolic links"),
    "no file": ("rgb", lambda path: path.unlink() or path.symlink_to("away.jpg"), "No such file"),
    "text": ("depth", lambda path: path.write_text("404: not found\n"), "no JPEG or PNG"),
    "colours": ("depth", of_pixels(COLOURS), "expected one channel"),
    "flipped bits": ("zoe", flip, "damaged picture"),
    "missing": ("zoe", lambda path: path.unlink(), "no pseudo depth"),
    "forbidden": ("rgb", lambda path: path.chmod(0), "Permission denied"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_and_left_out(copied_world, tmp_path, damage):
    if damage == "forbidden" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    field, change, words = DAMAGES[damage]
    frame = frames_of(copied_world)[6]
    path = getattr(frame, field)
    name = f"frame {frame.name} of clip {frame.clip}" if damage == "missing" else str(path)
    change(path)
    with pytest.raises(UserError, match=f"1 of 16 frames cannot be packed.*{words}") as fault:
        build(copied_world, tmp_path / "strict")
    assert name in str(fault.value)
    cache = build(copied_world, tmp_path / "c", max_broken=0.1)
    usable = cache.indices(cache.scenes)
    assert len(usable) == 15 and 6 not in usable
    assert not cache.read(6)["rgb"].any()
    assert name in (cache.folder / "broken.json").read_text()


@pytest.mark.parametrize("mode", ["build", "fill"])
def test_a_packed_cache_with_more_broken_frames_than_allowed_is_refused(
    copied_world, tmp_path, mode
):
    """As packing would be: what an earlier command allowed does not count."""
    for frame in frames_of(copied_world)[3:5]:
        frame.depth.write_bytes(b"")
    with pytest.raises(UserError) as refused:
        build(copied_world, tmp_path / "strict", max_broken=0.1)
    assert str(refused.value).startswith("2 of 16 frames cannot be packed, more than DATA.MAX_BROK")
    folder = build(copied_world, tmp_path, max_broken=0.125).folder
    with pytest.raises(UserError) as later:
        build(copied_world, tmp_path, max_broken=0.1, mode=mode)
    assert str(later.value).startswith(str(refused.value))
    assert f"when {folder} was packed" in str(later.value)
    assert build(copied_world, tmp_path, max_broken=0.125, mode=mode).folder == folder
    (folder / "broken.json").unlink()
    with pytest.raises(
        UserError, match=r"2 of 16 frames cannot be packed.*the first: frame .*00003"
    ):
        build(copied_world, tmp_path, max_broken=0.1, mode=mode)


def test_broken_frames_that_other_processes_found_count_when_a_filled_cache_is_published(
    copied_world, tmp_path
):
    for frame in frames_of(copied_world)[3:5]:
        frame.depth.write_bytes(b"")
    first, second = (build(copied_world, tmp_path, max_broken=0.1, mode="fill") for _ in range(2))
    row = np.empty((1, first.stride // 8), np.int64)
    first.records.gather(np.array([3]), row)
    with pytest.raises(UserError, match="2 of 16 frames cannot be packed"):
        read_all(second)
    assert not list(tmp_path.glob("*/cache.json"))


def test_file_names_may_have_characters_beyond_ascii(tmp_path, world):
    frame = frames_of(world)[0]
    folder = tmp_path / "größe 米"
    folder.mkdir()
    names = "été.jpg", "tiefe-é.png", "偽.png"
    for source, name in zip(list(frame.files.values())[:3], names, strict=True):
        shutil.copy(source, folder / name)
    write_png(folder / "tiefe-é.png", np.full((48, 64), 2000, np.uint16))
    text = "clip,rgb,depth,pseudo\nküche,été.jpg,tiefe-é.png,偽.png\n"
    (folder / "frames.csv").write_text(text, encoding="utf-8")
    cache = build(folder, tmp_path / "c")
    assert cache.frame_name(0) == "küche/küche/été"
    expected = read_frame(frame, HABITATDYN, 24, 32)["rgb"]
    np.testing.assert_array_equal(cache.read(0)["rgb"], expected)


def test_inspect_reads_every_frame_and_names_files_without_a_frame(copied_world, data_command):
    stray = copied_world / "zoe_depth_raw" / "0054" / "99999.png"
    shutil.copy(frames_of(copied_world)[0].zoe, stray)
    path = frames_of(copied_world)[1].rgb
    cut_short(path)
    done = data_command("inspect", copied_world, "--picture", "sheet.png", code=1)
    assert f"{stray} belongs to no frame" in done.out
    assert str(path) in done.out
    assert "faults: 2" in done.out
    assert "several classes in" in done.out
    assert done.out.splitlines()[-1] == "sheet.png"
