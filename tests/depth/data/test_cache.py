"""The packed cache: contents, reuse, changes, damage, concurrent builds."""

import subprocess
import sys

import numpy as np

from tests.depth.data.conftest import build
from zoerefine.depth.data.cache.cache import record_fields, record_stride
from zoerefine.depth.data.cache.decode import read_frame
from zoerefine.depth.data.depth_codec import HABITATDYN
from zoerefine.depth.data.layouts.readers import open_dataset

SIZE = 24, 32


def test_every_record_holds_the_fields_of_its_files(world, packed):
    dataset = open_dataset(world)
    assert len(packed) == len(dataset.frames)
    for index, frame in enumerate(dataset.frames):
        assert packed.frame_name(index) == f"{frame.scene}/{frame.clip}/{frame.name}"
        record = packed.read(index)
        fields = read_frame(frame, HABITATDYN, *SIZE)
        for name in ("rgb", "zoe", "depth", "objects"):
            np.testing.assert_array_equal(record[name], fields[name])
    assert packed.stride % 4096 == 0


def test_a_record_of_192x256_is_exactly_96_pages():
    assert record_stride(record_fields(192, 256)) == 96 * 4096


def test_indices_are_those_of_the_named_scenes(packed):
    np.testing.assert_array_equal(
        packed.indices(("scene01", "scene03")), [4, 5, 6, 7, 12, 13, 14, 15]
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


def test_the_same_data_elsewhere_have_the_same_contents_digest(packed, copied_world, tmp_path):
    second = build(copied_world, tmp_path / "caches")
    assert packed.dataset_digest == second.dataset_digest
    assert packed.digest != second.digest


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
