"""Packed records against their digests: at once, and in the background of a training."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.depth.data.conftest import build
from zoerefine.base.config import load_config
from zoerefine.base.errors import UserError
from zoerefine.base.machine.memory import PAGE
from zoerefine.depth.data.cache import cache as cache_module
from zoerefine.depth.data.cache import verification
from zoerefine.depth.data.cache.cache import open_cache
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.cache.verification import BackgroundVerification, DamagedCache
from zoerefine.depth.data.layouts.readers import open_dataset
from zoerefine.depth.training.job import run_training


@pytest.fixture
def packed(packed, tmp_path):
    """A copy of the packed cache, which a test may damage."""
    return open_cache(shutil.copytree(packed.folder, tmp_path / "caches" / packed.folder.name))


def overwrite(cache, index, size=3000):
    """Write other bytes over a part of a record, as a faulty disk or program would."""
    with open(cache.folder / "records.bin", "r+b") as file:
        file.seek(index * cache.stride + 50)
        file.write(b"x" * size)


def test_records_are_read_into_aligned_memory(packed, monkeypatch):
    offsets, preadv = [], os.preadv

    def noted(file, buffers, place):
        offsets.append(np.frombuffer(buffers[0], np.uint8).ctypes.data % PAGE)
        return preadv(file, buffers, place)

    monkeypatch.setattr(os, "preadv", noted)
    assert verification.verify(packed.folder) == len(offsets)
    assert set(offsets) == {0}


def test_records_are_verified_and_damaged_ones_named_by_their_frames(packed, data_command):
    done = data_command("verify", packed.folder)
    assert done.out == f"{packed.folder}: 16 records have their digests\n"
    overwrite(packed, 3)
    overwrite(packed, 9)
    done = data_command("verify", packed.folder, code=1)
    assert "2 of 16 records differ from the digests of their packing: " in done.out
    assert f"{packed.frame_name(3)}, {packed.frame_name(9)}; delete" in done.out


def test_one_damaged_cache_does_not_stop_the_verification_of_others(world, packed, data_command):
    other = build_cache(open_dataset(world), 12, 16, packed.folder.parent, 2)
    first, second = sorted((packed, other), key=lambda cache: cache.folder)
    overwrite(first, 0, size=100)
    done = data_command("verify", packed.folder.parent, code=1)
    assert f"{second.folder}: 16 records have their digests" in done.out


@pytest.mark.parametrize("name", ["records.bin", "frames.npy"])
def test_a_cache_that_is_cut_while_it_is_used_is_one_line(packed, name):
    os.truncate(packed.folder / name, 512)
    with pytest.raises(UserError, match=rf"{name}.* (was cut|differs from its digest)"):
        packed.read(9)
        verification.check_table(packed)
        packed.frame_name(9)


def test_a_cache_that_is_packed_again_while_it_is_verified_is_one_line(packed, monkeypatch):
    opened = lambda folder: shutil.move(folder, f"{folder}.discarded") and packed  # noqa: E731
    monkeypatch.setattr(verification, "open_cache", opened)
    with pytest.raises(DamagedCache, match="was removed while it was verified"):
        verification.verify(packed.folder)
    background = BackgroundVerification(packed)
    with background, pytest.raises(DamagedCache, match="was removed while it was verified"):
        background.finish()


@pytest.mark.parametrize("name", ["cache.json", "frames.npy", "records.bin"])
@pytest.mark.parametrize("packed_again", [True, False])
def test_a_cache_that_is_packed_again_while_it_is_opened_is_no_damage(
    world, packed, monkeypatch, name, packed_again
):
    """A rebuild moves the folder away; it may have put another into its place."""
    folder, parts = packed.folder, []
    shutil.copytree(folder, folder.parent / "next")
    read_header, map_file = cache_module.read_header, np.memmap

    def rebuild(part):
        if part == name and not parts:
            parts.append(part)
            folder.rename(folder.parent / "old.discarded")
            if packed_again:
                (folder.parent / "next").rename(folder)
            else:
                shutil.rmtree(folder.parent / "old.discarded")

    def header(place):
        rebuild("cache.json")
        return read_header(place)

    def mapped(file, *words, **more):
        rebuild(Path(getattr(file, "name", file)).name)
        return map_file(file, *words, **more)

    monkeypatch.setattr(cache_module, "read_header", header)
    monkeypatch.setattr(np, "memmap", mapped)
    with pytest.raises(UserError, match="was packed again meanwhile: start this command again"):
        open_cache(folder)
    assert parts and (folder.exists() == packed_again)
    monkeypatch.undo()
    assert build(world, folder.parent).dataset_digest == packed.dataset_digest


def test_what_is_verified_is_the_file_that_is_in_use(packed):
    shutil.copytree(packed.folder, packed.folder.parent / "next")
    packed.folder.rename(packed.folder.parent / "old.discarded")
    (packed.folder.parent / "next").rename(packed.folder)
    overwrite(packed, 4)
    with BackgroundVerification(packed) as background:
        background.finish()


def test_a_folder_without_caches_is_named(tmp_path, refused):
    assert "has no packed cache" in refused("verify", tmp_path)
    (tmp_path / "0123.partial").mkdir()
    assert "has a cache that is not packed to its end" in refused("verify", tmp_path)


def test_a_changed_frame_table_is_damage(packed):
    frames = np.load(packed.folder / "frames.npy")
    frames["clip"][5] = 0
    np.save(packed.folder / "frames.npy", frames)
    with pytest.raises(DamagedCache, match=r"frames\.npy differs from its digest"):
        verification.verify(packed.folder)


@pytest.mark.parametrize("change", [{"depth_scale": 1.0}, {"label": "HabitatDyn"}, {"clips": []}])
def test_a_changed_header_is_damage(packed, change):
    path = packed.folder / "cache.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=r"cache\.json differs from its own digest: delete"):
        open_cache(packed.folder)


def test_a_cache_that_other_code_packed_is_named(world, packed, capsys, monkeypatch):
    monkeypatch.setattr("zoerefine.depth.data.cache.frame_packer.packing_code", lambda: "0" * 16)
    build(world, packed.folder.parent)
    assert f"{packed.folder} was packed by other code" in capsys.readouterr().err


def test_in_the_background_a_damaged_record_is_found_with_its_name(packed, wait_until):
    overwrite(packed, 7)
    found = pytest.raises(DamagedCache, match=packed.frame_name(7))
    with BackgroundVerification(packed) as background, found:
        wait_until(lambda: background.check() is not None)


def test_a_slow_background_is_finished_at_full_speed(packed):
    overwrite(packed, 15)
    with BackgroundVerification(packed, bytes_per_s=1) as background:
        background.check()
        with pytest.raises(DamagedCache, match=packed.frame_name(15)):
            background.finish()


def test_leaving_early_does_not_wait_for_a_slow_background(packed):
    with BackgroundVerification(packed, bytes_per_s=1) as background:
        background.check()


def test_a_cache_is_verified_again_only_when_its_files_change(packed):
    with BackgroundVerification(packed) as background:
        background.finish()
    overwrite(packed, 2)
    with BackgroundVerification(packed) as background, pytest.raises(DamagedCache):
        background.finish()


def test_a_cache_that_is_not_packed_completely_is_not_verified(world, tmp_path):
    for mode in ("off", "fill"):
        cache = build(world, tmp_path / mode, mode=mode)
        with BackgroundVerification(cache) as background:
            background.finish()


def test_a_training_stops_at_damaged_records_and_starts_anew_once_they_are_packed_again(tiny):
    options = ["RUN.NAME", "whole", "CACHE.ROOT", "caches"]
    expected = run_training(load_config(tiny, options)).weights_digest_file.read_text()
    folder = next(path.parent for path in tiny.parent.glob("caches/*/cache.json"))
    cache = open_cache(folder)
    overwrite(cache, 0, size=cache.stride - 100)
    options = ["RUN.NAME", "damaged", "CACHE.ROOT", "caches"]
    with pytest.raises(DamagedCache, match=cache.frame_name(0)):
        run_training(load_config(tiny, options))
    assert not list(tiny.parent.glob("runs/damaged/*/results.json"))
    assert not list(tiny.parent.glob("runs/damaged/*/checkpoints"))
    shutil.rmtree(folder)
    again = run_training(load_config(tiny, options))
    assert again.weights_digest_file.read_text() == expected


# A partial cache


@pytest.fixture
def partial(world, tmp_path):
    """The folder of a cache of which some frames are packed."""
    cache = build(world, tmp_path / "caches", mode="fill")
    rows = np.empty((10, cache.stride // 8), np.int64)
    cache.records.gather(np.arange(10), rows)
    return next((tmp_path / "caches").glob("*.partial"))


@pytest.mark.parametrize(
    ("name", "words"), [("frames.npy", "all frames are"), ("records.bin", "what is missing is")]
)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_partial_file_that_was_cut_short_is_named_and_never_moves_a_frame(
    world, partial, tmp_path, capsys, name, words, share
):
    size = (partial / name).stat().st_size
    os.truncate(partial / name, int(size * share))
    again = build(world, partial.parent)
    assert f"{partial}/{name} was cut short: {words} packed again" in capsys.readouterr().err
    whole = build(world, tmp_path / "whole")
    for file in ("records.bin", "frames.npy", "cache.json"):
        assert (again.folder / file).read_bytes() == (whole.folder / file).read_bytes()
    assert sorted(path.name for path in again.folder.iterdir()) == [
        "cache.json", "frames.npy", "records.bin",
    ]  # fmt: skip


def test_a_partial_cache_of_other_code_is_packed_from_the_beginning(
    world, partial, tmp_path, capsys
):
    facts = json.loads((partial / "partial.json").read_text())
    (partial / "partial.json").write_text(json.dumps(facts | {"code": "other"}))
    build(world, partial.parent)
    assert "was begun by other code: all frames are packed again" in capsys.readouterr().err


# Another cache in the same folder


HEADERS = '{"schema": 4}', "{", "[" * 100_000, "\xff\xfe{"
DAMAGES = {
    **{text[:9]: lambda folder, text=text: (folder / "cache.json").write_text(text, "latin-1")
       for text in HEADERS},
    "a folder": lambda folder: (folder / "cache.json").unlink() or (folder / "cache.json").mkdir(),
    "a table": lambda folder: np.save(folder / "frames.npy", np.zeros((3, 3))),
    "cut records": lambda folder: os.truncate(folder / "records.bin", 5000),
    "no records": lambda folder: (folder / "records.bin").unlink(),
    "no folder": shutil.rmtree,
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_another_damaged_cache_never_stops_packing(copied_world, packed, damage):
    DAMAGES[damage](packed.folder)
    with pytest.raises(UserError, match=r"delete|make one|Is a directory"):
        open_cache(packed.folder)
    frame = open_dataset(copied_world).frames[0]
    frame.zoe.write_bytes(open_dataset(copied_world).frames[1].zoe.read_bytes())
    cache = build(copied_world, packed.folder.parent)
    assert cache.folder != packed.folder
    assert verification.verify(cache.folder) == 16
