"""Reads the search space from SEARCH of a config, which mirrors the config tree.

`[a, b, c]` is a choice, `{low, high}` a range, with `log: true` or `step: s` if wanted. Where the
config has a group of keys, a list of mappings chooses a branch, each with its own ranges.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoerefine.config import Config
from zoerefine.config.search_values import check_search, is_group, is_range, is_single
from zoerefine.errors import UserError
from zoerefine.searching.space import Choice, Option, Parameter, Range, Scalar, Values, same

LABEL = 60  # characters of a branch's name


def read_space(cfg: Config) -> tuple[Parameter, ...]:
    """The parameters of a config's SEARCH, in its order.

    Raises `UserError` for an unknown key, a value that its key may not have, an empty list, or an
    impossible range, each with the key's path.
    """
    space = tuple(_read(check_search(cfg.SEARCH), "", "", {}))
    if not space:
        raise UserError("SEARCH is empty: give it a list or a range under a config key's name")
    return space


def _read(tree: Mapping[str, Any], prefix: str, names: str, fixed: Values) -> Iterator[Parameter]:
    """The parameters of a sub-tree; its single values go into `fixed`.

    Keys begin with `prefix`, and names with `names`, which is another inside an alternative: the
    same key may be searched in several.
    """
    branch = names != prefix
    for word, value in tree.items():
        key, name = f"{prefix}{word}", f"{names}{word}"
        if is_group(key) and isinstance(value, list):
            yield _sub_trees(key, name, value)
        elif is_group(key):
            yield from _read(value, f"{key}.", f"{name}.", fixed)
        elif is_range(value):
            yield _range(key, name, value)
        elif branch and is_single(key, value):
            fixed[key] = value
            yield from _ranges_inside(value, key, name, "")
        else:
            yield _choice(key, name, value)


def _sub_trees(key: str, name: str, trees: Sequence[Any]) -> Choice:
    """A choice of sub-trees of a group."""
    options = []
    for number, tree in enumerate(trees):
        fixed: Values = {}
        inner = tuple(_read(tree, f"{key}.", f"{name}[{number}].", fixed))
        label = ", ".join(f"{k.removeprefix(key + '.')} {v}" for k, v in fixed.items())
        options.append(Option(label[:LABEL] or f"[{number}]", fixed, inner))
    return _checked(key, name, options, trees)


def _choice(key: str, name: str, values: Sequence[Any]) -> Choice:
    """A choice of values of a key; a value that is a list may hold ranges inside it."""
    options = []
    for number, value in enumerate(values):
        inner = tuple(_ranges_inside(value, key, f"{name}[{number}]", ""))
        label = value if isinstance(value, Scalar) else json.dumps(value, sort_keys=True)
        options.append(Option(label, {key: value}, inner))
    return _checked(key, name, options, values)


def _checked(key: str, name: str, options: list[Option], values: Sequence[Any]) -> Choice:
    if any(same(a.label, b.label) for a, b in itertools.combinations(options, 2)):
        raise UserError(f"SEARCH.{key} lists a value twice: {list(values)}")
    return Choice(name, tuple(options))


def _ranges_inside(value: Any, key: str, name: str, path: str) -> Iterator[Range]:
    """The ranges that stand somewhere inside a value that is a list."""
    if is_range(value):
        yield _range(f"{key}{path}", f"{name}{path}", value)
    elif isinstance(value, Mapping | list):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for word, inside in items:
            yield from _ranges_inside(inside, key, name, f"{path}.{word}")


def _range(key: str, name: str, bounds: Mapping[str, Any]) -> Range:
    log, step = bounds.get("log", False), bounds.get("step")
    return Range(name, key, bounds["low"], bounds["high"], log, step)
