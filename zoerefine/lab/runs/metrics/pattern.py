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

from zoerefine.base.errors import UserError
from zoerefine.base.messages import visible
from zoerefine.lab.runs.metrics.steps import is_odd, parse_number

STEP = "step"
LONGEST_LINE = 2000  # characters; the rest of a longer line is not searched
QUOTES = "\"'"
PUNCTUATION = f",;:%)]}}{QUOTES}"  # after a number
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

        What is no number comes as the value, a text; so does a step that begins like a number.
        Raises `TimeoutError` where the search takes longer than `limit_s`.
        """
        if limit_s <= 0:
            raise TimeoutError
        # Python's own `re` has no limit of time.
        for match in self.expression.finditer(line[:LONGEST_LINE], timeout=limit_s):
            if match.end() == LONGEST_LINE < len(line):
                return  # a number may be cut off
            values = map(value_of, match.groups())
            found = [(name, one) for name, one in zip(self.names, values, strict=True) if one != ""]
            step = next((one for name, one in found if name == STEP), "")
            if isinstance(step, str) and is_odd(step):
                found = [(name, step) for name, _ in found]
            at = None if isinstance(step, str) or isnan(step) else step
            yield from ((name, at, value) for name, value in found if name != STEP)


def value_of(text: str | None) -> float | str:
    """What a group has found as a number; as a text where it is none, empty for nothing."""
    text = (text or "").strip().rstrip(PUNCTUATION).lstrip(QUOTES)
    number = parse_number(text)
    return text if number is None else number


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
