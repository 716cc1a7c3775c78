r"""A metric pattern: a regular expression that finds metrics in the lines of a job's output.

val_acc=(\S+)                           the metric val_acc: the word before the group
accuracy: (?P<val_acc>\S+)              the same with a named group
epoch (?P<step>\d+).* val_acc=(\S+)     with its step; without one, values are counted from 1
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan

import regex

from zoerefine.base.errors import UserError, visible
from zoerefine.lab.runs.metrics.series import is_odd, parse_number

STEP = "step"
LONGEST_LINE = 2000  # characters; the rest of a longer line is not searched
PUNCTUATION = ",;:%)]}"  # after a number
# What a bracket means: nothing after an escape or in a set, else a group with or without a name.
ESCAPE_OR_SET = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
GROUP = re.compile(ESCAPE_OR_SET.pattern + r"|\(\?P?<(?P<name>\w+)>|(?P<open>\((?!\?))")
WORD = re.compile(r"[A-Za-z_][\w./-]*(?=\W*$)")


@dataclass(frozen=True)
class MetricPattern:
    """A pattern, and the name of the metric that each of its groups finds, `step` for the step."""

    expression: regex.Pattern[str]
    names: list[str]

    def find(self, line: str, limit_s: float) -> Iterator[tuple[str, float | None, float | str]]:
        """Name, step (None: not in the line) and value of each metric in a line.

        A value or its step that begins like a number and is none comes as the value, a text.
        Raises `TimeoutError` where the search takes longer than `limit_s`.
        """
        if limit_s <= 0:
            raise TimeoutError
        # Python's own `re` has no limit of time.
        for match in self.expression.finditer(line[:LONGEST_LINE], timeout=limit_s):
            if match.end() == LONGEST_LINE < len(line):
                return  # a number may be cut off
            texts = [(text or "").strip().rstrip(PUNCTUATION) for text in match.groups()]
            values = map(value_of, texts)
            found = [(name, one) for name, one in zip(self.names, values, strict=True) if one != ""]
            step = next((one for name, one in found if name == STEP), None)
            for name, value in found:
                if name == STEP:
                    continue
                if isinstance(step, str):
                    yield name, None, step
                else:
                    yield name, None if step is None or isnan(step) else step, value


def value_of(text: str) -> float | str:
    """A number; the text itself where it begins like one and is none, empty where it does not."""
    number = parse_number(text)
    return number if number is not None else text if is_odd(text) else ""


def parse_pattern(text: str) -> MetricPattern:
    """Check and compile a metric pattern. Raises `UserError` where it names no metric."""
    shown = f"metric pattern '{visible(text)}'"
    try:
        expression = regex.compile(text)
    except (regex.error, RecursionError, OverflowError) as error:
        raise UserError(f"{shown} is not a regular expression: {error}") from None
    names = list(_names(text))
    if not set(names) - {STEP}:
        raise UserError(f"{shown} has no group for a value: write for example val_acc=(\\S+)")
    if "" in names:
        number = names.index("") + 1
        raise UserError(
            f"{shown}: group {number} has no word before it; name it: (?P<val_acc>\\S+)"
        )
    if len(names) != expression.groups:
        raise UserError(f"{shown}: each group needs a name of its own")
    return MetricPattern(expression, names)


def _names(text: str) -> Iterator[str]:
    """The name of each group: its own, or the last word before it; empty where there is none."""
    begin = 0  # of the text that may name a group: after the bracket of the one before it
    for match in GROUP.finditer(text):
        if match["name"]:
            yield match["name"]
        elif match["open"]:
            word = WORD.search(ESCAPE_OR_SET.sub(" ", text[begin : match.start()]))
            yield word[0] if word else ""
        else:
            continue
        begin = match.end()
