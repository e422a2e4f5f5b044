"""torch's `_foreach_` ops, of which compiled optimisers are made, as one op for each tensor.

What a list of tensors is computed from is a list as long (of tensors or of numbers), or the same
for all. The graph's fusion then puts the ops of one tensor into one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
PREFIX = "_foreach_"
BY_TENSOR = (  # names of ops that are called alike for one tensor
    "abs", "acos", "add", "asin", "atan", "ceil", "clamp_max", "clamp_min", "clone", "copy", "cos",
    "cosh", "div", "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "log", "log10", "log1p",
    "log2", "maximum", "minimum", "mul", "neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid",
    "sign", "sin", "sinh", "sqrt", "sub", "tan", "tanh", "trunc",
)  # fmt: skip
NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max"}  # with a number in place of a tensor


def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Op → its arithmetic."""
    table: dict[Any, Callable[..., Any]] = {}
    for name in BY_TENSOR:
        for overload in _overloads(name):
            one = NUMBERS.get(name, name) if "Scalar" in overload._overloadname else name
            table[overload] = _each(getattr(aten, one))
    for name in ("addcmul", "addcdiv"):
        for overload in _overloads(name):
            if overload._overloadname != "Tensor":  # its factors are numbers of one tensor
                table[overload] = _each(_with_value(getattr(aten, name)))
    table[aten._foreach_norm.Scalar] = _each(_norm)
    table[aten._foreach_max.default] = _each(aten.max)
    table[aten._foreach_zero.default] = _each(torch.zeros_like)
    return table


def _overloads(name: str) -> Iterator[Any]:
    """The overloads of an op that give new tensors; none in a torch without it."""
    packet = getattr(aten, PREFIX + name, None)
    for overload in [] if packet is None else packet.overloads():
        if "out" not in overload:
            yield getattr(packet, overload)


def _each(one: Callable[..., Any]) -> Callable[..., list[Any]]:
    """The op of lists for that of one tensor."""

    def called(*args: Any, **named: Any) -> list[Any]:
        count = max(len(each) for each in args if isinstance(each, list | tuple))
        rows = [each if isinstance(each, list | tuple) else [each] * count for each in args]
        return [one(*row, **named) for row in zip(*rows, strict=True)]

    return called


def _with_value(op: Callable[..., Any]) -> Callable[..., Any]:
    """The op with its factor in place."""
    return lambda start, left, right, value=1: op(start, left, right, value=value)


def _norm(data: Tensor, order: Any = 2, dtype: torch.dtype | None = None) -> Tensor:
    return torch.linalg.vector_norm(data, order, dtype=dtype)
