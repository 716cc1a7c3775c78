"""The logic of the ROS 2 node, without ROS: a picture and its depth in, refined depth out.

It works with any message classes that have the fields of sensor_msgs: rclpy's in the node, and
rosbags' in the tests.
"""

from collections.abc import Callable
from typing import Any

from zoerefine.depth.infer import Refiner
from zoerefine.depth.ros.image_messages import depth_fields, depth_of, rgb_of


class DepthRefiner:
    """Refines the depth messages of a camera.

    Args:
        refiner: a loaded bundle.
        make_image: makes an Image message of its fields, given by name; `data` is a NumPy array.
        encoding: of refined depth: 32FC1 (metres, NaN: invalid) or 16UC1 (millimetres, 0: invalid).
    """

    def __init__(
        self, refiner: Refiner, make_image: Callable[..., Any], encoding: str = "32FC1"
    ) -> None:
        if encoding not in ("32FC1", "16UC1"):
            raise ValueError(f"encoding is {encoding!r}: give 32FC1 or 16UC1")
        self.refiner, self.make_image, self.encoding = refiner, make_image, encoding

    def __call__(self, picture: Any, depth: Any) -> Any:
        """An Image with refined depth and the header of `depth`.

        Args:
            picture: Image or CompressedImage.
            depth: Image or CompressedImage with depth of the same size.

        Raises:
            UserError: an encoding that is not supported, or fields and sizes that do not fit.
        """
        refined_u16 = self.refiner(rgb_of(picture), depth_of(depth))  # metres * 256
        return self.make_image(header=depth.header, **depth_fields(refined_u16, self.encoding))
