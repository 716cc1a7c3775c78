"""ROS 2 bags: folders with metadata.yaml, mcap and db3 files, read and written message by message.

Bags with zstd compression are read, too; where whole files are compressed, rosbags first unpacks
them into the folder for temporary files.

A new bag appears whole or not at all. It is written in a hidden folder beside its place, flushed
and renamed. That folder has a lock, so that two commands never write one bag, and the next command
removes what a killed one left.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from zoerefine.base.errors import UserError, damage, needed
from zoerefine.base.files.atomic import sync, sync_file_system
from zoerefine.base.files.file_lock import try_lock
from zoerefine.base.files.storage_faults import storage_fault
from zoerefine.depth.infer.results import BUNDLE
from zoerefine.depth.infer.sources import file_fingerprint
from zoerefine.depth.ros.image_messages import stamp_ns
from zoerefine.depth.ros.stamp_pairs import StampedMessage

VERSION = 8  # of metadata.yaml: the newest one that distributions before Kilted read
IMAGE = "sensor_msgs/msg/Image"
COMPRESSED_IMAGE = "sensor_msgs/msg/CompressedImage"
CAMERA_INFO = "sensor_msgs/msg/CameraInfo"


def require_rosbags() -> None:
    """Raises `UserError` where rosbags is not installed."""
    with needed("ROS bags need the package rosbags", "ros"):
        import rosbags.rosbag2  # noqa: F401


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


METADATA = "metadata.yaml"
STORAGE_SUFFIXES = ".mcap", ".db3"


class BagReader:
    """An open bag.

    Attributes:
        types: the message type of each topic.
        counts: the number of messages of each topic.
    """

    def __init__(self, path: Path, reader: Any) -> None:
        self.path, self._reader = path, reader
        self.types: dict[str, str] = {one.topic: one.msgtype for one in reader.connections}
        self.counts = dict.fromkeys(self.types, 0)
        for connection in reader.connections:
            self.counts[connection.topic] += connection.msgcount

    def qos_profiles(self, topic: str) -> list[Any]:
        """The quality of service that the publishers of a topic offered."""
        profiles: list[Any] = self._connections([topic])[0].ext.offered_qos_profiles
        return profiles

    def first(self, topic: str) -> StampedMessage | None:
        return next(self._messages([topic]), None)

    def messages(self, topics: Iterable[str]) -> Iterator[StampedMessage]:
        """The messages of some topics, in the order in which they were recorded.

        Raises `UserError` for damage, and at the end if a topic has another number of messages than
        the bag states.
        """
        left = {topic: self.counts[topic] for topic in topics}
        for message in self._messages(list(left)):
            left[message.topic] -= 1
            yield message
        for topic, missing in left.items():
            stated = self.counts[topic]
            if missing:
                raise UserError(
                    f"{self.path} is damaged: it states {stated} messages of {topic}, and "
                    f"{stated - missing} can be read; `ros2 bag reindex` repairs its metadata"
                )

    def fingerprint(self) -> str:
        """A text that changes when a file of the bag changes."""
        files = sorted(self.path.iterdir()) if self.path.is_dir() else [self.path]
        return "\n".join(map(file_fingerprint, files))

    def _messages(self, topics: list[str]) -> Iterator[StampedMessage]:
        with naming_faults(self.path):
            found = self._reader.messages(self._connections(topics))
        while True:
            with naming_faults(self.path):
                connection, recorded_ns, raw = next(found, (None, 0, b""))
                if connection is None:
                    return
                content = typestore().deserialize_cdr(raw, connection.msgtype)
                stamp = stamp_ns(content)
            yield StampedMessage(connection.topic, stamp, recorded_ns, content, raw)

    def _connections(self, topics: Iterable[str]) -> list[Any]:
        return [one for one in self._reader.connections if one.topic in topics]


@contextmanager
def open_bag(path: Path) -> Iterator[BagReader]:
    """Open a bag. Raises `UserError` where there is none, or it is damaged."""
    require_rosbags()
    from rosbags.rosbag2 import Reader

    check_is_bag(path)
    with naming_faults(path):
        reader = Reader(path)
        reader.open()
    try:
        yield BagReader(path, reader)
    finally:
        reader.close()


def check_is_bag(path: Path) -> None:
    """Raises `UserError` for what cannot be a ROS 2 bag."""
    if not path.exists():
        raise UserError(f"there is no bag {path}")
    if path.is_dir() and not (path / METADATA).exists():
        raise UserError(
            f"{path} is no ROS 2 bag, it has no {METADATA}: a recording that was not closed is "
            "repaired by `ros2 bag reindex`"
        )
    if path.is_file() and path.suffix not in STORAGE_SUFFIXES:
        hint = "; convert a bag of ROS 1 with `rosbags-convert`" if path.suffix == ".bag" else ""
        raise UserError(f"{path} is no ROS 2 bag: give its folder, a .mcap or a .db3 file{hint}")
    for log in sorted(path.glob("*.db3-wal")) if path.is_dir() else [Path(f"{path}-wal")]:
        if log.exists() and log.stat().st_size:  # rosbags would read the database without it
            database = str(log).removesuffix("-wal")
            raise UserError(
                f"{log} was not merged into its database: `sqlite3 {database} 'PRAGMA "
                "wal_checkpoint(TRUNCATE)'` does that"
            )


class BagWriter:
    """An open bag; used by one thread."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._connections: dict[str, Any] = {}

    def add_topic(self, topic: str, kind: str, qos_profiles: list[Any]) -> None:
        self._connections[topic] = self._writer.add_connection(
            topic, kind, typestore=typestore(), offered_qos_profiles=qos_profiles
        )

    def write(self, topic: str, recorded_ns: int, raw: bytes | memoryview) -> None:
        self._writer.write(self._connections[topic], recorded_ns, raw)


