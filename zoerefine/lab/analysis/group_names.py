"""Short names of groups: the settings in which they differ."""

import math
import os
from collections.abc import Sequence
from itertools import chain, count, takewhile
from typing import Any

from zoerefine.base.config.schema import KEYS
from zoerefine.base.yaml.equal_values import EXACT, exact_text, number_text
from zoerefine.lab.runs.filter import number_of
from zoerefine.lab.runs.group_key import CODE, PLACES
from zoerefine.lab.runs.record import Run

LARGE = 1e12  # numbers from here on are printed with exponents
LONGEST_VALUE = 28  # characters
CONTEXT = 8  # characters shown of what two long values have in common


def group_names(groups: Sequence[list[Run]], keys: Sequence[str]) -> list[str]:
    """A unique name for each group of runs.

    Args:
        groups: runs of one setting each.
        keys: the settings that differ, full paths. A setting is named where the group differs in
            it from more than half of the groups. Its key is left out where it is the only one with
            text values that are no numbers: `guided`, not `name guided`, but `lr 0.2`.
    """
    texts = {key: distinct_texts([setting_of(runs[0], key) for runs in groups]) for key in keys}
    textual = [key for key in keys if all(_is_text(runs[0], key) for runs in groups)]
    bare = textual if len(textual) == 1 else []
    labels = short_keys(keys)
    names = []
    for number, runs in enumerate(groups):
        parts = {
            key: column[number] if key in bare else f"{labels[key]} {column[number]}"
            for key, column in texts.items()
        }
        half = len(groups) / 2
        rare = [
            parts[key] for key, column in texts.items()
            if key in bare or column.count(column[number]) <= half
        ]  # fmt: skip
        names.append(_name(runs, ", ".join(rare or parts.values())))
    return _unique(names)


def setting_of(run: Run, key: str) -> Any:
    """A run's setting. One that it lacks is named by its default; that of a script is unknown.

    What is recorded beside a config, such as the commit, has no default.
    """
    if key in run.settings:
        return run.settings[key]
    if key in (*CODE, *PLACES):
        return "unknown"
    known = None if run.is_foreign else KEYS.get(key)
    return f"{full_text(known.default)} (default)" if known else "default"


def _is_text(run: Run, key: str) -> bool:
    value = run.settings.get(key)
    return isinstance(value, str) and isinstance(number_of(value), str)


def _name(runs: list[Run], settings: str) -> str:
    """The settings; a run of a study is called by its own name too."""
    name = runs[0].name
    if len(runs) == 1 and (not settings or name == "best" or name.startswith("trial ")):
        return f"{name}: {settings}" if settings else shortened(name)
    return settings or f"{len(runs)} runs"


def _unique(names: Sequence[str]) -> list[str]:
    """Number the names that occur more than once, by numbers that make no other name."""
    unique: dict[str, None] = {}
    for name in names:
        numbered = (f"{name} ({number})" for number in count(2))
        unique[next(one for one in chain([name], numbered) if one not in unique)] = None
    return list(unique)


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """The last part of each key in lower case; the whole key where two would be called alike."""
    last = [key.rpartition(".")[2].lower() for key in keys]
    return {
        key: name if last.count(name) == 1 else key.lower()
        for key, name in zip(keys, last, strict=True)
    }


def distinct_texts(values: Sequence[Any]) -> list[str]:
    """Each value in a few characters; different values have different texts where possible.

    Floats that nobody typed have as many digits as they need for that. Of long texts that begin
    alike, the end is shown. Values of other types with one text, such as `1` and `"1"`, are shown
    as JSON.
    """
    exact = [exact_text(value) for value in values]
    alike: dict[str, set[str]] = {}
    for value, text in zip(values, exact, strict=True):
        alike.setdefault(full_text(value, EXACT), set()).add(text)
    values = [
        value if len(alike[full_text(value, EXACT)]) == 1 else text
        for value, text in zip(values, exact, strict=True)
    ]
    different = len({repr(value) for value in values})
    for digits in range(2, EXACT + 1):
        texts = [format_value(value, digits) for value in values]
        if len(set(texts)) == different:
            return texts
    return [_distinct_end(value, values) for value in values]


def _distinct_end(value: Any, values: Sequence[Any]) -> str:
    """A value's text without most of what it has in common with the texts that begin like it."""
    short, text = format_value(value), full_text(value)
    alike = {full_text(other) for other in values if format_value(other) == short}
    same = (len(set(letters)) == 1 for letters in zip(*alike, strict=False))
    common = sum(takewhile(bool, same))
    begin = max(0, common - CONTEXT)
    begin = max(begin, text.find(" ", begin, common - 1))  # at a word, if there is one
    return short if len(alike) == 1 else shortened(f"...{text[begin:].lstrip()}")


def metric_text(value: float) -> str:
    """A metric's value with four decimals, or an exponent."""
    return metric_texts([value], digits=2)[0]


def metric_texts(
    values: Sequence[float], sign: str = "", decimals: int = 4, digits: int = 1, every: bool = False
) -> list[str]:
    """Values that stand together, in one notation.

    Args:
        decimals: as many; with exponents where the largest value would have fewer `digits`.
        every: up to five decimals more, so that each value has a digit.
    """
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    if sizes and not 10 ** (digits - 1 - decimals) <= max(sizes) < LARGE:
        return [f"{value:{sign}.{decimals - 2}e}" for value in values]
    if every:
        needed = (math.ceil(-math.log10(size)) for size in sizes)
        decimals = max(decimals, *(one for one in needed if one <= decimals + 5), 0)
    return [f"{value + 0.0:{sign}.{decimals}f}" for value in values]  # -0.0 is 0


def format_value(value: Any, digits: int = 2) -> str:
    """A setting in a few characters."""
    return shortened(full_text(value, digits))


def full_text(value: Any, digits: int = 2) -> str:
    """A setting as text: of a mapping only the values."""
    if value is None:
        return "not set"
    if isinstance(value, float):
        return number_text(value, digits)
    if isinstance(value, list):
        return f"[{', '.join(full_text(item, digits) for item in value)}]"
    if isinstance(value, dict):
        return " ".join(full_text(item, digits) for item in value.values()) or "{}"
    return " ".join(str(value).split())


def shortened(text: str, longest: int = LONGEST_VALUE) -> str:
    """Printable text on one line, at most `longest` characters."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def shared_names(runs: Sequence[Run]) -> list[str]:
    """The name of each run that others may share; of runs that only lie in folders, such as
    TensorBoard's, the path of the folder below one that has all of them.
    """
    in_folders = (run.path for run in runs if run.is_in_folder)
    folders = {path: os.path.dirname(os.path.abspath(path)) for path in in_folders}
    root = os.path.commonpath(folders.values()) if folders else ""
    paths = {path: os.path.relpath(folder, root) for path, folder in folders.items()}
    return [paths.get(run.path, run.shared_name).removeprefix(".") for run in runs]
