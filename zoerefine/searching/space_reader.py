"""Reads the search space from SEARCH of a config, which mirrors the config tree.

`[a, b, c]` is a choice, `{low, high}` a range, with `log: true` or `step: s` if wanted. Where the
config has a group of keys, a list of mappings chooses a branch, each with its own ranges.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoerefine.config.search_values import check_search, is_range
from zoerefine.config.searched_keys import OWN_KEYS, SearchedKeys, is_single
from zoerefine.errors import UserError
from zoerefine.searching.space import Choice, Option, Parameter, Range, Scalar, Values

LABEL = 60  # characters of a branch's label


def read_space(search: Mapping[str, Any], keys: SearchedKeys = OWN_KEYS) -> tuple[Parameter, ...]:
    """The parameters of a SEARCH tree, in its order.

    Raises `UserError` for an unknown key, a value that its key may not have, an empty list, or an
    impossible range, each with the key's path.
    """
    space = tuple(_read(keys, check_search(search, keys), "", "", {}))
    if not space:
        raise UserError("SEARCH is empty: give it a list or a range under a config key's name")
    return space


def _read(
    keys: SearchedKeys, tree: Mapping[str, Any], prefix: str, names: str, fixed: Values
) -> Iterator[Parameter]:
    """The parameters of a mapping; the single values of a branch go into `fixed`.

    Keys start with `prefix` and parameter names with `names`. The two differ inside a branch,
    because several branches may search the same key.
    """
    branch = names != prefix
    for word, value in tree.items():
        key, name = f"{prefix}{word}", f"{names}{word}"
        if keys.is_group(key) and isinstance(value, list):
            yield _branches(keys, key, name, value)
        elif keys.is_group(key):
            yield from _read(keys, value, f"{key}.", f"{name}.", fixed)
        elif is_range(value):
            yield _range(key, name, value)
        elif branch and is_single(keys, key, value):
            fixed[key] = value
            yield from _ranges_inside(value, key, name, "")
        else:
            yield _choice(key, name, value)


def _branches(keys: SearchedKeys, key: str, name: str, trees: Sequence[Any]) -> Choice:
    """A choice between branches of a group."""
    _check_distinct(key, trees)
    labels = [_branch_label(keys, key, tree) for tree in trees]
    options = []
    for number, (tree, label) in enumerate(zip(trees, labels, strict=True)):
        if not label or labels.count(label) > 1:
            label = f"{label} [{number}]".strip()
        fixed: Values = {}
        inner = tuple(_read(keys, tree, f"{key}.", f"{name}[{label}].", fixed))
        options.append(Option(label, fixed, inner))
    return Choice(name, tuple(options))


def _branch_label(keys: SearchedKeys, key: str, tree: Mapping[str, Any]) -> str:
    """A branch's name by the values that it sets, e.g. `NAME guided`; empty if it sets none."""
    fixed: Values = {}
    list(_read(keys, tree, f"{key}.", "", fixed))
    return ", ".join(f"{k.removeprefix(key + '.')} {v}" for k, v in fixed.items())[:LABEL]


def _choice(key: str, name: str, values: Sequence[Any]) -> Choice:
    """A choice of values of a key; a value that is a list may hold ranges inside it."""
    _check_distinct(key, values)
    options = []
    for number, value in enumerate(values):
        inner = tuple(_ranges_inside(value, key, f"{name}[{number}]", ""))
        label = value if isinstance(value, Scalar) else json.dumps(value, sort_keys=True)
        options.append(Option(label, {key: value}, inner))
    return Choice(name, tuple(options))


def _check_distinct(key: str, values: Sequence[Any]) -> None:
    texts = {json.dumps(value, sort_keys=True) for value in values}  # true and 1 differ
    if len(texts) < len(values):
        raise UserError(f"SEARCH.{key} lists a value twice: {list(values)}")


def _ranges_inside(value: Any, key: str, name: str, path: str) -> Iterator[Range]:
    """The ranges inside a value that is a list, at any depth."""
    if is_range(value):
        yield _range(f"{key}{path}", f"{name}{path}", value)
    elif isinstance(value, Mapping | list):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for word, inside in items:
            yield from _ranges_inside(inside, key, name, f"{path}.{word}")


def _range(key: str, name: str, bounds: Mapping[str, Any]) -> Range:
    log, step = bounds.get("log", False), bounds.get("step")
    return Range(name, key, bounds["low"], bounds["high"], log, step)
