"""The --where filter over runs: "TRAIN.LR<1e-3 and MODEL.NAME=='unet'". Parsed, never evaluated."""

import ast
import re
from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from zoerefine.base.errors import UserError

Filter = Callable[[Mapping[str, Any]], bool]

COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: lambda a, b: lt(*alike(a, b)),
    ast.LtE: lambda a, b: le(*alike(a, b)),
    ast.Gt: lambda a, b: gt(*alike(a, b)),
    ast.GtE: lambda a, b: ge(*alike(a, b)),
    ast.Eq: lambda a, b: eq(*alike(a, b)),
    ast.NotEq: lambda a, b: ne(*alike(a, b)),
    ast.In: lambda a, b: is_in(a, b),
    ast.NotIn: lambda a, b: not is_in(a, b),
}

# A text in quotes, or a name in backquotes.
QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`([^`]+)`""")
STAND_IN = re.compile(r"_backquoted_([0-9a-f]+)_")


class Commit(str):
    """A hash that equals its beginnings, as `--commit` takes them."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other != "" and self.startswith(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def is_in(one: Any, others: Any) -> bool:
    """Whether a value is one of a list, or a part of a text."""
    return one in others if isinstance(others, str) else any(eq(*alike(one, x)) for x in others)


def alike(one: Any, other: Any) -> tuple[Any, Any]:
    """Both values, a text as a number beside a number: words such as 1.10 and True are texts."""
    if isinstance(one, str) and isinstance(other, int | float):
        return number_of(one), other
    if isinstance(other, str) and isinstance(one, int | float):
        return one, number_of(other)
    return one, other


def number_of(text: str) -> float | str:
    """The number or truth value that a text is, or the text."""
    try:
        return float(text)
    except ValueError:
        return {"true": True, "false": False}.get(text.lower(), text)


def parse_filter(text: str) -> Filter:
    """A function that decides whether a run's settings (`KEY.PATH: value`) match.

    Names are config keys, and `state`, `seed` and `commit`, of which the beginning is enough. In
    backquotes a name may hold any character, as `train/loss` does. Comparisons, `in`, `and`, `or`,
    `not` and brackets are allowed.
    The function raises `UserError` for a run without a named setting.

    Raises `UserError` for any other text.
    """
    try:
        tree = ast.parse(without_backquotes(text), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UserError(f"--where {text!r} is not a comparison like TRAIN.LR<1e-3") from None
    return _filter(tree, text)


def without_backquotes(text: str) -> str:
    """The text with a stand-in, which Python can parse, for each name in backquotes."""

    def stand_in(found: re.Match[str]) -> str:
        return f" _backquoted_{found[1].encode().hex()}_ " if found[1] else found[0]

    return QUOTED.sub(stand_in, text).strip()


def _shown(node: ast.expr) -> str:
    """A part of the filter as it was written."""
    return STAND_IN.sub(lambda found: f"`{bytes.fromhex(found[1]).decode()}`", ast.unparse(node))


def _filter(node: ast.expr, text: str) -> Filter:
    if isinstance(node, ast.BoolOp):
        parts = [_filter(value, text) for value in node.values]
        combine = all if isinstance(node.op, ast.And) else any
        return lambda settings: combine(part(settings) for part in parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _filter(node.operand, text)
        return lambda settings: not inner(settings)
    if isinstance(node, ast.Compare):
        return _comparison(node, text)
    raise UserError(f"--where {text!r}: {_shown(node)!r} is not a comparison")


def _comparison(node: ast.Compare, text: str) -> Filter:
    sides = [_value(side, text) for side in (node.left, *node.comparators)]
    for number, (kind, side) in enumerate(zip(node.ops, node.comparators, strict=True), 1):
        if isinstance(kind, ast.In | ast.NotIn) and isinstance(side, ast.Constant):
            sides[number] = _value(ast.List([side], ast.Load()), text)  # not a part of a text
    operators = [COMPARISONS[type(op)] for op in node.ops if type(op) in COMPARISONS]
    if len(operators) < len(node.ops):
        raise UserError(f"--where {text!r}: {_shown(node)!r} uses another operator")

    def compare(settings: Mapping[str, Any]) -> bool:
        values = [side(settings) for side in sides]
        try:
            return all(
                op(a, b) for op, a, b in zip(operators, values[:-1], values[1:], strict=True)
            )
        except TypeError:
            raise UserError(f"--where {text!r} compares {values[0]!r} with {values[1]!r}") from None

    return compare


def _value(node: ast.expr, text: str) -> Callable[[Mapping[str, Any]], Any]:
    """A constant, a list of constants, or the name of a setting."""
    if isinstance(node, ast.Name | ast.Attribute):
        name = _shown(node).replace("`", "")

        def look_up(settings: Mapping[str, Any]) -> Any:
            if name not in settings:
                raise UserError(f"--where {text!r}: the run has no setting {name}")
            value = settings[name]
            return Commit(value) if name == "commit" else value

        return look_up
    try:
        constant = ast.literal_eval(node)
    except ValueError:
        raise UserError(
            f"--where {text!r}: {_shown(node)!r} is not a name or constant; write names with other "
            "characters in backquotes: `train/loss`"
        ) from None
    return lambda settings: constant
