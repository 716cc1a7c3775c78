"""Whether two values of configs are equal: `1` and `1.0` are, `1` and `"1"` are not."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from zoerefine.base.yaml.keys import mapped

# Numbers by another spelling than the usual one: 007, 1.10, 2.00, 0x10.
FURTHER_ZEROS = re.compile(r"[-+]?(0\d.*|\d*\.(\d*[1-9])?0+(?<!\.0)|0[xXoO].*)")


def exact_text(value: Any) -> str:
    """A value as JSON, which differs where a script may tell values apart: `1`, `1.0`, `"1"`."""
    return json.dumps(value, sort_keys=True, default=str)


TYPED, EXACT = 7, 17  # digits: of numbers that people type, and those that tell any two apart


def number_text(value: float, digits: int) -> str:
    """A number in full as people type it, such as 0.999; a longer one with at least `digits`.

    It has more where these would make a whole number of it that it is not.
    """
    typed = f"{value:.{TYPED}g}"
    if float(typed) == value or not math.isfinite(value):
        return typed
    texts = [f"{value:.{count}g}" for count in range(digits, EXACT + 1)]
    keeps = (one for one in texts if value.is_integer() or not float(one).is_integer())
    return next(keeps, texts[-1])


def equal_text(value: Any) -> str:
    """A value as JSON, which is the same for equal values alone.

    `1` and `1.0` are equal; `1`, `"1"` and `true` are not, nor are null and `"None"`.
    """
    return exact_text(mapped(value, _whole))


def equal_text_at(tree: Mapping[str, Any], key: str) -> str:
    """The equal text of a key's value; empty where there is no such key."""
    return equal_text(tree[key]) if key in tree else ""


def _whole(value: Any) -> Any:
    """A float that is whole as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def exact_text_at(tree: Mapping[str, Any], key: str) -> str:
    """The exact text of a key's value; empty where there is no such key, which is not null."""
    return exact_text(tree[key]) if key in tree else ""


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Both values of the keys whose `exact_text_at` differs, those of `one` first; None where one
    has none.
    """
    return {
        key: (one.get(key), other.get(key))
        for key in {**one, **other}
        if exact_text_at(one, key) != exact_text_at(other, key)
    }


def same_data(one: Any, other: Any) -> bool:
    """Whether two trees of plain data are equal; 1 is 1.0 but not True, and NaN equals NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_data(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_data, one, other))
    alike = isinstance(one, bool) == isinstance(other, bool)
    return (alike and one == other) or (one != one and other != other)
