"""`zoerefine bag`: what the folder path gives, in a bag of its own, complete or not there."""

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'zoerefine[ros]'")

from rosbags.rosbag2 import CompressionFormat, CompressionMode, Reader

from tests.depth.ros.bags import (
    COLOR,
    COMPRESSED,
    DEPTH,
    DEPTH_INFO,
    FRAME_NS,
    IMAGE,
    INFO,
    SENSOR_DATA,
    START_NS,
    camera,
    camera_info,
    compressed,
    image,
    read_bag,
    write_bag,
)
from zoerefine.base.files.images import decode_rgb, write_png
from zoerefine.cli import main
from zoerefine.depth.data.cache.decode import read_zoe
from zoerefine.depth.data.depth_codec import ZOEDEPTH

REFINED, INFO_OUT = "/zoerefine/depth", "/zoerefine/camera_info"


def depth_m(message):
    """A 32FC1 message as an array."""
    assert (message.encoding, message.step, message.is_bigendian) == ("32FC1", message.width * 4, 0)
    return message.data.view("<f4").reshape(message.height, message.width)


def assert_refined(found, expected):
    """The refined depth of a bag has these values in 1/256 m; NaN where they are 0."""
    for (_, message), values in zip(found[REFINED], expected, strict=True):
        assert np.array_equal(np.isnan(depth_m(message)), values == 0)
        assert np.array_equal(np.nan_to_num(depth_m(message)) * 256, values)


def folder_path(bundle, rgb, depth_u16, batch, folder):
    """The values that `zoerefine infer` writes for the same frames as PNG files."""
    for number, (picture, depth) in enumerate(zip(rgb, depth_u16, strict=True)):
        write_png(folder / f"rgb/{number:03d}.png", picture)
        write_png(folder / f"zoe/{number:03d}.png", depth)
    words = ["--rgb", folder / "rgb", "--depth", folder / "zoe", "--out", folder / "out"]
    assert main(["infer", str(bundle), *map(str, words), "--batch", str(batch)]) == 0
    return [read_zoe(folder / f"out/depth/{number:03d}.png") for number in range(len(rgb))]


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_refined_depth_is_bit_for_bit_what_the_folder_path_writes(
    bag, exported_run, frames, tmp_path, storage, batch
):
    write_bag(tmp_path / "in", camera(frames), storage)
    done = bag("in", "--out", "out", "--storage", storage, "--batch", batch)
    assert "10 depth messages refined, 0 without a picture, 0 left out, " in done.out
    assert "refining: 10/10 frame, " in done.err
    assert "was trained on pseudo depth of: synthetic" in done.err
    assert "; it now refines that of: unknown" in done.err
    depth_u16 = [np.rint(one / 1000 * 256).astype(np.uint16) for one in frames.depth_mm]
    expected = folder_path(exported_run.bundle, frames.rgb, depth_u16, batch, tmp_path / "files")
    assert_refined(read_bag(tmp_path / "out"), expected)
    assert np.ptp(expected[0]) > 100 and (expected[0] != depth_u16[0]).any()
    assert (tmp_path / "out" / f"out.{'mcap' if storage == 'mcap' else 'db3'}").exists()


def test_millimetres_are_the_same_depth_rounded(bag, frames, tmp_path):
    write_bag(tmp_path / "in", camera(frames))
    bag("in", "--out", "m")
    bag("in", "--out", "mm", "--encoding", "16UC1", "--storage", "sqlite3")
    metres, millimetres = read_bag(tmp_path / "m")[REFINED], read_bag(tmp_path / "mm")[REFINED]
    for (_, exact), (_, rounded) in zip(metres, millimetres, strict=True):
        assert (rounded.encoding, rounded.step) == ("16UC1", 128)
        values = rounded.data.view("<u2").reshape(48, 64)
        assert np.array_equal(values, np.rint(np.nan_to_num(depth_m(exact)) * 1000.0))


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_stamps_frame_ids_record_times_and_calibrations_are_kept(bag, frames, tmp_path, storage):
    write_bag(tmp_path / "in", camera(frames), storage)
    bag("in", "--out", "out", "--topic", "/robot/refined/image")
    before, after = read_bag(tmp_path / "in"), read_bag(tmp_path / "out")
    assert list(after) == ["/robot/refined/image", "/robot/refined/camera_info"]
    depth, refined = before[DEPTH], after["/robot/refined/image"]
    assert [at for at, _ in refined] == [at for at, _ in depth]
    assert [one.header for _, one in refined] == [one.header for _, one in depth]
    infos = [one for _, one in after["/robot/refined/camera_info"]]
    assert [one.header for one in infos] == [one.header for _, one in depth]
    for found, (_, expected) in zip(infos, before[DEPTH_INFO], strict=True):
        assert np.array_equal(found.k, expected.k) and np.array_equal(found.d, expected.d)
        assert found.distortion_model == expected.distortion_model


