"""A filter over runs, as text: "TRAIN.LR<1e-3 and MODEL.NAME=='unet'". Parsed, never evaluated."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from zoerefine.errors import UserError

Test = Callable[[Mapping[str, Any]], bool]

COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def parse_where(text: str) -> Test:
    """A function that tells whether a run's settings (`KEY.PATH: value`) fit.

    Names are config keys; `state`, `seed` and `commit` too. Comparisons, `in`, `and`, `or`, `not`
    and brackets. Raises `UserError` for anything else.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise UserError(f"--where {text!r} is no comparison, like TRAIN.LR<1e-3") from None
    return _test(tree, text)


def _test(node: ast.expr, text: str) -> Test:
    if isinstance(node, ast.BoolOp):
        parts = [_test(value, text) for value in node.values]
        combine = all if isinstance(node.op, ast.And) else any
        return lambda values: combine(part(values) for part in parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _test(node.operand, text)
        return lambda values: not inner(values)
    if isinstance(node, ast.Compare):
        return _comparison(node, text)
    raise UserError(f"--where {text!r}: {ast.unparse(node)!r} is no comparison")


def _comparison(node: ast.Compare, text: str) -> Test:
    sides = [_value(side, text) for side in (node.left, *node.comparators)]
    operators = [COMPARE.get(type(op)) for op in node.ops]
    if None in operators:
        raise UserError(f"--where {text!r}: {ast.unparse(node)!r} cannot be compared like that")

    def test(values: Mapping[str, Any]) -> bool:
        found = [side(values) for side in sides]
        try:
            return all(
                op is not None and op(a, b)
                for op, a, b in zip(operators, found[:-1], found[1:], strict=True)
            )
        except TypeError:
            raise UserError(f"--where {text!r} compares {found[0]!r} with {found[1]!r}") from None

    return test


def _value(node: ast.expr, text: str) -> Callable[[Mapping[str, Any]], Any]:
    """A constant, a list of constants, or the name of a setting."""
    if isinstance(node, ast.Name | ast.Attribute):
        name = ast.unparse(node)

        def look_up(values: Mapping[str, Any]) -> Any:
            if name not in values:
                raise UserError(f"--where {text!r}: no setting {name} in these runs")
            return values[name]

        return look_up
    try:
        constant = ast.literal_eval(node)
    except ValueError:
        raise UserError(f"--where {text!r}: {ast.unparse(node)!r} is no value or name") from None
    return lambda values: constant
