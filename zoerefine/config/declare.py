"""How config keys are declared: a key is a field of a dataclass, a group of keys the dataclass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from zoerefine.config.value_types import Number, Text, ValueType

SHARE = Number(at_least=0, at_most=1)
SHARE_BELOW_ONE = Number(at_least=0, below=1)
POSITIVE_SHARE = Number(above=0, at_most=1)
MOST_SEED = 2**63 - 1


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
    """Declare a key that names a file or folder; relative ones start in the caller's folder."""
    return key(Text("a path"), default, meaning, is_path=True)


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
