"""A ROS 2 node that publishes refined depth; README.md says how to run it.

This file only connects topics. `depth_refiner.py` has the logic, which is tested without ROS.
"""

from array import array

import message_filters
import rclpy
from depth_refiner import DepthRefiner
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import CameraInfo, Image

from zoerefine.base.errors import UserError
from zoerefine.depth.infer import Refiner


def make_image(data, **fields):
    """rclpy takes an array of the standard library without a check of every value."""
    return Image(data=array("B", data.tobytes()), **fields)


class RefineNode(Node):
    """Subscribes to `image`, `depth` and `camera_info`; publishes under `zoerefine/`."""

    def __init__(self):
        super().__init__("zoerefine")
        bundle = self.declare_parameter("bundle", "").value
        trust = self.declare_parameter("trust", False).value
        encoding = self.declare_parameter("encoding", "32FC1").value
        slop_s = self.declare_parameter("slop", 0.02).value
        self.refine = DepthRefiner(Refiner.load(bundle, trust), make_image, encoding)
        self.depth_out = self.create_publisher(Image, "zoerefine/depth", 1)
        self.info_out = self.create_publisher(CameraInfo, "zoerefine/camera_info", 1)
        topics = (Image, "image"), (Image, "depth"), (CameraInfo, "camera_info")
        inputs = [
            message_filters.Subscriber(self, kind, name, qos_profile=qos_profile_sensor_data)
            for kind, name in topics
        ]
        self.pairs = message_filters.ApproximateTimeSynchronizer(inputs, queue_size=5, slop=slop_s)
        self.pairs.registerCallback(self.publish_refined)

    def publish_refined(self, picture, depth, info):
        """Refine one depth message, and publish it with its calibration."""
        try:
            self.depth_out.publish(self.refine(picture, depth))
        except UserError as error:
            self.get_logger().warning(str(error), throttle_duration_sec=5.0)
            return
        info.header.stamp = depth.header.stamp
        self.info_out.publish(info)


def main():
    rclpy.init()
    try:
        rclpy.spin(RefineNode())
    except KeyboardInterrupt:
        pass
    finally:
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
