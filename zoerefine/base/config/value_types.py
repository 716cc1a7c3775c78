"""The types of config values: what is allowed, in words, and how a value is checked."""

import difflib
import math
import re
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zoerefine.base.registries import Registry, is_place
from zoerefine.base.yaml.read import FLAG_WORDS

Check = Callable[[str], str]  # a text -> what is wrong with it; empty: nothing


class WrongValue(ValueError):
    """A value that a key cannot have. `key` is the path of the part that is wrong."""

    def __init__(self, key: str, sentence: str) -> None:
        super().__init__(f"{key} {sentence}")
        self.key = key


class ValueType(ABC):
    """A type of config values."""

    @property
    @abstractmethod
    def allowed(self) -> str:
        """What is allowed, as a noun: `a number above 0`."""

    @abstractmethod
    def read(self, value: Any, key: str) -> Any:
        """A value as this type, e.g. an int as a float. Raises `WrongValue`."""

    def as_written(self, value: Any, key: str, text_of: Callable[[str], str | None]) -> Any:
        """The value with the characters of the file in place of what is a text for this type.

        So that the scene 07 stays `07`, though YAML reads a number.
        """
        return value

    def wrong(self, value: Any, key: str) -> WrongValue:
        return WrongValue(key, f"must be {self.allowed}, got {shown(value)}")


class ShortText(reprlib.Repr):
    """Shortens values to a line's length and leaves out the passwords of URLs."""

    def repr_str(self, text: str, level: int) -> str:
        return super().repr_str(without_passwords(text), level)


URL_PASSWORD = re.compile(r"(://[^\s/@:]*:)\S*(?=@)|(password=)[^\s&'\"]+", re.IGNORECASE)
SHORT = ShortText()
SHORT.maxstring = SHORT.maxother = 60


def shown(value: Any) -> str:
    """A value for a message, in a line's length and without the passwords of URLs."""
    return SHORT.repr(value)


def without_passwords(text: str) -> str:
    """A text with `***` in the place of the password of each URL."""
    return URL_PASSWORD.sub(r"\1\2***", text)


@dataclass(frozen=True)
class Integer(ValueType):
    """A whole number within bounds, both included."""

    at_least: int | None = None
    at_most: int | None = None

    @property
    def allowed(self) -> str:
        if self.at_least is None:
            return "an integer"
        if self.at_most is None:
            return f"an integer of at least {self.at_least}"
        most = "2^63 - 1" if self.at_most == 2**63 - 1 else self.at_most
        return f"an integer from {self.at_least} to {most}"

    def read(self, value: Any, key: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not self._fits(value):
            raise self.wrong(value, key)
        return value

    def _fits(self, value: int) -> bool:
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )


@dataclass(frozen=True)
class Number(ValueType):
    """A float within bounds; `above` and `below` are excluded, the others included."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    may_be_infinite: bool = False

    @property
    def allowed(self) -> str:
        if self.at_least is not None and self.at_most is not None:
            return f"a number from {self.at_least:g} to {self.at_most:g}"
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (
                ("of at least", self.at_least),
                ("above", self.above),
                ("of at most", self.at_most),
                ("below", self.below),
            )
            if bound is not None
        ]
        infinite = ", or .inf" if self.may_be_infinite else ""
        return " ".join(["a number", " and ".join(bounds)]).strip() + infinite

    def read(self, value: Any, key: str) -> float:
        number = as_number(value)
        if number is None or not self._fits(number):
            raise self.wrong(value, key)
        return number

    def _fits(self, number: float) -> bool:
        return (
            (math.isfinite(number) or (self.may_be_infinite and number == math.inf))
            and (self.at_least is None or number >= self.at_least)
            and (self.at_most is None or number <= self.at_most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )


def as_number(value: Any) -> float | None:
    """A number, or a text that is one, as a float."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True)
class Flag(ValueType):
    """True or false; on, off, yes and no are understood."""

    allowed = "true or false"

    def read(self, value: Any, key: str) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in FLAG_WORDS:
            return FLAG_WORDS[value.lower()]
        raise self.wrong(value, key)


@dataclass(frozen=True)
class Text(ValueType):
    """Characters, as they are written. `check` says what is wrong with a text.

    A secret text is not repeated in messages.
    """

    allowed: str = "a text"
    check: Check | None = None
    secret: bool = False

    def read(self, value: Any, key: str) -> str:
        if value is None:
            value = ""
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            raise self.wrong(value, key)
        fault = control_fault(value) or (self.check(value) if self.check else "")
        if fault:
            got = "" if self.secret else f", got {shown(value)}"
            raise WrongValue(key, f"must be {self.allowed}{got}: {fault}")
        return value

    def as_written(self, value: Any, key: str, text_of: Callable[[str], str | None]) -> Any:
        text = text_of(key)
        scalar = isinstance(value, bool | int | float)
        return text if scalar and text is not None else value


def control_fault(text: str) -> str:
    """Why a text can be neither a path nor a name anywhere; empty where it can."""
    if "\0" in text:
        return "it holds a NUL character"
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return "it is not valid Unicode"
    return ""


@dataclass(frozen=True)
class OneOf(ValueType):
    """One of some names: the keys of a registry, or of a mapping to their meanings."""

    names: Mapping[str, str]

    @property
    def meanings(self) -> Mapping[str, str]:
        """What each name means; empty meanings for a registry, which holds places."""
        return dict.fromkeys(self.names, "") if isinstance(self.names, Registry) else self.names

    @property
    def outside(self) -> bool:
        """Whether `package.module:Class` is allowed, too."""
        return isinstance(self.names, Registry) and self.names.outside

    @property
    def allowed(self) -> str:
        more = ", or package.module:Class" if self.outside else ""
        return f"one of {', '.join(name or '(empty)' for name in self.names)}{more}"

    def read(self, value: Any, key: str) -> str:
        name = "" if value is None else value
        if isinstance(name, str) and (name in self.names or (self.outside and is_place(name))):
            return name
        close = difflib.get_close_matches(str(value), list(self.names), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise WrongValue(key, f"must be {self.allowed}; got {shown(value)}{hint}")

    def as_written(self, value: Any, key: str, text_of: Callable[[str], str | None]) -> Any:
        return Text().as_written(value, key, text_of)


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


@dataclass(frozen=True)
class PlainData(ValueType):
    """Values for a key that now has the value `like`; null allows everything, and is allowed."""

    like: Any = None

    @property
    def allowed(self) -> str:
        if isinstance(self.like, bool):
            return "true or false"
        if isinstance(self.like, int | float):
            return "a number"
        return "a text" if isinstance(self.like, str) else "plain data without NaN"

    def read(self, value: Any, key: str) -> Any:
        if isinstance(value, float) and math.isnan(value):
            raise self.wrong(value, key)
        if value is None or self.like is None or isinstance(self.like, list | Mapping):
            return value
        if isinstance(self.like, str):
            fits = isinstance(value, str)
        elif isinstance(self.like, bool) or isinstance(value, bool):
            fits = isinstance(self.like, bool) and isinstance(value, bool)
        else:
            fits = isinstance(value, int | float)
        if not fits:
            raise self.wrong(value, key)
        return float(value) if isinstance(self.like, float) else value

    def as_written(self, value: Any, key: str, text_of: Callable[[str], str | None]) -> Any:
        if not isinstance(self.like, str):
            return value
        return Text().as_written(value, key, text_of)
