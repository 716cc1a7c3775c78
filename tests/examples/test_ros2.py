"""The logic of the ROS 2 node, on real message types and without ROS."""

import ast
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'zoerefine[ros]'")

from tests.depth.ros import bags
from zoerefine.base.errors import UserError
from zoerefine.cli import main
from zoerefine.depth.infer import Refiner

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "ros2"
DepthRefiner = runpy.run_path(str(FOLDER / "depth_refiner.py"))["DepthRefiner"]


@pytest.mark.parametrize("encoding", ["32FC1", "16UC1"])
def test_it_gives_the_messages_that_a_bag_gets(exported_run, tmp_path, encoding):
    bags.write_bag(tmp_path / "in", bags.camera(bags.random_frames(3)))
    words = [tmp_path / "in", "--out", tmp_path / "out", "--encoding", encoding, "--batch", 1]
    assert main(["bag", str(exported_run.bundle), *map(str, words)]) == 0
    refine = DepthRefiner(Refiner.load(exported_run.bundle), bags.TYPES.types[bags.IMAGE], encoding)
    inputs, expected = (bags.read_bag(tmp_path / name) for name in ("in", "out"))
    messages = (inputs[bags.COLOR], inputs[bags.DEPTH], expected["/zoerefine/depth"])
    for (_, picture), (_, depth), (_, refined) in zip(*messages, strict=True):
        ours, theirs = (bags.TYPES.serialize_cdr(one, bags.IMAGE)
                        for one in (refine(picture, depth), refined))  # fmt: skip
        assert bytes(ours) == bytes(theirs)


def test_wrong_messages_raise_one_line(exported_run):
    refine = DepthRefiner(Refiner.load(exported_run.bundle), bags.TYPES.types[bags.IMAGE])
    rgb, mm = np.zeros((48, 64, 3), np.uint8), np.ones((48, 64), np.uint16)
    with pytest.raises(UserError, match="the encoding '8UC3'; supported are"):
        refine(bags.image(rgb, "8UC3"), bags.image(mm, "16UC1"))
    with pytest.raises(UserError, match="shape"):
        refine(bags.image(rgb[:24], "rgb8"), bags.image(mm, "16UC1"))
    with pytest.raises(ValueError, match="give 32FC1 or 16UC1"):
        DepthRefiner(None, None, "64FC1")


def test_the_logic_imports_no_ros_and_the_node_is_valid_python():
    assert not {"rclpy", "sensor_msgs"} & set(sys.modules)
    ast.parse((FOLDER / "refine_node.py").read_text())
