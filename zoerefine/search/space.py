"""The search space: what SEARCH in a config lists, checked against the config's own types.

SEARCH mirrors the config tree. `[a, b, c]` is a choice, `{low, high}` a range, with `log: true`
or `step: s` where wanted. Nothing else is special.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from yacs.config import CfgNode

from zoerefine.config import coerce
from zoerefine.errors import UserError

RANGE_KEYS = {"low", "high", "log", "step"}
Scalar = bool | int | float | str


@dataclass(frozen=True)
class Choice:
    """One of several values of a config key."""

    key: str
    values: tuple[Any, ...]

    def suggest(self, trial: optuna.Trial) -> Any:
        """The trial's value. Values that Optuna cannot store are told apart by their JSON."""
        names = {_name(value): value for value in self.values}
        return names[trial.suggest_categorical(self.key, list(names))]  # type: ignore[index]


@dataclass(frozen=True)
class Range:
    """A number between two bounds, both included."""

    key: str
    low: float
    high: float
    log: bool
    step: float | None

    def suggest(self, trial: optuna.Trial) -> Any:
        """The trial's value, an int where the bounds are ints."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(
                self.key, self.low, self.high, log=self.log, step=int(self.step or 1)
            )
        return trial.suggest_float(self.key, self.low, self.high, log=self.log, step=self.step)


Parameter = Choice | Range


def read_space(cfg: CfgNode) -> list[Parameter]:
    """The parameters of a config's SEARCH, in its order.

    Raises `UserError` for an unknown key, a value of another type than the config's, an empty
    list, or a range that is none, each with the key's path.
    """
    space = list(_read(cfg.SEARCH, cfg, ""))
    if not space:
        raise UserError("SEARCH is empty: give it a list or a range under a config key's name")
    return space


def _read(tree: Mapping[str, Any], cfg: CfgNode, prefix: str) -> Iterator[Parameter]:
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if name not in cfg or key in ("SEARCH", "STUDY", "RUN"):
            raise UserError(f"SEARCH.{key}: {key} is no config key that can be searched")
        if isinstance(cfg[name], CfgNode):
            if not isinstance(value, Mapping):
                raise UserError(f"SEARCH.{key} is a group of keys, got {value!r}")
            yield from _read(value, cfg[name], f"{key}.")
        elif isinstance(value, list):
            yield _choice(key, value, cfg[name])
        elif isinstance(value, Mapping):
            yield _range(key, value, cfg[name])
        else:
            raise UserError(f"SEARCH.{key} must be a list or {{low, high}}, got {value!r}")


def _choice(key: str, values: list[Any], default: Any) -> Choice:
    if not values:
        raise UserError(f"SEARCH.{key} is an empty list")
    checked = tuple(coerce(value, default, key, "SEARCH") for value in values)
    if len({_name(value) for value in checked}) < len(checked):
        raise UserError(f"SEARCH.{key} lists a value twice: {list(checked)}")
    return Choice(key, checked)


def _range(key: str, bounds: Mapping[str, Any], default: Any) -> Range:
    if isinstance(default, bool) or not isinstance(default, int | float):
        raise UserError(f"SEARCH.{key}: a range needs a number, {key} is {default!r}")
    unknown = set(bounds) - RANGE_KEYS
    if unknown or not {"low", "high"} <= set(bounds):
        raise UserError(f"SEARCH.{key}: a range is {{low, high, log, step}}, got {dict(bounds)}")
    low, high = (coerce(bounds[end], default, f"{key}.{end}", "SEARCH") for end in ("low", "high"))
    log = coerce(bounds.get("log", False), False, f"{key}.log", "SEARCH")
    step = bounds.get("step")
    if step is not None:
        step = coerce(step, default, f"{key}.step", "SEARCH")
    if low > high:
        raise UserError(f"SEARCH.{key}: low {low} lies above high {high}")
    if log and (low <= 0 or step is not None):
        raise UserError(f"SEARCH.{key}: a log range needs low above 0 and no step")
    return Range(key, low, high, log, step)


def _name(value: Any) -> Scalar:
    return value if isinstance(value, Scalar) else json.dumps(value, sort_keys=True)


def with_values(cfg: CfgNode, values: Mapping[str, Any]) -> CfgNode:
    """A copy of the config with `KEY.PATH: value` set and nothing left to search; not frozen."""
    changed = cfg.clone()
    changed.defrost()
    changed.SEARCH = CfgNode()
    for key, value in values.items():
        *groups, name = key.split(".")
        node = changed
        for group in groups:
            node = node[group]
        node[name] = value
    return changed
