"""The search space: choices and ranges, how a trial samples them, and their combinations."""

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from zoerefine.base.yaml.equal_values import equal_text, exact_text, same_data
from zoerefine.base.yaml.keys import set_value, value_at, with_values

if TYPE_CHECKING:  # a wrong space is reported before Optuna is loaded
    import optuna

MAX_LISTED = 100_000  # combinations of a space that are listed one by one
ROUNDING = 1e-8  # of a step, as in Optuna
Scalar = bool | int | float | str
Values = dict[str, Any]  # by key path


@dataclass(frozen=True)
class Range:
    """A number between two bounds, both included."""

    name: str
    key: str
    low: float
    high: float
    log: bool
    step: float | None

    def suggest(self, trial: "optuna.Trial") -> Values:
        """Sample a config value: an int where the bounds are ints."""
        if self.is_whole:
            low, high, step = int(self.low), int(self.high), int(self.step or 1)
            return {self.key: trial.suggest_int(self.name, low, high, step=step, log=self.log)}
        value = trial.suggest_float(self.name, self.low, self.high, step=self.step, log=self.log)
        return {self.key: on_step(value, self.low, self.step) if self.step else value}

    def combinations(self) -> Iterator[Values]:
        """Every value of a finite range, as a trial's parameters."""
        for number in range(int(self.size)):  # rounding may lead beyond the end
            yield {self.name: min(self.low + number * (self.step or 1), self.high)}

    @property
    def is_whole(self) -> bool:
        """Whether its values are ints."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def size(self) -> float:
        """How many values there are; infinite for a continuous range."""
        if self.low == self.high:
            return 1
        if self.step is None and not self.is_whole:
            return math.inf
        # A rounding error must not lose the last of 0.1, 0.2, 0.3 and 0.4.
        return math.floor((self.high - self.low) / (self.step or 1) + 1e-9) + 1

    def params_of(self, tree: Mapping[str, Any]) -> Values | None:
        """The parameter that gives a config's value; None where that is no value of the range."""
        value = value_at(tree, self.key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not self.low <= value <= self.high or not self._is_on_step(value):
            return None
        return {self.name: int(value) if self.is_whole else float(value)}

    def _is_on_step(self, value: float) -> bool:
        if self.is_whole:
            return (value - self.low) % (self.step or 1) == 0
        steps = (value - self.low) / self.step if self.step else 0.0
        return abs(steps - round(steps)) < ROUNDING

    def lines(self) -> list[str]:
        """The range on one line of a plan."""
        if self.is_whole:
            ends = f"{self.low} to {self.high}" + ("" if self.step else ", whole numbers")
        else:
            ends = f"{self.low:g} to {self.high:g}"
        ends += ", logarithmic" if self.log else ""
        return [f"{self.key}: {ends}" + (f" in steps of {self.step:g}" if self.step else "")]


def on_step(value: float, low: float, step: float) -> float:
    """A value of a range with steps as decimal digits give it: 0.3, not 0.30000000000000004."""
    first, one = Decimal(str(low)), Decimal(str(step))
    return float(first + round((value - low) / step) * one)


@dataclass(frozen=True)
class Option:
    """One option of a choice: the values that it sets, and the parameters of its branch.

    Optuna finds an option by its label. So no label of a choice equals another, as True equals 1.
    """

    label: Scalar
    fixed: Values
    inner: "tuple[Parameter, ...]" = ()


@dataclass(frozen=True)
class Choice:
    """A choice between values of a key, or between branches of a group of keys."""

    name: str
    options: tuple[Option, ...]

    def suggest(self, trial: "optuna.Trial") -> Values:
        """Sample the config values of an option and of its branch."""
        labels = [option.label for option in self.options]
        chosen: Scalar = trial.suggest_categorical(self.name, labels)  # type: ignore[assignment]
        option = next(option for option in self.options if option.label == chosen)
        values = copy.deepcopy(option.fixed)
        for parameter in option.inner:
            values |= parameter.suggest(trial)
        return values

    def combinations(self) -> Iterator[Values]:
        """Every option with every combination of its branch."""
        for option in self.options:
            for inside in combinations(option.inner):
                yield {self.name: option.label, **inside}

    @property
    def size(self) -> float:
        """How many combinations there are; infinite where a range is continuous."""
        return sum(size_of(option.inner) for option in self.options)

    def params_of(self, tree: Mapping[str, Any]) -> Values | None:
        """The parameters that give the config's values; None where no option has them.

        Where 1 and 1.0 are both options, the config's own type decides.
        """
        for text in (exact_text, equal_text):
            for option in self.options:
                inside = params_of(option.inner, tree)
                if inside is not None and self._fits(option, tree, text):
                    return {self.name: option.label, **inside}
        return None

    def _fits(self, option: Option, tree: Mapping[str, Any], text: Callable[[Any], str]) -> bool:
        wanted = with_values(tree, option.fixed)
        for key in (parameter.key for parameter in option.inner if isinstance(parameter, Range)):
            set_value(wanted, key, value_at(tree, key))
        return all(text(value_at(wanted, key)) == text(value_at(tree, key)) for key in option.fixed)

    def lines(self) -> list[str]:
        """The choice on a line of a plan, and one line for each parameter inside its options."""
        name, labels = self.name.rpartition(": ")[2], (str(option.label) for option in self.options)
        lines = [f"{name}: {' | '.join(labels)}"]
        for option in self.options:
            for parameter in option.inner:
                lines += [f"  where {option.label}: {line}" for line in parameter.lines()]
        return lines


Parameter = Choice | Range


def suggest(space: Sequence[Parameter], trial: "optuna.Trial") -> Values:
    """Sample a trial's config values."""
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


def params_of(space: Sequence[Parameter], tree: Mapping[str, Any]) -> Values | None:
    """A trial's parameters that give a config's values; None where they are outside the space."""
    found: Values = {}
    for parameter in space:
        inside = parameter.params_of(tree)
        if inside is None:
            return None
        found |= inside
    return found


def every(space: Sequence[Parameter]) -> Iterator[Parameter]:
    """All parameters, those inside options too."""
    for parameter in space:
        yield parameter
        for option in parameter.options if isinstance(parameter, Choice) else ():
            yield from every(option.inner)


def all_names(space: Sequence[Parameter]) -> list[str]:
    """The names of all parameters."""
    return [parameter.name for parameter in every(space)]


def all_keys(space: Sequence[Parameter]) -> set[str]:
    """The keys that a trial of this space can set, inside lists as `LOSS.TERMS.1.weight`."""
    found = list(every(space))
    options = [option for one in found if isinstance(one, Choice) for option in one.options]
    ranges = {one.key for one in found if isinstance(one, Range)}
    return ranges.union(*(option.fixed for option in options))


def knows(space: Sequence[Parameter], name: str, value: Scalar) -> bool:
    """Whether a trial of this space can have a parameter of this name, or this option of it."""
    return any(
        isinstance(one, Range) or any(same_data(option.label, value) for option in one.options)
        for one in every(space)
        if one.name == name
    )


def unknown_parameter(space: Sequence[Parameter], params: Values) -> str:
    """The first of some parameters that no trial of this space can have; empty where all can."""
    unknown = (
        f"{name}: {value}" for name, value in params.items() if not knows(space, name, value)
    )
    return next(unknown, "")
