"""The types of config values that hold others: lists and mappings."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zoerefine.base.config.value_types import ValueType, WrongValue, control_fault, shown


@dataclass(frozen=True)
class ListOf(ValueType):
    """A list of values of one type."""

    element: ValueType
    at_least: int = 0
    unique: bool = False

    @property
    def allowed(self) -> str:
        filled = "a list" if not self.at_least else "a list that is not empty, and"
        different = ", all different" if self.unique else ""
        return f"{filled} whose elements are each {self.element.allowed}{different}"

    def read(self, value: Any, key: str) -> list[Any]:
        if value is None or value == "":
            value = []
        if not isinstance(value, list | tuple) or len(value) < self.at_least:
            raise self.wrong(value, key)
        found = [self.element.read(one, f"{key}.{index}") for index, one in enumerate(value)]
        if self.unique and len(set(map(str, found))) < len(found):
            raise self.wrong(value, key)
        return found

    def as_written(self, value: Any, key: str, text_of: Callable[[str], str | None]) -> Any:
        if not isinstance(value, list):
            return value
        return [
            self.element.as_written(one, f"{key}.{index}", text_of)
            for index, one in enumerate(value)
        ]


@dataclass(frozen=True)
class MappingOf(ValueType):
    """A mapping with exactly these keys."""

    fields: Mapping[str, ValueType]

    @property
    def allowed(self) -> str:
        parts = ", ".join(f"{name}: {field.allowed}" for name, field in self.fields.items())
        return f"{{{parts}}}"

    def read(self, value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, Mapping) or set(value) != set(self.fields):
            raise self.wrong(value, key)
        return {
            name: field.read(value[name], f"{key}.{name}") for name, field in self.fields.items()
        }

    def as_written(self, value: Any, key: str, text_of: Callable[[str], str | None]) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {
            name: self.fields[name].as_written(one, f"{key}.{name}", text_of)
            if name in self.fields
            else one
            for name, one in value.items()
        }


@dataclass(frozen=True)
class OpenMapping(ValueType):
    """A mapping of names of the user's own to numbers, texts, flags, or lists of them."""

    allowed = "a mapping of names to numbers, texts, true or false, or lists of these"

    def read(self, value: Any, key: str) -> dict[str, Any]:
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self.wrong(value, key)
        for name, one in value.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise WrongValue(key, f"must have names that Python allows, got {shown(name)}")
            self._check(one, f"{key}.{name}")
        return dict(value)

    def _check(self, value: Any, key: str) -> None:
        if isinstance(value, list):
            for index, one in enumerate(value):
                self._check(one, f"{key}.{index}")
        elif isinstance(value, float) and math.isnan(value):
            raise WrongValue(key, "must not be NaN")
        elif isinstance(value, str) and (fault := control_fault(value)):
            raise WrongValue(key, f"cannot be {shown(value)}: {fault}")
        elif not isinstance(value, bool | int | float | str):
            raise WrongValue(key, f"must be a number, a text, true or false, got {shown(value)}")
