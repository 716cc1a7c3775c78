"""The library `rosbags`, imported only where a bag is used."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from zoerefine.errors import UserError, damage, storage_fault

INSTALL = "pip install 'zoerefine[ros]' -c requirements.lock"
IMAGE = "sensor_msgs/msg/Image"
COMPRESSED_IMAGE = "sensor_msgs/msg/CompressedImage"
CAMERA_INFO = "sensor_msgs/msg/CameraInfo"


def require_rosbags() -> None:
    """Raises `UserError` where rosbags is not installed."""
    try:
        import rosbags.rosbag2  # noqa: F401
    except ImportError:
        raise UserError(f"ROS bags need the package rosbags: {INSTALL}") from None


@cache
def typestore() -> Any:
    """The message types. The ones used here are the same in every ROS 2 distribution."""
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_HUMBLE)


@contextmanager
def naming_faults(path: Path) -> Iterator[None]:
    """Turn what rosbags raises for damaged data, which can be any exception, into a `UserError`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if storage_fault(error):
            raise
        reason = damage(error).removesuffix(".")
        raise UserError(
            f"{path} cannot be read as a ROS 2 bag: {reason}: copy it again, or repair it "
            "(metadata: `ros2 bag reindex`; a cut file: `mcap recover`, `sqlite3 .recover`)"
        ) from None
