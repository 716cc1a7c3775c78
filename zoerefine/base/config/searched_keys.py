"""Which keys of a config can be searched, and of which type: of our own schema, or of any tree."""

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from zoerefine.base.config.collection_types import ListOf, OpenMapping
from zoerefine.base.config.schema import GROUPS, KEYS
from zoerefine.base.config.value_types import Integer, Number, Text, ValueType
from zoerefine.base.yaml.keys import flatten

OTHER_DATA = "trials of other data cannot be compared: begin a study for each"
# Groups of keys that are the same for all trials of a study, and why.
FIXED_GROUPS = {
    "RUN": "it says where the study is written",
    "DATA": OTHER_DATA,
    "CACHE": OTHER_DATA,
    "STUDY": "it describes the search itself",
    "CLUSTER": "it says what a cluster reserves",
}
OPTIONS = "MODEL.OPTIONS"


class SearchedKeys(Protocol):
    """The keys that a SEARCH tree may name."""

    def is_group(self, key: str) -> bool:
        """Whether a key is a group of keys that can be searched."""

    def type_of(self, key: str) -> ValueType | None:
        """The type of a key's values; None where it cannot be searched."""

    def unknown(self, key: str) -> str:
        """Why a key cannot be searched."""


class SchemaKeys:
    """The keys of our own training."""

    def is_group(self, key: str) -> bool:
        return key == OPTIONS or (key in GROUPS and key not in FIXED_GROUPS)

    def type_of(self, key: str) -> ValueType | None:
        if key in KEYS and key.partition(".")[0] not in FIXED_GROUPS:
            return KEYS[key].type
        group, _, word = key.rpartition(".")
        return OpenMapping() if group == OPTIONS and word.isidentifier() else None

    def unknown(self, key: str) -> str:
        group = key.partition(".")[0]
        return FIXED_GROUPS.get(group, f"{key} is no config key of a training")


OWN_KEYS = SchemaKeys()


@dataclass(frozen=True)
class TreeKeys:
    """The keys of a script's config. The value that a key has there shows its type."""

    tree: Mapping[str, Any]

    def is_group(self, key: str) -> bool:
        return isinstance(self._node(key), Mapping)

    def type_of(self, key: str) -> ValueType | None:
        node = self._node(key)
        return None if node is self else PlainData(node)

    def unknown(self, key: str) -> str:
        known = list(flatten(self.tree))
        same_word = [one for one in known if one.rpartition(".")[2] == key.rpartition(".")[2]]
        close = same_word or difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)[:200]}"
        return f"the config has no key {key}; {hint}"

    def _node(self, key: str) -> Any:
        """What is at a key; this object itself where there is nothing."""
        node: Any = self.tree
        for word in key.split("."):
            if not isinstance(node, Mapping) or word not in node:
                return self
            node = node[word]
        return node


@dataclass(frozen=True)
class PlainData(ValueType):
    """Values for a key that now has the value `like`; null allows everything, and is allowed."""

    like: Any = None

    @property
    def allowed(self) -> str:
        if isinstance(self.like, bool):
            return "true or false"
        if isinstance(self.like, int | float):
            return "a number"
        return "a text" if isinstance(self.like, str) else "plain data without NaN"

    def read(self, value: Any, key: str) -> Any:
        if isinstance(value, float) and math.isnan(value):
            raise self.wrong(value, key)
        if value is None or self.like is None or isinstance(self.like, list | Mapping):
            return value
        if isinstance(self.like, str):
            fits = isinstance(value, str)
        elif isinstance(self.like, bool) or isinstance(value, bool):
            fits = isinstance(self.like, bool) and isinstance(value, bool)
        else:
            fits = isinstance(value, int | float)
        if not fits:
            raise self.wrong(value, key)
        return float(value) if isinstance(self.like, float) else value

    def as_written(self, value: Any, key: str, text_of: Callable[[str], str | None]) -> Any:
        if not isinstance(self.like, str):
            return value
        return Text().as_written(value, key, text_of)

    def number(self, bounds: Mapping[str, Any]) -> ValueType:
        """The type of a range's numbers: whole only where both bounds and `like` are."""
        if self.like is not None and self.allowed != "a number":
            return self
        whole = all(isinstance(bounds[end], int) for end in ("low", "high"))
        return Integer() if whole and not isinstance(self.like, float) else Number()


def is_single(keys: SearchedKeys, key: str, value: Any) -> bool:
    """Whether a value in a chosen sub-tree is one value of its key, not a choice of several."""
    return is_single_value(keys.type_of(key) or OpenMapping(), value)


def is_single_value(type: ValueType, value: Any) -> bool:
    """As `is_single`, for a type."""
    if isinstance(value, list):
        holds_lists = isinstance(type, ListOf) or (
            isinstance(type, PlainData) and isinstance(type.like, list)
        )
        return holds_lists and not all(isinstance(one, list) for one in value)
    return True
