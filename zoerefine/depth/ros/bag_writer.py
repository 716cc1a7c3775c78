"""A ROS 2 bag that appears whole or not at all.

It is written in a hidden folder beside its place, flushed and renamed. That folder has a lock, so
that two commands never write one bag, and the next command removes what a killed one left.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from zoerefine.base.errors import UserError
from zoerefine.base.files.atomic import sync_file_system, sync_folder
from zoerefine.base.files.locks import try_lock
from zoerefine.depth.infer.results import BUNDLE
from zoerefine.depth.ros.bag_reader import METADATA, open_bag, typestore

STORAGES = "mcap", "sqlite3"
VERSION = 8  # of metadata.yaml: the newest one that distributions before Kilted read


class BagWriter:
    """An open bag; used by one thread."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._connections: dict[str, Any] = {}

    def add_topic(self, topic: str, kind: str, qos_profiles: list[Any]) -> None:
        """Add a topic with messages of a type."""
        self._connections[topic] = self._writer.add_connection(
            topic, kind, typestore=typestore(), offered_qos_profiles=qos_profiles
        )

    def write(self, topic: str, recorded_ns: int, raw: bytes | memoryview) -> None:
        """Write a serialized message."""
        self._writer.write(self._connections[topic], recorded_ns, raw)


@contextmanager
def new_bag(path: Path, storage: str, provenance: Mapping[str, str]) -> Iterator[BagWriter]:
    """Write a bag, which replaces an older one at `path` when it is complete.

    Args:
        storage: one of `STORAGES`.
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
            publish(written, path, half / "replaced")
        except sqlite3.Error as error:
            raise UserError(f"{path} cannot be written: {error}") from None
        finally:
            shutil.rmtree(half, ignore_errors=True)


def publish(written: Path, path: Path, replaced: Path) -> None:
    """Rename a complete bag to its place."""
    if path.exists():
        os.replace(path, replaced)
    os.replace(written, path)
    sync_folder(path.parent)


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
