"""The packed cache: contents, reuse, changes, damage, concurrent builds."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from zoerefine.base.errors import UserError
from zoerefine.depth.data.cache.cache import open_cache, record_fields, record_stride
from zoerefine.depth.data.cache.decode import read_frame
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.depth_codec import HABITATDYN
from zoerefine.depth.data.layouts.readers import open_dataset

SIZE = 24, 32


def build(world, root, **options):
    return build_cache(open_dataset(world), *SIZE, root, workers=2, **options)


@pytest.fixture(scope="module")
def cache(world, tmp_path_factory):
    """The world's packed cache. Tests must not change it."""
    return build(world, tmp_path_factory.mktemp("packed"))


def test_every_record_holds_the_fields_of_its_files(world, cache):
    dataset = open_dataset(world)
    assert len(cache) == len(dataset.frames)
    for index, frame in enumerate(dataset.frames):
        assert cache.frame_name(index) == f"{frame.scene}/{frame.clip}/{frame.name}"
        record = cache.read(index)
        fields = read_frame(frame, HABITATDYN, *SIZE)
        for name in ("rgb", "zoe", "depth", "objects"):
            np.testing.assert_array_equal(record[name], fields[name])
    assert cache.stride % 4096 == 0


def test_a_record_of_192x256_is_exactly_96_pages():
    assert record_stride(record_fields(192, 256)) == 96 * 4096


def test_indices_are_those_of_the_named_scenes(cache):
    np.testing.assert_array_equal(
        cache.indices(("scene01", "scene03")), [4, 5, 6, 7, 12, 13, 14, 15]
    )


def test_a_valid_cache_is_used_again_and_a_change_makes_another(copied_world, tmp_path, capsys):
    first = build(copied_world, tmp_path / "caches")
    written_at = (first.folder / "records.bin").stat().st_mtime_ns
    assert build(copied_world, tmp_path / "caches").folder == first.folder
    assert (first.folder / "records.bin").stat().st_mtime_ns == written_at
    assert "using the packed cache" in capsys.readouterr().err
    frame = open_dataset(copied_world).frames[0]
    frame.zoe.write_bytes(open_dataset(copied_world).frames[1].zoe.read_bytes())
    assert build(copied_world, tmp_path / "caches").folder != first.folder


def test_the_same_data_elsewhere_have_the_same_contents_digest(cache, copied_world, tmp_path):
    second = build(copied_world, tmp_path / "caches")
    assert cache.dataset_digest == second.dataset_digest
    assert cache.digest != second.digest


def test_broken_frames_are_left_out_and_named_or_too_many(copied_world, tmp_path):
    path = open_dataset(copied_world).frames[3].depth
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(UserError, match=r"1 of 16 frames cannot be packed.*0000/00003\.png"):
        build(copied_world, tmp_path / "caches")
    cache = build(copied_world, tmp_path / "caches", max_broken=0.1)
    usable = cache.indices(cache.scenes)
    assert len(usable) == 15
    assert "scene00/0000/00003" not in [cache.frame_name(i) for i in usable]
    assert str(path) in (cache.folder / "broken.json").read_text()
    assert not cache.read(3)["rgb"].any()


@pytest.mark.parametrize("damage", ["header", "records", "schema", "gone"])
def test_the_error_of_a_damaged_cache_says_what_to_do(cache, tmp_path, damage):
    folder = shutil.copytree(cache.folder, tmp_path / "cache")
    if damage == "header":
        (folder / "cache.json").write_text("{")
    elif damage == "records":
        os.truncate(folder / "records.bin", 5000)
    elif damage == "schema":
        header = json.loads((folder / "cache.json").read_text())
        (folder / "cache.json").write_text(json.dumps(header | {"schema": 99}))
    else:
        shutil.rmtree(folder)
    with pytest.raises(UserError, match=r"delete|make one"):
        open_cache(folder)


BUILD = """
import sys
from pathlib import Path
from zoerefine.depth.data.cache.pack import build_cache
from zoerefine.depth.data.layouts.readers import open_dataset
build_cache(open_dataset(sys.argv[1]), 192, 256, Path(sys.argv[2]), 1)
"""


def test_concurrent_builds_make_one_cache(world, tmp_path):
    command = [sys.executable, "-c", BUILD, world, tmp_path]
    builders = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    outputs = [builder.communicate()[1].decode() for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0, 0]
    assert sum("using the packed cache" in output for output in outputs) == 2
