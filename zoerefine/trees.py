"""Nested mappings as one level: `{"TRAIN": {"LR": 1}}` is `{"TRAIN.LR": 1}`."""

from collections.abc import Mapping
from typing import Any


def flatten(tree: Mapping[str, Any], joint: str = ".", prefix: str = "") -> dict[str, Any]:
    """The leaves of a tree by their path. A list is a leaf; an empty mapping has no leaves."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}{joint}{key}" if prefix else str(key)
        if isinstance(value, Mapping):
            flat |= flatten(value, joint, path)
        else:
            flat[path] = value
    return flat
