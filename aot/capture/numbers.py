"""Numbers of an exported program that depend on sizes: as values of rank 0, in f32."""

from __future__ import annotations

from collections.abc import Callable

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import Extent

Number = Node | Extent | float


def _value(number: Number) -> Node:
    return number if isinstance(number, Node) else build.number(number, "f32")


def _unary(op: str) -> Callable[..., Node]:
    return lambda number: build.unary(op, _value(number))


def _binary(op: str) -> Callable[..., Node]:
    return lambda left, right: build.pointwise(op, _value(left), _value(right))


# Name of the function that torch calls → row.
FLOATS: dict[str, Callable[..., Node]] = {
    "sym_float": _value,
    "_sym_sqrt": _unary("sqrt"),
    "sym_sqrt": _unary("sqrt"),
    "add": _binary("add"),
    "sub": _binary("sub"),
    "mul": _binary("mul"),
    "truediv": _binary("div"),
    "pow": _binary("pow"),
}
