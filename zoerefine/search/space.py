"""The search space: what SEARCH in a config lists, as parameters of a study.

SEARCH mirrors the config tree. `[a, b, c]` is a choice, `{low, high}` a range, with `log: true`
or `step: s` where wanted. Nothing else is special: where a group of keys stands, the list holds
sub-trees, and a sub-tree's own lists and ranges are searched where it is chosen.
"""

import copy
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from yacs.config import CfgNode

from zoerefine.config.search_values import check_search, is_group, is_range, is_single
from zoerefine.errors import UserError

LABEL = 60  # characters of a sub-tree's name
Scalar = bool | int | float | str
Values = dict[str, Any]  # by config key; `LOSS.TERMS.1.weight` reaches into a list


@dataclass(frozen=True)
class Range:
    """A number between two bounds, both included."""

    name: str
    key: str
    low: float
    high: float
    log: bool
    step: float | None

    def suggest(self, trial: optuna.Trial) -> Values:
        """What the trial sets: an int where the bounds are ints."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            step = int(self.step or 1)
            return {
                self.key: trial.suggest_int(self.name, self.low, self.high, step=step, log=self.log)
            }
        return {
            self.key: trial.suggest_float(
                self.name, self.low, self.high, step=self.step, log=self.log
            )
        }

    def combinations(self) -> Iterator[Values]:
        """Every value of a stepped range, as a trial's parameters; `size` says whether it is."""
        low, high, step = self.low, self.high, self.step or 1
        for number in range(math.floor((high - low) / step + 1e-9) + 1):
            yield {self.name: low + number * step}

    @property
    def size(self) -> float:
        """How many values there are."""
        if self.low == self.high:
            return 1
        whole = isinstance(self.low, int)
        if self.log or (self.step is None and not whole):
            return math.inf
        return len(list(self.combinations()))

    def params_of(self, cfg: CfgNode) -> Values | None:
        """The parameters by which a trial gets the config's value; None where it is outside."""
        value = value_at(cfg, self.key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not self.low <= value <= self.high:
            return None
        return {self.name: value}

    def lines(self) -> list[str]:
        """What a plan says of it."""
        ends = f"{self.low:g} to {self.high:g}" + (", logarithmic" if self.log else "")
        return [f"{self.key}: {ends}" + (f" in steps of {self.step:g}" if self.step else "")]


@dataclass(frozen=True)
class Option:
    """One of a choice's alternatives: what it sets, and what is searched where it is chosen."""

    label: Scalar
    fixed: Values
    inner: "tuple[Parameter, ...]" = ()


@dataclass(frozen=True)
class Choice:
    """One of several alternatives: values of a key, or sub-trees of a group."""

    name: str
    options: tuple[Option, ...]

    def suggest(self, trial: optuna.Trial) -> Values:
        """What the trial sets."""
        labels = [option.label for option in self.options]
        chosen: Scalar = trial.suggest_categorical(self.name, labels)  # type: ignore[assignment]
        option = next(option for option in self.options if same(option.label, chosen))
        values = copy.deepcopy(option.fixed)
        for parameter in option.inner:
            values |= parameter.suggest(trial)
        return values

    def combinations(self) -> Iterator[Values]:
        """Every alternative with every combination inside it."""
        for option in self.options:
            for inside in combinations(option.inner):
                yield {self.name: option.label, **inside}

    @property
    def size(self) -> float:
        """How many combinations there are."""
        return sum(size_of(option.inner) for option in self.options)

    def params_of(self, cfg: CfgNode) -> Values | None:
        """The parameters by which a trial gets the config's values; None where none does."""
        for option in self.options:
            inside = params_of(option.inner, cfg)
            if inside is not None and self._fits(option, cfg):
                return {self.name: option.label, **inside}
        return None

    def _fits(self, option: Option, cfg: CfgNode) -> bool:
        wanted = with_values(cfg, option.fixed)
        for key in (parameter.key for parameter in option.inner if isinstance(parameter, Range)):
            set_value(wanted, key, value_at(cfg, key))
        return all(value_at(wanted, key) == value_at(cfg, key) for key in option.fixed)

    def lines(self) -> list[str]:
        """What a plan says of it: a line, and one for each thing searched inside."""
        lines = [f"{self.name}: {' | '.join(str(option.label) for option in self.options)}"]
        for option in self.options:
            for parameter in option.inner:
                lines += [f"  where {option.label}: {line}" for line in parameter.lines()]
        return lines


Parameter = Choice | Range


def read_space(cfg: CfgNode) -> tuple[Parameter, ...]:
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


def same(one: Scalar, other: Scalar) -> bool:
    """Whether two labels are one: True is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def suggest(space: Sequence[Parameter], trial: optuna.Trial) -> Values:
    """The config values of a trial."""
    values: Values = {}
    for parameter in space:
        values |= parameter.suggest(trial)
    return values


def size_of(space: Sequence[Parameter]) -> float:
    """How many combinations there are; infinite where any range is continuous."""
    return math.prod((parameter.size for parameter in space), start=1)


def combinations(space: Sequence[Parameter]) -> Iterator[Values]:
    """Every combination of a finite space, as trials' parameters."""
    for parts in itertools.product(*(list(parameter.combinations()) for parameter in space)):
        yield {name: value for part in parts for name, value in part.items()}


def params_of(space: Sequence[Parameter], cfg: CfgNode) -> Values | None:
    """The trial's parameters that give a config's values; None where the space has them not."""
    found: Values = {}
    for parameter in space:
        inside = parameter.params_of(cfg)
        if inside is None:
            return None
        found |= inside
    return found


def value_at(cfg: CfgNode, key: str) -> Any:
    """A config's value by its key; None where a list is too short."""
    node: Any = cfg
    for word in key.split("."):
        try:
            node = node[int(word)] if isinstance(node, list) else node[word]
        except (IndexError, KeyError, ValueError, TypeError):
            return None
    return node


def set_value(cfg: CfgNode, key: str, value: Any) -> None:
    """Set a config's value by its key."""
    *path, last = key.split(".")
    node: Any = cfg
    for word in path:
        node = node[int(word)] if isinstance(node, list) else node[word]
    if isinstance(node, list):
        node[int(last)] = value
    else:
        node[last] = value


def with_values(cfg: CfgNode, values: Mapping[str, Any]) -> CfgNode:
    """A copy of the config with `KEY.PATH: value` set and nothing left to search; not frozen."""
    changed = cfg.clone()
    changed.defrost()
    changed.SEARCH = CfgNode()
    for key, value in values.items():
        set_value(changed, key, copy.deepcopy(value))
    return changed
