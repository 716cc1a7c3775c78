"""Reads the search space from SEARCH of a config, which mirrors the config tree.

`[a, b, c]` is a choice, `{low, high}` a range, with `log: true` or `step: s` if wanted. Where the
config has a group of keys, a list of mappings chooses a branch, each with its own ranges.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from zoerefine.base.config.search_ranges import is_range
from zoerefine.base.config.searched_keys import OWN_KEYS, SearchedKeys, is_single_value
from zoerefine.base.errors import UserError
from zoerefine.base.yaml.equal_values import exact_text
from zoerefine.lab.search.space.space import (
    Choice,
    Option,
    Parameter,
    Range,
    Scalar,
    Values,
    all_names,
)

LABEL = 60  # characters of an option's label


def read_space(search: Mapping[str, Any], keys: SearchedKeys = OWN_KEYS) -> tuple[Parameter, ...]:
    """The parameters of a SEARCH tree whose values have been checked, in its order.

    A parameter is named by its key, `TRAIN.LR`. Inside an option it is named by the option's label
    and the rest of its key, `small: BASE`, or `MODEL small: BASE` where two would be called alike.

    Raises `UserError` where it is empty, or lists a value twice.
    """
    space = tuple(SpaceReader(keys).read(search, "", "", {}))
    if len(set(all_names(space))) < len(all_names(space)):
        space = tuple(SpaceReader(keys, full_names=True).read(search, "", "", {}))
    if not space:
        raise UserError("SEARCH is empty: give it a list or a range under a config key's name")
    return space


@dataclass(frozen=True)
class SpaceReader:
    """Makes parameters of a SEARCH tree.

    Attributes:
        full_names: whether the name of a parameter inside an option begins with the choice's key.
    """

    keys: SearchedKeys
    full_names: bool = False

    def read(
        self, tree: Mapping[str, Any], prefix: str, names: str, fixed: Values
    ) -> Iterator[Parameter]:
        """The parameters of a mapping; the single values of a branch go into `fixed`.

        Keys start with `prefix` and parameter names with `names`. The two differ inside a branch,
        because several branches may search the same key.
        """
        branch = names != prefix
        for word, value in tree.items():
            key, name = f"{prefix}{word}", f"{names}{word}"
            if self.keys.is_group(key) and isinstance(value, list):
                yield self.branches(key, name, value)
            elif self.keys.is_group(key):
                yield from self.read(value, f"{key}.", f"{name}.", fixed)
            elif is_range(value):
                yield _range(key, name, value)
            elif branch and is_single_value(self.keys.type_of(key), value):
                fixed[key] = value
                yield from _ranges_inside(value, key, "", f"{name}.")
            else:
                yield self.choice(key, name, value)

    def branches(self, key: str, name: str, trees: Sequence[Any]) -> Choice:
        """A choice between branches of a group."""
        _check_distinct(key, trees)
        labels = numbered([self.branch_label(key, tree) for tree in trees])
        options = []
        for tree, label in zip(trees, labels, strict=True):
            fixed: Values = {}
            inner = tuple(self.read(tree, f"{key}.", self.inside(name, label), fixed))
            options.append(Option(label, fixed, inner))
        return Choice(name, tuple(options))

    def branch_label(self, key: str, tree: Mapping[str, Any]) -> str:
        """A branch's name by the values that it sets: `guided, MAX_LOG 0.5`; empty without any."""
        fixed: Values = {}
        list(self.read(tree, f"{key}.", "", fixed))
        parts = [
            v if isinstance(v, str) else f"{k.removeprefix(key + '.')} {v}"
            for k, v in fixed.items()
        ]
        return ", ".join(parts)[:LABEL]

    def choice(self, key: str, name: str, values: Sequence[Any]) -> Choice:
        """A choice of values of a key; a value that is a list may hold ranges inside it."""
        _check_distinct(key, values)
        options = []
        for value, label in zip(values, value_labels(values), strict=True):
            inner = tuple(_ranges_inside(value, key, "", self.inside(name, label)))
            options.append(Option(label, {key: value}, inner))
        return Choice(name, tuple(options))

    def inside(self, name: str, label: Scalar) -> str:
        """How the names of parameters inside an option begin."""
        return f"{name} {label}: " if self.full_names else f"{label}: "


def numbered(labels: Sequence[str]) -> list[str]:
    """Labels of branches, with the branch's number where one is empty or occurs twice."""
    return [
        label if label and labels.count(label) == 1 else f"{label} branch {number}".strip()
        for number, label in enumerate(labels, 1)
    ]


def value_labels(values: Sequence[Any]) -> list[Scalar]:
    """A label for each value of a choice.

    A list of named mappings, such as LOSS.TERMS, is labelled by the names, `l1_log + gradient`, or
    with their numbers, `l1_log 1 + gradient 0.1..1`, where two would be called alike. Other lists
    and mappings are labelled by their JSON text, and so is every value where some are alike, such
    as true, 1 and 1.0.
    """
    for with_numbers in (False, True):
        labels = [_named(value, with_numbers) for value in values]
        if len({str(label) for label in labels}) == len(set(labels)) == len(labels):
            return labels
    return [exact_text(value) for value in values]


def _named(value: Any, with_numbers: bool) -> Scalar:
    if isinstance(value, Scalar):
        return value
    if not _is_named_list(value):
        return exact_text(value)
    parts = [" ".join([item["name"], *_numbers(item, with_numbers)]) for item in value]
    label = " + ".join(parts)
    return label if len(label) <= LABEL else exact_text(value)


def _is_named_list(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in value
    )


def _numbers(item: Mapping[str, Any], wanted: bool) -> list[str]:
    """The numbers and ranges of a mapping as text, where they are wanted."""
    found = (
        [v for v in item.values() if isinstance(v, int | float) or is_range(v)] if wanted else []
    )
    return [f"{v['low']:g}..{v['high']:g}" if is_range(v) else f"{v:g}" for v in found]


def _check_distinct(key: str, values: Sequence[Any]) -> None:
    texts = set(map(exact_text, values))  # true and 1 differ
    if len(texts) < len(values):
        raise UserError(f"SEARCH.{key} lists a value twice: {list(values)}")


def _ranges_inside(value: Any, key: str, path: str, name: str) -> Iterator[Range]:
    """The ranges inside a value that is a list, at any depth.

    An item of a list is named by its `name`, if it has one: `gradient.weight`.
    """
    if is_range(value):
        yield _range(f"{key}{path}", name.rstrip("."), value)
    elif isinstance(value, Mapping | list):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for word, inside in items:
            given = inside.get("name") if isinstance(inside, Mapping) else None
            called = given if isinstance(value, list) and isinstance(given, str) else word
            yield from _ranges_inside(inside, key, f"{path}.{word}", f"{name}{called}.")


def _range(key: str, name: str, bounds: Mapping[str, Any]) -> Range:
    low, high, step = bounds["low"], bounds["high"], bounds.get("step")
    if step is not None:
        high = last_step(low, high, step)
    return Range(name, key, low, high, bounds.get("log", False), step)


def last_step(low: float, high: float, step: float) -> float:
    """The last value of a range with steps: 0.8 of 0 to 1 in steps of 0.4.

    It is computed in decimal digits, as Optuna does: 0.1 to 0.3 has two steps of 0.1.
    """
    first, last, one = (Decimal(str(number)) for number in (low, high, step))
    return type(high)(first + (last - first) // one * one)
