"""Patterns over nodes, written with the operators of the code they match.

    x, y = any_node("x"), any_node("y")
    match(x * 2.0 + y, node)  →  {"x": …, "y": …} or None

A name that occurs twice must bind the same node; nodes are interned, so that is equal meaning.
Numbers match literals of that value up to f32's rounding. No pattern commutes by itself: where
both orders matter, `either(a + b, b + a)` says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aotc.aot.ir.graph import Node
from aotc.aot.ir.types import Scalar

Bindings = dict[str, Any]
LITERAL_TOLERANCE = 2e-7  # relative; twice the rounding of f32


class Pattern:
    """Base of patterns; its operators build `Call` patterns."""

    __slots__ = ()

    def __add__(self, other: Pattern | Scalar) -> Call:
        return call("add", self, other)

    def __radd__(self, other: Scalar) -> Call:
        return call("add", other, self)

    def __sub__(self, other: Pattern | Scalar) -> Call:
        return call("sub", self, other)

    def __rsub__(self, other: Scalar) -> Call:
        return call("sub", other, self)

    def __mul__(self, other: Pattern | Scalar) -> Call:
        return call("mul", self, other)

    def __rmul__(self, other: Scalar) -> Call:
        return call("mul", other, self)

    def __truediv__(self, other: Pattern | Scalar) -> Call:
        return call("div", self, other)

    def __rtruediv__(self, other: Scalar) -> Call:
        return call("div", other, self)

    def __neg__(self) -> Call:
        return call("neg", self)


@dataclass(frozen=True, slots=True)
class AnyNode(Pattern):
    """Matches every node that `accepts` takes, and binds it to `name`."""

    name: str
    accepts: Callable[[Node], bool] | None = None


@dataclass(frozen=True, slots=True)
class AnyLiteral(Pattern):
    """Matches every scalar literal, of one value if `name` occurs twice, and binds that."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal(Pattern):
    """Matches the scalar literal `value`."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Call(Pattern):
    """Matches `op(*operands)`; `name` binds the node, `attrs` maps attributes to bound names."""

    op: str
    operands: tuple[Pattern, ...]
    attrs: tuple[tuple[str, str], ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class Either(Pattern):
    """Matches the first of `choices` that does."""

    choices: tuple[Pattern, ...]


def any_node(name: str, accepts: Callable[[Node], bool] | None = None) -> AnyNode:
    """Any node, bound to `name`."""
    return AnyNode(name, accepts)


def call(op: str, *operands: Pattern | Scalar, name: str = "", **attrs: str) -> Call:
    """`op` of patterns or numbers; `axes="a"` binds the attribute `axes` to the name `a`."""
    patterns = tuple(item if isinstance(item, Pattern) else Literal(item) for item in operands)
    return Call(op, patterns, tuple(attrs.items()), name)


def either(*choices: Pattern) -> Either:
    """The first choice that matches."""
    return Either(choices)


def both_orders(pattern: Call) -> Either:
    """`a ∘ b` or `b ∘ a`, for one operation at a time."""
    first, second = pattern.operands
    return Either((pattern, Call(pattern.op, (second, first), pattern.attrs, pattern.name)))


def root_ops(pattern: Pattern) -> frozenset[str]:
    """The ops that a match can begin with; raises `ValueError` for a pattern that takes any."""
    if isinstance(pattern, Call):
        return frozenset({pattern.op})
    if isinstance(pattern, Either):
        return frozenset().union(*(root_ops(choice) for choice in pattern.choices))
    raise ValueError("a rule's pattern begins with an op")


def match(pattern: Pattern, node: Node) -> Bindings | None:
    """What the names of `pattern` are bound to in `node`, or None when it does not match."""
    if isinstance(pattern, Call) and not _has_ops(pattern, node):
        return None
    return next(_matches(pattern, node, {}), None)


def _has_ops(pattern: Call, node: Node) -> bool:
    """Whether the node and its operands are of the pattern's ops, which most are not."""
    if node.op != pattern.op or len(node.inputs) != len(pattern.operands):
        return False
    pairs = zip(pattern.operands, node.inputs, strict=True)
    return all(operand.op == each.op for each, operand in pairs if isinstance(each, Call))


def _matches(pattern: Pattern, node: Node, bound: Bindings) -> Iterator[Bindings]:
    if isinstance(pattern, AnyNode):
        if bound.get(pattern.name, node) is node and (
            pattern.accepts is None or pattern.accepts(node)
        ):
            yield bound | {pattern.name: node}
    elif isinstance(pattern, AnyLiteral):
        # repr makes nan equal to itself, and 0.0 and -0.0 differ.
        if node.op == "scalar" and repr(bound.get(pattern.name, node.attr("value"))) == repr(
            node.attr("value")
        ):
            yield bound | {pattern.name: node.attr("value")}
    elif isinstance(pattern, Literal):
        if node.op == "scalar" and _is_close(node.attr("value"), pattern.value):
            yield bound
    elif isinstance(pattern, Either):
        for choice in pattern.choices:
            yield from _matches(choice, node, bound)
    elif isinstance(pattern, Call) and node.op == pattern.op:
        yield from _matches_call(pattern, node, bound)


def _matches_call(pattern: Call, node: Node, bound: Bindings) -> Iterator[Bindings]:
    if len(pattern.operands) != len(node.inputs):
        return
    known = bound | {name: node.attr(attribute) for attribute, name in pattern.attrs}
    if pattern.name:
        known[pattern.name] = node
    yield from _match_operands(pattern.operands, node.inputs, known)


def _match_operands(
    patterns: tuple[Pattern, ...], nodes: tuple[Node, ...], bound: Bindings
) -> Iterator[Bindings]:
    if not patterns:
        yield bound
        return
    for found in _matches(patterns[0], nodes[0], bound):
        yield from _match_operands(patterns[1:], nodes[1:], found)


def _is_close(found: Scalar, expected: Scalar) -> bool:
    if found == expected:
        # 0.0 and -0.0 are different literals.
        return math.copysign(1, found) == math.copysign(1, expected)
    return bool(
        isinstance(found, float)
        and isinstance(expected, float)
        and math.isclose(found, expected, rel_tol=LITERAL_TOLERANCE)
    )
