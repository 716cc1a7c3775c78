"""Damaged ROS 2 bags: each is read, or refused with a sentence."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'zoerefine[ros]'")

from hypothesis import given
from hypothesis import strategies as st
from rosbags.rosbag2 import CompressionFormat, CompressionMode

from tests.depth.ros.bags import camera, random_frames, write_bag
from tests.fuzz.limits import bounded, damaged, fuzzed
from zoerefine.base.errors import UserError
from zoerefine.depth.ros.bag_files import open_bag
from zoerefine.depth.ros.bag_topics import find_topics
from zoerefine.depth.ros.refine_bag import decode
from zoerefine.depth.ros.stamp_pairs import paired

ZSTD = CompressionMode.STORAGE, CompressionFormat.ZSTD
KINDS = {"mcap": ("mcap", None), "zstd": ("mcap", ZSTD), "sqlite3": ("sqlite3", None)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder of whole bags by kind."""
    made = tmp_path_factory.mktemp("whole")
    for kind, (storage, compression) in KINDS.items():
        write_bag(made / kind, camera(random_frames(2)), storage, compression)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for one example after the other, alone in its parent."""
    return tmp_path_factory.mktemp("fuzz") / "inside"


def read_all(path: Path) -> None:
    """What `zoerefine bag` does with a bag before the engine."""
    with open_bag(path) as bag:
        topics = find_topics(bag, None, None, None)
        for frame in paired(bag.messages(topics.names), topics, bag.counts):
            try:
                decode(frame, "", 0)
            except UserError as error:
                assert str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_bag_is_read(whole, kind):
    read_all(whole / kind)


@fuzzed
@given(st.data(), st.sampled_from(sorted(KINDS)), st.booleans())
def test_any_damaged_bag(whole, folder, data, kind, storage):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole / kind, folder)
    metadata = folder / "metadata.yaml"
    content = next(path for path in folder.iterdir() if path != metadata)
    path = content if storage else metadata
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    with bounded(folder):
        read_all(folder)
