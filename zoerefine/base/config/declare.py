"""How config keys are declared: a key is a field of a dataclass, a group of keys the dataclass."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from zoerefine.base.config.value_types import Number, Text, ValueType

SHARE = Number(at_least=0, at_most=1)
SHARE_BELOW_ONE = Number(at_least=0, below=1)
POSITIVE_SHARE = Number(above=0, at_most=1)
MOST_SEED = 2**63 - 1
MOST_EPOCHS = 100_000
MOST_WEIGHT = 1e6  # of a term or a scene; their sum is finite
LONGEST_S = 10**9  # a time in seconds


@dataclass(frozen=True)
class Key:
    """One config key."""

    name: str  # TRAIN.LR
    type: ValueType
    default: Any
    meaning: str
    unit: str
    is_path: bool = False


def key(type: ValueType, default: Any, meaning: str, unit: str = "", is_path: bool = False) -> Any:
    """Declare a key of a group."""
    facts = {"type": type, "default": default, "meaning": meaning, "unit": unit,
             "is_path": is_path}  # fmt: skip
    return field(metadata=facts)


def group() -> Any:
    """Declare a group of keys."""
    return field()


def path(default: str, meaning: str) -> Any:
    """Declare a key that names a file or folder; relative ones start in the caller's folder.

    Only a path whose default is empty may be empty.
    """
    return key(PATH if not default else FILLED_PATH, default, meaning, is_path=True)


def path_fault(text: str) -> str:
    """Why no system has a file at a path; empty where one can be."""
    if len(os.fsencode(text)) > MOST_PATH_BYTES:
        return f"it is longer than {MOST_PATH_BYTES} bytes"
    if any(len(os.fsencode(part)) > MOST_PART_BYTES for part in text.split("/")):
        return f"a part between slashes is longer than {MOST_PART_BYTES} bytes"
    return ""


def filled_path_fault(text: str) -> str:
    """As `path_fault`, for a path that cannot be left out."""
    return path_fault(text) or ("" if text else "it is empty")


MOST_PATH_BYTES, MOST_PART_BYTES = 4000, 255  # Linux: PATH_MAX with a file's name, NAME_MAX
PATH = Text("a path", path_fault)
FILLED_PATH = Text("a path", filled_path_fault)


if TYPE_CHECKING:
    Node = Mapping[str, Any]
else:
    Node = object


class KeyGroup(Node):
    """A group of keys.

    No group is ever made: at run time a config is a tree of YACS nodes. Type checkers are shown
    these classes instead, with the methods of a node that are used.
    """

    if TYPE_CHECKING:

        def __setitem__(self, name: str, value: Any) -> None: ...
        def clone(self) -> Self: ...
        def freeze(self) -> None: ...
        def defrost(self) -> None: ...
