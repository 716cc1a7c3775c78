"""Ranges to search, of whole numbers or of fractions: their ends, steps and length, checked."""

import math
from collections.abc import Mapping
from typing import Any

from zoerefine.base.config.value_types import (
    Flag,
    Integer,
    Number,
    OpenMapping,
    PlainData,
    ValueType,
    WrongValue,
    shown,
)

MOST_IN_RANGE = 2**53  # values of a range with steps or of integers; floats count exactly
RANGE_KEYS = ("low", "high", "log", "step")


def read_range(type: ValueType, bounds: Mapping[str, Any], place: str) -> dict[str, Any]:
    """A range of a number, checked. Raises `WrongValue`."""
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
