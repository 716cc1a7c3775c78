"""Bags that cannot be refined: one line each, before anything is written or without a trace."""

import os
import sqlite3

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'zoerefine[ros]'")

from tests.depth.ros.bags import (
    COLOR,
    COMPRESSED,
    DEPTH,
    DEPTH_INFO,
    IMAGE,
    INFO,
    START_NS,
    camera,
    camera_info,
    compressed,
    image,
    write_bag,
)


@pytest.fixture(params=["mcap", "sqlite3"])
def whole(request, frames, tmp_path):
    """A bag that nothing is wrong with, in each storage."""
    return write_bag(tmp_path / "in", camera(frames), request.param)


def storage_file(folder):
    return next(path for path in folder.iterdir() if path.suffix in (".mcap", ".db3"))


def test_what_is_no_bag_is_named(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.bag").write_bytes(b"#ROSBAG V2.0\n")
    (tmp_path / "a.mcap").write_bytes(b"something else")
    (tmp_path / "zero.db3").write_bytes(b"")
    assert refused("absent", "--out", "o") == "error: there is no bag absent"
    assert "it has no metadata.yaml" in refused("empty", "--out", "o")
    assert "convert a bag of ROS 1 with `rosbags-convert`" in refused("a.bag", "--out", "o")
    assert "a.mcap cannot be read as a ROS 2 bag" in refused("a.mcap", "--out", "o")
    assert "zero.db3 cannot be read as a ROS 2 bag" in refused("zero.db3", "--out", "o")


@pytest.mark.parametrize(
    "text",
    ["", "{", "- 1", "rosbag2_bagfile_information: 5", "rosbag2_bagfile_information: {version: 5}",
     "rosbag2_bagfile_information: {version: 99}", "\x00"],
)  # fmt: skip
def test_damaged_metadata_is_one_line(refused, whole, text):
    (whole / "metadata.yaml").write_text(text)
    assert "in cannot be read as a ROS 2 bag: " in refused("in", "--out", "out")


def test_a_missing_storage_file_is_named(refused, whole):
    storage_file(whole).unlink()
    assert "files are missing" in refused("in", "--out", "out")


@pytest.mark.parametrize("share", [0.001, 0.3, 0.6, 0.99])
def test_a_truncated_storage_file_is_refused(refused, whole, share):
    path = storage_file(whole)
    os.truncate(path, int(path.stat().st_size * share))
    assert "cannot be read as a ROS 2 bag: " in refused("in", "--out", "out")


def test_a_database_with_an_unmerged_log_is_refused(refused, frames, tmp_path):
    """Messages in the log of a recorder that was killed would be missing."""
    write_bag(tmp_path / "in", camera(frames), "sqlite3")
    (tmp_path / "in/in.db3-wal").write_bytes(bytes(4152))
    for path in ("in", "in/in.db3"):
        line = refused(path, "--out", "out")
        assert "in/in.db3-wal was not merged into its database: `sqlite3 in/in.db3" in line


def test_a_database_with_fewer_messages_than_stated_is_refused(refused, frames, tmp_path):
    write_bag(tmp_path / "in", camera(frames), "sqlite3")
    with sqlite3.connect(tmp_path / "in/in.db3") as database:
        database.execute("DELETE FROM messages WHERE id > 20")
    database.close()
    line = refused("in", "--out", "out")
    assert "in is damaged: it states 10 messages of /camera/" in line
    assert "`ros2 bag reindex`" in line


def test_a_message_with_a_damaged_length_is_refused(refused, frames, tmp_path):
    messages = list(camera(frames))
    messages[14] = (DEPTH, IMAGE, bytes(40), START_NS + 5)
    write_bag(tmp_path / "in", messages)
    assert "cannot be read as a ROS 2 bag: " in refused("in", "--out", "out")


def test_missing_topics_are_listed(refused, frames, tmp_path):
    messages = list(camera(frames))
    write_bag(tmp_path / "blind", [one for one in messages if one[0] != COLOR])
    line = refused("blind", "--out", "out")
    assert "blind has no topic with pictures (rgb8, bgr8, " in line
    assert line.endswith(f"topics with images: {DEPTH} (16UC1)")
    write_bag(tmp_path / "flat", [one for one in messages if one[0] != DEPTH])
    assert f"topics with images: {COLOR} (rgb8)" in refused("flat", "--out", "out")
    write_bag(tmp_path / "zero", [(COLOR, IMAGE, None, 0), (DEPTH, IMAGE, None, 0)])
    assert "topics with images: none" in refused("zero", "--out", "out")
    write_bag(tmp_path / "nothing", [])
    assert "topics with images: none" in refused("nothing", "--out", "out")


def test_several_topics_that_fit_are_listed_and_one_can_be_chosen(refused, bag, frames, tmp_path):
    second = [("/left/image", kind, message, at + 5)
              for topic, kind, message, at in camera(frames) if topic == COLOR]  # fmt: skip
    write_bag(tmp_path / "in", [*camera(frames), *second])
    line = refused("in", "--out", "out")
    assert line.endswith(f"pictures: choose one of {COLOR}, /left/image by --image-topic")
    bag("in", "--out", "out", "--image-topic", "/left/image")


def test_topics_that_do_not_fit_are_refused(refused, frames, tmp_path):
    write_bag(tmp_path / "in", camera(frames))
    words = ("in", "--out", "out")
    line = refused(*words, "--image-topic", "/absent")
    assert "--image-topic: in has no images on /absent; topics with images: " in line
    assert f"--depth-topic: {COLOR} has the encoding 'rgb8', expected is depth (16UC1" in refused(
        *words, "--depth-topic", COLOR
    )
    assert f"such topics: {DEPTH_INFO}" in refused(*words, "--info-topic", COLOR)


@pytest.mark.parametrize(
    ("encoding", "fields", "reason"),
    [
        ("16SC1", {}, "topic with depth (16UC1, 32FC1); topics with images: /camera/color/image"),
        ("16UC1", {"step": 100}, "first message of /camera/depth/image_raw: an image has a step"),
        ("16UC1", {"height": 40}, "6144 bytes of data, but 40 rows"),
        ("16UC1", {"width": 0}, "0x48 pixels"),
    ],
)
def test_depth_of_a_wrong_format_is_refused(refused, frames, tmp_path, encoding, fields, reason):
    messages = [(COLOR, IMAGE, image(frames.rgb[0], "rgb8", START_NS), START_NS)]
    depth = image(frames.depth_mm[0], encoding, START_NS, **fields)
    write_bag(tmp_path / "in", [*messages, (DEPTH, IMAGE, depth, START_NS)])
    assert reason in refused("in", "--out", "out")


def test_pictures_and_depth_of_different_sizes_are_refused(refused, frames, tmp_path):
    small = image(frames.depth_mm[0][:24, :32], "16UC1", START_NS)
    color = image(frames.rgb[0], "rgb8", START_NS)
    write_bag(tmp_path / "in", [(COLOR, IMAGE, color, START_NS), (DEPTH, IMAGE, small, START_NS)])
    line = refused("in", "--out", "out")
    assert f"differ in size, {COLOR} 64x48 and {DEPTH} 32x24: record depth that is aligned" in line


@pytest.mark.parametrize("unset", [COLOR, DEPTH])
def test_stamps_that_were_never_set_are_refused(refused, frames, tmp_path, unset):
    messages = list(camera(frames))
    for topic, _, message, _ in messages:
        if topic == unset:
            message.header.stamp.sec = message.header.stamp.nanosec = 0
    write_bag(tmp_path / "in", messages)
    line = refused("in", "--out", "out")
    assert line.startswith(f"error: in: the stamps of {unset} are 0: ")


def test_a_stamp_that_comes_twice_is_named_once_and_one_0_is_a_stamp(bag, frames, tmp_path):
    messages = list(camera(frames))
    for number in (4, 7):  # two pictures with the stamp of the first
        messages[number][2].header.stamp = messages[1][2].header.stamp
    write_bag(tmp_path / "in", messages)
    done = bag("in", "--out", "out", code=1)
    assert done.err.count(f"in: two messages of {COLOR} in a row have the stamp 17000") == 1
    for _, _, message, _ in messages[:3]:
        message.header.stamp.sec = message.header.stamp.nanosec = 0
    messages = messages[:3] + messages[9:]
    write_bag(tmp_path / "begin", messages)
    assert "stamp" not in bag("begin", "--out", "other").err


def test_where_every_picture_is_damaged_nothing_is_written(refused, bag, frames, tmp_path):
    messages = list(camera(frames))
    for number in range(1, 30, 3):
        at = messages[number][2].header.stamp
        stamp = at.sec * 10**9 + at.nanosec
        messages[number] = (COLOR, COMPRESSED, compressed(b"\xff\xd8 cut", "jpeg", stamp), stamp)
    write_bag(tmp_path / "in", messages)
    line = refused("in", "--out", "out")
    assert line == "error: in: no depth was refined; 10 left out for the reasons above"


def test_many_faults_are_few_lines(bag, frames, tmp_path):
    messages = list(camera(frames)) * 3
    for number in range(5, 90, 3):
        broken = image(frames.depth_mm[0], "8UC1", messages[number][3] - 3)
        messages[number] = (DEPTH, IMAGE, broken, messages[number][3])
    write_bag(tmp_path / "in", sorted(messages, key=lambda one: one[3]))
    done = bag("in", "--out", "out", code=1)
    assert done.err.count("left out depth of") == 10
    assert done.err.count("only counted") == 1


def test_bad_options_are_refused(refused, frames, tmp_path):
    write_bag(tmp_path / "in", camera(frames))
    for words, reason in (
        (("--batch", 0), "--batch must be 1 to"),
        (("--tolerance", "nan"), "--tolerance must be 0 to 10 seconds, got nan"),
        (("--tolerance", -1), "--tolerance must be 0 to 10 seconds, got -1"),
        (("--topic", "depth"), "--topic depth is no name of a topic"),
        (("--topic", "/a/camera_info"), "is the name of its CameraInfo"),
        (("--out", "absent/.."), "--out absent/.. is no name of a new folder"),
        (("--out", "in"), "contain each other"),
        (("--out", "in/new"), "contain each other"),
        (("--out", "../" + tmp_path.name), "contain each other"),
    ):
        assert reason in refused("in", "--out", "out", *words)


@pytest.mark.parametrize("kind", ["folder", "file", "bag", "link"])
def test_what_others_wrote_is_never_replaced(refused, frames, tmp_path, kind):
    write_bag(tmp_path / "in", camera(frames))
    if kind == "folder":
        (tmp_path / "out").mkdir()
        (tmp_path / "out/notes.txt").touch()
    elif kind == "file":
        (tmp_path / "out").write_text("notes")
    elif kind == "bag":
        write_bag(tmp_path / "out", camera(frames))
    else:
        (tmp_path / "out").symlink_to("elsewhere")
    assert "out was not written by zoerefine and would be overwritten" in refused(
        "in", "--out", "out"
    )


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_disk_that_fills_up_is_one_line_and_leaves_nothing(
    exported_run, script, small_disk, tmp_path, storage
):
    if not small_disk.is_mounted:
        pytest.skip("no right to mount a small disk")
    messages = []
    for number in range(4):
        rgb, depth = np.zeros((480, 640, 3), np.uint8), np.full((480, 640), 2000, np.uint16)
        messages.append((COLOR, IMAGE, image(rgb, "rgb8", number), number))
        messages.append((DEPTH, IMAGE, image(depth, "16UC1", number), number))
    write_bag(tmp_path / "in", messages)
    small_disk.fill(free=3 * 2**20)  # refined depth takes 4.7 MiB
    words = "in", "--out", small_disk.path / "out", "--storage", storage
    done = script("bag", exported_run.bundle, *words, code=2)
    line = done.stderr.splitlines()[-1]
    assert "No space left on device" in line or "disk is full" in line
    assert [path.name for path in small_disk.path.iterdir()] == [".fill"]


def test_calibrations_are_found_by_name_and_never_needed(bag, frames, tmp_path):
    messages = [one for one in camera(frames) if one[0] != DEPTH_INFO]
    messages.append(("/other/info", INFO, camera_info(START_NS), START_NS))
    write_bag(tmp_path / "in", messages)
    assert "CameraInfo: None" in bag("in", "--out", "without").err
    assert (
        "CameraInfo: /other/info" in bag("in", "--out", "with", "--info-topic", "/other/info").err
    )
    assert np.ptp(frames.depth_mm[0]) > 0
