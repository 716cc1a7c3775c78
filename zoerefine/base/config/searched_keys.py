"""Which keys of a config can be searched, and the values to try under SEARCH, checked.

They are keys of our own training, or of a script's config. SEARCH mirrors the config tree. `[a, b]`
is a choice and `{low, high, log, step}` a range (search_ranges.py). Where a group of keys stands, a
list holds sub-trees, whose single values are set where they are chosen.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from zoerefine.base.config.schema import GROUPS, KEYS, SEARCH
from zoerefine.base.config.search_ranges import has_range, is_range, path_below, read_range
from zoerefine.base.config.value_types import (
    ListOf,
    MappingOf,
    OpenMapping,
    PlainData,
    ValueType,
    WrongValue,
    shown,
)
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
TextOf = Callable[[str], str | None]


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


def is_single_value(type: ValueType | None, value: Any) -> bool:
    """Whether a value in a chosen sub-tree is one value of its key, not a choice of several."""
    if isinstance(value, list):
        holds_lists = isinstance(type, ListOf) or (
            isinstance(type, PlainData) and isinstance(type.like, list)
        )
        return holds_lists and not all(isinstance(one, list) for one in value)
    return True


def read_search(
    tree: Any, text_of: TextOf = lambda key: None, keys: SearchedKeys = OWN_KEYS
) -> dict[str, Any]:
    """A SEARCH tree with every value as its key's type. Raises `WrongValue`."""
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        raise WrongValue(SEARCH, f"must mirror the config tree, got {shown(tree)}")
    return _Reader(text_of, keys).group(tree, "", SEARCH, chosen=False)


class _Reader:
    """Reads sub-trees. `key` is a config key, `place` the same inside SEARCH."""

    def __init__(self, text_of: TextOf, keys: SearchedKeys) -> None:
        self.text_of, self.keys = text_of, keys

    def group(
        self, tree: Mapping[str, Any], prefix: str, place: str, chosen: bool
    ) -> dict[str, Any]:
        """The keys of a group; `chosen` where it is one of several sub-trees."""
        found = {}
        for word, value in tree.items():
            key, inside = f"{prefix}{word}", f"{place}.{word}"
            type = self.keys.type_of(key)
            if self.keys.is_group(key):
                found[word] = self.sub_trees(value, key, inside, chosen)
            elif type is not None:
                found[word] = self.leaf(type, value, key, inside, chosen)
            else:
                raise WrongValue(inside, f"cannot be searched: {self.keys.unknown(key)}")
        return found

    def sub_trees(self, value: Any, key: str, place: str, chosen: bool) -> Any:
        if isinstance(value, Mapping):
            return self.group(value, f"{key}.", place, chosen)
        if not isinstance(value, list) or not value:
            raise WrongValue(
                place, f"must be a group of keys or a list of such groups, got {shown(value)}"
            )
        found = []
        for number, one in enumerate(value):
            if not isinstance(one, Mapping):
                raise WrongValue(
                    f"{place}.{number}",
                    f"must be a group of keys such as {{NAME: ...}}, got {shown(one)}",
                )
            found.append(self.group(one, f"{key}.", f"{place}.{number}", chosen=True))
        return found

    def leaf(self, type: ValueType, value: Any, key: str, place: str, chosen: bool) -> Any:
        """A choice, a range, or where it is `chosen` a single value."""
        if is_range(value):
            return read_range(type, value, place)
        if chosen and is_single_value(type, value):
            return self.value(type, value, place)
        if isinstance(value, list) and value:
            return [self.value(type, one, f"{place}.{n}") for n, one in enumerate(value)]
        if below := path_below(value):
            raise WrongValue(
                f"{place}{below}", f"cannot be searched: {self.keys.unknown(f'{key}{below}')}"
            )
        raise WrongValue(
            place,
            f"must be a list of values to try, or {{low, high, log, step}}, got {shown(value)}",
        )

    def value(self, type: ValueType, value: Any, place: str) -> Any:
        """One value; a list or a mapping may hold ranges inside it."""
        if is_range(value):
            return read_range(type, value, place)
        if has_range(value) and isinstance(type, ListOf):
            return [self.value(type.element, one, f"{place}.{n}") for n, one in enumerate(value)]
        if has_range(value) and isinstance(type, PlainData) and isinstance(value, list):
            return [self.value(PlainData(), one, f"{place}.{n}") for n, one in enumerate(value)]
        if has_range(value) and isinstance(type, PlainData):
            return {
                name: self.value(PlainData(), one, f"{place}.{name}") for name, one in value.items()
            }
        if has_range(value) and isinstance(type, MappingOf) and set(value) == set(type.fields):
            return {
                name: self.value(type.fields[name], one, f"{place}.{name}")
                for name, one in value.items()
            }
        if isinstance(type, OpenMapping):
            return type.read({"value": value}, place)["value"]
        return type.read(type.as_written(value, place, self.text_of), place)