def test_float_depth_with_nan_and_infinity_is_read_as_invalid(bag, exported_run, frames, tmp_path):
    metres = [one.astype(np.float32) / 1000 for one in frames.depth_mm]
    for number, one in enumerate(metres):
        one[one == 0] = (np.nan, np.inf, -np.inf, -1.0)[number % 4]
    messages = []
    for number, (rgb, depth) in enumerate(zip(frames.rgb, metres, strict=True)):
        at = START_NS + number * FRAME_NS
        messages.append((DEPTH, IMAGE, image(depth, "32FC1", at), at))
        messages.append((COLOR, IMAGE, image(rgb[..., ::-1], "bgr8", at), at + 1))
    write_bag(tmp_path / "in", messages)
    done = bag("in", "--out", "out")
    assert "CameraInfo: None" in done.err
    depth_u16 = [ZOEDEPTH.encode(one) for one in metres]
    expected = folder_path(exported_run.bundle, frames.rgb, depth_u16, 4, tmp_path / "files")
    found = read_bag(tmp_path / "out")
    assert list(found) == [REFINED]
    assert_refined(found, expected)


def test_compressed_pictures_and_depth_equal_their_files(bag, exported_run, frames, tmp_path):
    messages, pictures = [], []
    for number, (rgb, depth) in enumerate(zip(frames.rgb, frames.depth_mm, strict=True)):
        at = START_NS + number * FRAME_NS
        suffix, form = (".jpg", "rgb8; jpeg compressed bgr8") if number % 2 else (".png", "png")
        data = cv2.imencode(suffix, cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))[1].tobytes()
        pictures.append(decode_rgb(data, "picture"))
        png = bytes(12) + cv2.imencode(".png", depth)[1].tobytes()
        topic = "/camera/depth/image_raw/compressedDepth"
        messages.append((COLOR, COMPRESSED, compressed(data, form, at), at))
        messages.append((topic, COMPRESSED, compressed(png, "16UC1; compressedDepth png", at), at))
        messages.append((DEPTH_INFO, INFO, camera_info(at), at))
    write_bag(tmp_path / "in", messages)
    bag("in", "--out", "out")
    depth_u16 = [np.rint(one / 1000 * 256).astype(np.uint16) for one in frames.depth_mm]
    expected = folder_path(exported_run.bundle, pictures, depth_u16, 4, tmp_path / "files")
    found = read_bag(tmp_path / "out")
    assert len(found[INFO_OUT]) == 10
    assert_refined(found, expected)


@pytest.mark.parametrize("mode", ["FILE", "MESSAGE", "STORAGE"])
def test_zstd_compressed_bags_give_the_same_depth(bag, frames, tmp_path, mode):
    write_bag(tmp_path / "plain", camera(frames))
    zstd = CompressionMode[mode], CompressionFormat.ZSTD
    write_bag(tmp_path / "in", camera(frames), "mcap", zstd)
    for name in ("plain", "in"):
        bag(name, "--out", f"{name}.refined")
    plain, packed = (read_bag(tmp_path / f"{n}.refined")[REFINED] for n in ("plain", "in"))
    for (_, one), (_, other) in zip(plain, packed, strict=True):
        assert one.data.tobytes() == other.data.tobytes()


@pytest.mark.parametrize(("storage", "suffix"), [("mcap", "mcap"), ("sqlite3", "db3")])
def test_a_storage_file_without_its_folder_is_read(bag, frames, tmp_path, storage, suffix):
    write_bag(tmp_path / "in", camera(frames), storage)
    bag(f"in/in.{suffix}", "--out", "out")
    assert len(read_bag(tmp_path / "out")[REFINED]) == 10


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_bag_that_was_split_into_files_is_read_to_its_end(bag, frames, tmp_path, storage):
    messages = list(camera(frames))
    write_bag(tmp_path / "in", messages[:16], storage)  # in the middle of a frame
    write_bag(tmp_path / "rest", messages[16:], storage)
    paths = [tmp_path / name / "metadata.yaml" for name in ("in", "rest")]
    first, second = (yaml.safe_load(path.read_text()) for path in paths)
    facts, others = (one["rosbag2_bagfile_information"] for one in (first, second))
    file = others["relative_file_paths"][0]
    (tmp_path / "rest" / file).rename(tmp_path / "in" / file)
    facts["relative_file_paths"].append(file)
    for topic, more in itertools.product(
        facts["topics_with_message_count"], others["topics_with_message_count"]
    ):
        if topic["topic_metadata"] == more["topic_metadata"]:
            topic["message_count"] += more["message_count"]
    paths[0].write_text(yaml.safe_dump(first))
    write_bag(tmp_path / "one", messages, storage)
    for name in ("in", "one"):
        bag(name, "--out", f"{name}.refined")
    split, whole = (read_bag(tmp_path / f"{name}.refined")[REFINED] for name in ("in", "one"))
    assert [at for at, _ in split] == [at for at, _ in whole]
    for (_, found), (_, expected) in zip(split, whole, strict=True):
        assert found.data.tobytes() == expected.data.tobytes()


