"""Equations written as two functions: `ops.silu(x)` builds what is looked for and what replaces it.

    left  = lambda x: x * ops.sigmoid(x)
    right = lambda x: ops.silu(x)

Both are called with patterns for their parameters. A parameter annotated `float` stands for a
literal. An attribute is bound to a name by the left side, `ops.sum(x, axes="axes")`, and on the
right side given that name or a value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.match import AnyLiteral, AnyNode, Call, Literal, Pattern, any_node, call
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.types import Scalar


class Ops:
    """Every op of `aot/ir/ops.py` as a function of patterns and numbers."""

    def __getattr__(self, name: str) -> Callable[..., Call]:
        if name not in OPS:
            raise AttributeError(f"there is no op `{name}`, expected one of: {', '.join(OPS)}")

        def made(*operands: Pattern | Scalar, **attrs: Any) -> Call:
            expected = OPS[name].attributes
            for each in attrs:
                if each not in expected:
                    known = ", ".join(expected) or "none"
                    raise ValueError(f"op `{name}` has no attribute `{each}`, expected: {known}")
            return call(name, *operands, **attrs)

        return made


ops = Ops()


def bound_names(pattern: Pattern) -> set[str]:
    """The names that a match of the left side binds: parameters, and names of attributes."""
    if isinstance(pattern, AnyNode | AnyLiteral):
        return {pattern.name}
    if not isinstance(pattern, Call):
        return set()
    names = {value for _, value in pattern.attrs if isinstance(value, str)}
    return names.union(*map(bound_names, pattern.operands))


def parameters(function: Callable[..., Any]) -> dict[str, Pattern]:
    """The patterns of a side's parameters: any node, or any literal where it says `float`."""
    found = inspect.signature(function).parameters.values()
    is_literal = {each.name: each.annotation in (float, "float") for each in found}
    return {name: AnyLiteral(name) if is_literal[name] else any_node(name) for name in is_literal}


def instantiate(pattern: Pattern | Scalar, known: Mapping[str, Any], dtype: str = "") -> Node:
    """The node that a right side stands for, its names bound; numbers take the operands' type.

    Raises `ValueError` for what is no expression, and what `make` raises.
    """
    if isinstance(pattern, AnyNode):
        node: Node = known[pattern.name]
        return node
    if isinstance(pattern, AnyLiteral):
        return build.scalar(known[pattern.name], dtype)
    if isinstance(pattern, Literal):
        return build.scalar(pattern.value, dtype)
    if not isinstance(pattern, Call):
        raise ValueError(f"gives `{pattern!r}`, expected an expression of `ops`")
    return _instantiate_call(pattern, known)


def _instantiate_call(pattern: Call, known: Mapping[str, Any]) -> Node:
    is_number = [isinstance(each, AnyLiteral | Literal) for each in pattern.operands]
    operands = [
        None if number else instantiate(each, known)
        for each, number in zip(pattern.operands, is_number, strict=True)
    ]
    nodes = [each for each in operands if each is not None]
    if not nodes:
        raise ValueError(f"`{pattern.op}` is given numbers only")
    rank = max(each.type.rank for each in nodes)
    whole = [
        instantiate(each, known, nodes[-1].dtype) if operand is None else operand
        for each, operand in zip(pattern.operands, operands, strict=True)
    ]
    if OPS[pattern.op].kind == "pointwise":
        whole = [build.align(each, rank) if each.type.rank else each for each in whole]
    attrs = {name: known.get(value, value) for name, value in pattern.attrs}
    return make(pattern.op, tuple(whole), attrs)
