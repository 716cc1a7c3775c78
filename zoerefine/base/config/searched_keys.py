"""Which keys of a config can be searched: those of our own training, or of a script's config."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from zoerefine.base.config.schema import GROUPS, KEYS
from zoerefine.base.config.value_types import OpenMapping, PlainData, ValueType
from zoerefine.base.yaml.keys import flatten, has_key, value_at

OTHER_DATA = "trials of other data cannot be compared: begin a study for each"
OTHER_SIZE = "trials are measured at this size and could not be compared: begin a study for each"
# Keys, and groups of keys, that are the same for all trials of a study, and why.
FIXED_KEYS = {
    "LOADER.HEIGHT": OTHER_SIZE,
    "LOADER.WIDTH": OTHER_SIZE,
    "RUN": "it says where the study is written",
    "DATA": OTHER_DATA,
    "CACHE": OTHER_DATA,
    "STUDY": "it describes the search itself",
    "CLUSTER": "it says what a cluster reserves",
}
OPTIONS = "MODEL.OPTIONS"


def why_fixed(key: str) -> str:
    """Why a key of our own training is the same for all trials; empty where it is not."""
    return FIXED_KEYS.get(key) or FIXED_KEYS.get(key.partition(".")[0], "")


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
        return key == OPTIONS or (key in GROUPS and key not in FIXED_KEYS)

    def type_of(self, key: str) -> ValueType | None:
        if key in KEYS and not why_fixed(key):
            return KEYS[key].type
        group, _, word = key.rpartition(".")
        return OpenMapping() if group == OPTIONS and word.isidentifier() else None

    def unknown(self, key: str) -> str:
        return why_fixed(key) or f"{key} is no config key of a training"


OWN_KEYS = SchemaKeys()


@dataclass(frozen=True)
class TreeKeys:
    """The keys of a script's config. The value that a key has there shows its type."""

    tree: Mapping[str, Any]

    def is_group(self, key: str) -> bool:
        return has_key(self.tree, key) and isinstance(value_at(self.tree, key), Mapping)

    def type_of(self, key: str) -> ValueType | None:
        return PlainData(value_at(self.tree, key)) if has_key(self.tree, key) else None

    def unknown(self, key: str) -> str:
        known = list(flatten(self.tree))
        same_word = [one for one in known if one.rpartition(".")[2] == key.rpartition(".")[2]]
        close = same_word or difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)[:200]}"
        return f"the config has no key {key}; {hint}"