def test_a_bag_without_message_definitions_as_humble_records_it_is_read(bag, frames, tmp_path):
    write_bag(tmp_path / "in", camera(frames), "sqlite3")
    with closing(sqlite3.connect(tmp_path / "in/in.db3")) as database:
        database.executescript(
            "DROP TABLE message_definitions; DROP TABLE metadata;"
            "UPDATE schema SET schema_version = 3, ros_distro = 'humble';"
            "ALTER TABLE topics DROP COLUMN type_description_hash"
        )
    path = tmp_path / "in/metadata.yaml"
    metadata = yaml.safe_load(path.read_text())
    facts = metadata["rosbag2_bagfile_information"]
    facts["version"] = 5
    for newer in ("custom_data", "ros_distro"):
        del facts[newer]
    for topic in facts["topics_with_message_count"]:
        del topic["topic_metadata"]["type_description_hash"]
    path.write_text(yaml.safe_dump(metadata))
    bag("in", "--out", "out")
    assert len(read_bag(tmp_path / "out")[REFINED]) == 10


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_the_quality_of_service_of_the_depth_is_kept(bag, frames, tmp_path, storage):
    write_bag(tmp_path / "in", camera(frames), storage, qos=[SENSOR_DATA])
    bag("in", "--out", "out", "--storage", storage)
    with Reader(tmp_path / "out") as reader:
        profiles = {one.topic: one.ext.offered_qos_profiles for one in reader.connections}
    assert profiles == {REFINED: [SENSOR_DATA], INFO_OUT: [SENSOR_DATA]}


def test_stamps_that_differ_need_a_tolerance_and_then_the_nearest_picture_is_used(
    bag, refused, frames, tmp_path
):
    write_bag(tmp_path / "in", camera(frames, picture_lag_ns=4_000_000))
    line = refused("in", "--out", "out")
    assert "no picture has the stamp of a depth message within 0 s" in line
    assert "0.004 s away: give --tolerance" in line
    bag("in", "--out", "out", "--tolerance", "0.005")
    write_bag(tmp_path / "exact", camera(frames))
    bag("exact", "--out", "same")
    near, exact = read_bag(tmp_path / "out")[REFINED], read_bag(tmp_path / "same")[REFINED]
    assert len(near) == 10
    for (_, one), (_, other) in zip(near, exact, strict=True):
        assert one.header == other.header and one.data.tobytes() == other.data.tobytes()


def test_depth_without_a_picture_is_counted_and_the_rest_refined(bag, frames, tmp_path):
    lacking = {COLOR: START_NS + 3 * FRAME_NS + 2, DEPTH: START_NS + 5 * FRAME_NS + 3}
    messages = [one for one in camera(frames) if lacking.get(one[0]) != one[3]]
    write_bag(tmp_path / "in", messages)
    done = bag("in", "--out", "out", code=1)
    assert "8 depth messages refined, 1 without a picture, 0 left out" in done.out
    stamps = [one.header.stamp.nanosec for _, one in read_bag(tmp_path / "out")[REFINED]]
    expected = [(START_NS + n * FRAME_NS) % 10**9 for n in range(10) if n not in (3, 5)]
    assert stamps == expected


def test_one_calibration_serves_all_frames_with_their_stamps(bag, frames, tmp_path):
    messages = [one for one in camera(frames) if one[0] != DEPTH_INFO]
    latched = (DEPTH_INFO, INFO, camera_info(START_NS - 10**9, focal=612.0), START_NS - 10**9)
    write_bag(tmp_path / "in", [latched, *messages])
    bag("in", "--out", "out")
    found = read_bag(tmp_path / "out")
    assert [one.header for _, one in found[INFO_OUT]] == [one.header for _, one in found[REFINED]]
    assert {one.k[0] for _, one in found[INFO_OUT]} == {612.0}


