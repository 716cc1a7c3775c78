"""Bags written by rosbags, with pictures, depth and calibrations of a camera."""

from dataclasses import dataclass

import cv2
import numpy as np
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import Reader, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

TYPES = get_typestore(Stores.ROS2_HUMBLE)
IMAGE, COMPRESSED, INFO = (
    f"sensor_msgs/msg/{name}" for name in ("Image", "CompressedImage", "CameraInfo")
)
COLOR, DEPTH = "/camera/color/image_raw", "/camera/depth/image_raw"
DEPTH_INFO = "/camera/depth/camera_info"
SENSOR_DATA = Qos(  # what camera drivers offer
    QosHistory.KEEP_LAST, 5, QosReliability.BEST_EFFORT, QosDurability.VOLATILE,
    QosTime(2147483647, 4294967295), QosTime(2147483647, 4294967295), QosLiveliness.AUTOMATIC,
    QosTime(2147483647, 4294967295), False,
)  # fmt: skip
START_NS = 1_700_000_000_123_456_789
FRAME_NS = 33_333_333


def header(stamp_ns, frame_id="camera_depth_optical_frame"):
    """A std_msgs/Header."""
    stamp = TYPES.types["builtin_interfaces/msg/Time"](
        sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9
    )
    return TYPES.types["std_msgs/msg/Header"](stamp=stamp, frame_id=frame_id)


def image(pixels, encoding, stamp_ns=0, padding=0, big_endian=False, **fields):
    """An Image of pixels [H, W] or [H, W, C]; with `padding`, each row ends with unused bytes."""
    stored = pixels.astype(pixels.dtype.newbyteorder(">")) if big_endian else pixels
    rows = np.ascontiguousarray(stored).reshape(len(pixels), -1).view(np.uint8)
    rows = np.pad(rows, ((0, 0), (0, padding)), constant_values=77)
    given = {
        "height": len(pixels),
        "width": pixels.shape[1],
        "encoding": encoding,
        "is_bigendian": int(big_endian),
        "step": rows.shape[1],
        "data": rows.reshape(-1),
    }
    return TYPES.types[IMAGE](header=header(stamp_ns), **given | fields)


def compressed(data, form, stamp_ns=0):
    """A CompressedImage of a file's bytes."""
    return TYPES.types[COMPRESSED](
        header=header(stamp_ns), format=form, data=np.frombuffer(data, np.uint8)
    )


def camera_info(stamp_ns=0, focal=500.0):
    """A CameraInfo of 64x48 pixels."""
    region = TYPES.types["sensor_msgs/msg/RegionOfInterest"](
        x_offset=0, y_offset=0, height=0, width=0, do_rectify=False
    )
    k = np.array([focal, 0, 31.5, 0, focal, 23.5, 0, 0, 1])
    return TYPES.types[INFO](
        header=header(stamp_ns), height=48, width=64, distortion_model="plumb_bob",
        d=np.array([0.1, -0.2, 0.0, 0.0, 0.05]), k=k, r=np.eye(3).reshape(-1),
        p=np.zeros(12), binning_x=0, binning_y=0, roi=region,
    )  # fmt: skip


@dataclass
class Frames:
    """Pictures uint8 [H, W, 3] and depth uint16 [H, W] in millimetres."""

    rgb: list
    depth_mm: list


def random_frames(count):
    """Frames of 64x48 pixels; a tenth of the depth is invalid."""
    made = Frames([], [])
    for seed in range(count):
        rng = np.random.default_rng(seed)
        made.rgb.append(cv2.blur(rng.integers(0, 256, (48, 64, 3)).astype(np.uint8), (9, 9)))
        depth = cv2.blur(rng.integers(400, 9000, (48, 64)).astype(np.uint16), (5, 5))
        made.depth_mm.append(np.where(rng.random((48, 64)) < 0.1, 0, depth).astype(np.uint16))
    return made


def camera(frames, picture_lag_ns=0):
    """(topic, type, message, time of the record) of every message of a depth camera."""
    for number, (rgb, depth) in enumerate(zip(frames.rgb, frames.depth_mm, strict=True)):
        at = START_NS + number * FRAME_NS
        yield DEPTH_INFO, INFO, camera_info(at), at + 1
        yield COLOR, IMAGE, image(rgb, "rgb8", at + picture_lag_ns), at + 2
        yield DEPTH, IMAGE, image(depth, "16UC1", at), at + 3


def write_bag(path, messages, storage="mcap", compression=None, qos=()):
    """Write (topic, type, message, time) as a bag; returns its path.

    A message may also be bytes, or None: then the topic is only declared.
    """
    writer = Writer(path, version=8, storage_plugin=StoragePlugin[storage.upper()])
    if compression:
        writer.set_compression(*compression)
    connections = {}
    with writer:
        for topic, kind, message, at in messages:
            if topic not in connections:
                connections[topic] = writer.add_connection(
                    topic, kind, typestore=TYPES, offered_qos_profiles=qos
                )
            if message is not None:
                raw = message if isinstance(message, bytes) else TYPES.serialize_cdr(message, kind)
                writer.write(connections[topic], at, raw)
    return path


def read_bag(path):
    """Every message of a bag by topic, as (time, message), in order."""
    found = {}
    with Reader(path) as reader:
        for connection, at, raw in reader.messages():
            message = TYPES.deserialize_cdr(raw, connection.msgtype)
            found.setdefault(connection.topic, []).append((at, message))
    return found
