"""The values to try under SEARCH, checked: choices and ranges, of whole numbers or of fractions.

SEARCH mirrors the config tree. `[a, b]` is a choice and `{low, high, log, step}` a range. Where a
group of keys stands, a list holds sub-trees, whose single values are set where they are chosen.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from zoerefine.base.config.schema import SEARCH
from zoerefine.base.config.searched_keys import OWN_KEYS, SearchedKeys
from zoerefine.base.config.value_types import (
    Flag,
    Integer,
    ListOf,
    MappingOf,
    Number,
    OpenMapping,
    PlainData,
    ValueType,
    WrongValue,
    shown,
)


def is_single_value(type: ValueType | None, value: Any) -> bool:
    """Whether a value in a chosen sub-tree is one value of its key, not a choice of several."""
    if isinstance(value, list):
        holds_lists = isinstance(type, ListOf) or (
            isinstance(type, PlainData) and isinstance(type.like, list)
        )
        return holds_lists and not all(isinstance(one, list) for one in value)
    return True


MOST_IN_RANGE = 2**53  # values of a range with steps or of integers; floats count exactly
RANGE_KEYS = ("low", "high", "log", "step")
TextOf = Callable[[str], str | None]


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
            return self.range(type, value, place)
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
            return self.range(type, value, place)
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

    def range(self, type: ValueType, bounds: Mapping[str, Any], place: str) -> dict[str, Any]:
        """A range of a number."""
        unknown = set(bounds) - set(RANGE_KEYS)
        if unknown or not {"low", "high"} <= set(bounds):
            raise WrongValue(place, f"must be {{low, high, log, step}}, got {shown(dict(bounds))}")
        type = number_type(type, bounds)
        if not isinstance(type, Integer | Number):
            raise WrongValue(place, f"must be a list: a range needs a number, not {type.allowed}")
        found = {end: type.read(bounds[end], f"{place}.{end}") for end in ("low", "high")}
        if "log" in bounds:
            found["log"] = Flag().read(bounds["log"], f"{place}.log")
        if bounds.get("step") is not None:
            step = Integer(1) if isinstance(type, Integer) else Number(above=0)
            found["step"] = step.read(bounds["step"], f"{place}.step")
        if found["low"] > found["high"]:
            raise WrongValue(place, f"has low {found['low']} above high {found['high']}")
        if found.get("log") and (found["low"] <= 0 or "step" in found):
            raise WrongValue(place, "is a log range: it needs low above 0 and no step")
        check_length(found, place)
        return found


def number_type(type: ValueType, bounds: Mapping[str, Any]) -> ValueType:
    """The type of a range's numbers, for a key whose type is not declared.

    They are whole only where both bounds are, and where the config has no fraction.
    """
    if isinstance(type, OpenMapping):
        type = PlainData()
    if not isinstance(type, PlainData) or isinstance(type.like, bool | str | list | Mapping):
        return type
    whole = all(isinstance(bounds[end], int) for end in ("low", "high"))
    return Integer() if whole and not isinstance(type.like, float) else Number()


def check_length(bounds: Mapping[str, Any], place: str) -> None:
    """Raises `WrongValue` where a range has too many values, or is too long for a float."""
    length, step = bounds["high"] - bounds["low"], bounds.get("step")
    if isinstance(length, int):
        count: float = length // (step or 1)
    else:
        count = length / step if step else 0
    if count > MOST_IN_RANGE:
        raise WrongValue(place, f"has too many values, the limit is {MOST_IN_RANGE:,}: narrow it")
    if isinstance(length, float) and not math.isfinite(length):
        raise WrongValue(place, "is longer than a float can be: narrow it")


def is_range(value: Any) -> bool:
    """Whether a value is meant as a range."""
    return isinstance(value, Mapping) and bool({"low", "high"} & set(value))


def path_below(value: Any) -> str:
    """The path to a list or range that stands below a key, such as `.Y`; empty without one."""
    path = ""
    while isinstance(value, Mapping) and value and not is_range(value):
        word, value = next(iter(value.items()))
        path += f".{word}"
    return path if is_range(value) or isinstance(value, list) else ""


def has_range(value: Any) -> bool:
    """Whether a range stands somewhere inside a value."""
    if isinstance(value, Mapping):
        return is_range(value) or any(map(has_range, value.values()))
    return isinstance(value, list) and any(map(has_range, value))