@contextmanager
def new_bag(path: Path, storage: str, provenance: Mapping[str, str]) -> Iterator[BagWriter]:
    """Write a bag, which replaces an older one at `path` when it is complete.

    Args:
        storage: mcap or sqlite3.
        provenance: what `is_done` compares, written into the bag's metadata.

    Raises:
        UserError: another command is writing this bag, or it cannot be written.
    """
    from rosbags.rosbag2 import StoragePlugin, Writer

    half = path.with_name(f".{path.name}.half-written")
    with try_lock(half / "lock") as free:
        if free is None:
            raise UserError(f"another command is writing {path}: wait for it, or stop it")
        written = half / path.name  # the files inside have the bag's name
        shutil.rmtree(written, ignore_errors=True)
        try:
            plugin = StoragePlugin[storage.upper()]
            with Writer(written, version=VERSION, storage_plugin=plugin) as writer:
                for key, value in provenance.items():
                    writer.set_custom_data(key, value)
                yield BagWriter(writer)
            sync_file_system(written)
            if path.exists():
                os.replace(path, half / "replaced")
            os.replace(written, path)
            sync(path.parent)
        except sqlite3.Error as error:
            raise UserError(f"{path} cannot be written: {error}") from None
        finally:
            shutil.rmtree(half, ignore_errors=True)


def is_done(path: Path, provenance: Mapping[str, str]) -> bool:
    """Whether a bag with this provenance exists and can be opened.

    Raises `UserError` if there is anything that zoerefine has not written.
    """
    if not path.is_symlink() and not path.exists():
        return False
    found = custom_data(path)
    if BUNDLE not in found:
        raise UserError(
            f"{path} was not written by zoerefine and would be overwritten: move it, or give "
            "another --out"
        )
    if found != provenance:
        return False
    try:
        with open_bag(path):
            return True
    except UserError:
        return False


def custom_data(path: Path) -> dict[str, str]:
    """What the writer of a bag noted in its metadata; empty for anything else."""
    try:
        metadata = yaml.safe_load((path / METADATA).read_text(encoding="utf-8"))
        return dict(metadata["rosbag2_bagfile_information"]["custom_data"])
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        return {}