def test_a_damaged_picture_or_a_wrong_message_is_left_out_with_its_reason(bag, frames, tmp_path):
    messages = list(camera(frames))
    at = START_NS + 4 * FRAME_NS
    messages[4 * 3 + 1] = (COLOR, IMAGE, image(frames.rgb[4][:24], "rgb8", at), at + 2)
    at += FRAME_NS
    messages[5 * 3 + 2] = (DEPTH, IMAGE, image(frames.depth_mm[5], "16UC1", at, step=100), at + 3)
    at += FRAME_NS
    messages[6 * 3 + 2] = (DEPTH, IMAGE, image(frames.depth_mm[6], "8UC1", at), at + 3)
    write_bag(tmp_path / "in", messages)
    done = bag("in", "--out", "out", "-q", code=1)
    assert "7 depth messages refined, 0 without a picture, 3 left out" in done.out
    sizes = "the picture and its depth differ in size: 64x24 and 64x48"
    assert f"left out depth of 1700000000.256790121 s: {sizes}" in done.err
    assert "a step of 100 bytes, but 64 pixels of 16UC1 take 128" in done.err
    assert "depth has the encoding '8UC1'; supported are 16UC1" in done.err
    assert len(read_bag(tmp_path / "out")[REFINED]) == 7


def test_the_same_command_keeps_a_complete_bag_and_makes_changed_ones_again(bag, frames, tmp_path):
    write_bag(tmp_path / "in", camera(frames))
    bag("in", "--out", "out")
    made = (tmp_path / "out/out.mcap").stat().st_mtime_ns
    done = bag("in", "--out", "out")
    assert done.out == "out is complete\n"
    assert (tmp_path / "out/out.mcap").stat().st_mtime_ns == made
    bag("in", "--out", "out", "--encoding", "16UC1")
    assert read_bag(tmp_path / "out")[REFINED][0][1].encoding == "16UC1"
    os.truncate(tmp_path / "out/out.mcap", 5000)
    bag("in", "--out", "out", "--encoding", "16UC1")
    assert len(read_bag(tmp_path / "out")[REFINED]) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_the_metadata_names_the_bundle_and_its_commit(bag, frames, tmp_path, exported_run):
    from zoerefine.depth.exporting.bundle.bundle import read_manifest

    write_bag(tmp_path / "in", camera(frames))
    bag("in", "--out", "out")
    facts = yaml.safe_load((tmp_path / "out/metadata.yaml").read_text())
    custom = facts["rosbag2_bagfile_information"]["custom_data"]
    manifest = read_manifest(exported_run.bundle)
    assert custom["zoerefine-bundle"] == manifest["digest"]
    assert custom["zoerefine-commit"] == manifest["commit"]


# Decoding the seventh depth waits for a file `go`, so that the command can be killed there.
WAITING = """
import sys, time
from pathlib import Path
from zoerefine.depth.ros import refine_bag

depth_of, seen = refine_bag.depth_of, []

def waiting(message):
    seen.append(message)
    while len(seen) >= 7 and not Path("go").exists():
        time.sleep(0.01)
    return depth_of(message)

refine_bag.depth_of = waiting
from zoerefine.cli import main
sys.exit(main(["bag", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_command_leaves_no_bag_and_the_next_one_starts_cleanly(
    bag, exported_run, frames, tmp_path, wait_until, storage, how
):
    write_bag(tmp_path / "in", camera(frames))
    words = ["in", "--out", "out", "--batch", "1", "--storage", storage]
    command = [sys.executable, "-W", "ignore", "-c", WAITING, exported_run.bundle, *words]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    half = tmp_path / ".out.half-written"
    try:
        wait_until(lambda: any((half / "out").iterdir()), process)
        line = bag(*words, code=2).err.splitlines()[-1]
        assert line == "error: another command is writing out: wait for it, or stop it"
    finally:
        process.send_signal(how)
        (tmp_path / "go").touch() if how == signal.SIGINT else None
        process.communicate()
    assert not (tmp_path / "out").exists()
    assert half.exists() == (how == signal.SIGKILL)
    bag(*words)
    assert len(read_bag(tmp_path / "out")[REFINED]) == 10
    assert not half.exists()


def test_without_rosbags_one_line_names_the_extra(bag, frames, tmp_path, monkeypatch):
    write_bag(tmp_path / "in", camera(frames))
    for name in [name for name in sys.modules if name.partition(".")[0] == "rosbags"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rosbags", None)
    done = bag("in", "--out", "out", code=2)
    assert done.out == ""
    assert done.err == ("error: ROS bags need the package rosbags: pip install 'zoerefine[ros]'\n")


def test_other_readers_find_a_complete_bag(bag, frames, tmp_path):
    """The index of the new bag states the right counts, types and times."""
    write_bag(tmp_path / "in", camera(frames))
    bag("in", "--out", "out")
    with Reader(Path(tmp_path / "out")) as reader:
        counts = {one.topic: (one.msgtype, one.msgcount) for one in reader.connections}
        assert counts == {REFINED: (IMAGE, 10), INFO_OUT: (INFO, 10)}
        assert reader.start_time == START_NS + 3
        assert reader.end_time == START_NS + 9 * FRAME_NS + 4
