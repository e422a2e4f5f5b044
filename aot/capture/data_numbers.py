"""Numbers that depend on data: what `item()` gives and arithmetic on it, as values of rank 0.

Operands of elementwise ops and conditions of assertions (`torch._check`) may be such numbers. What
has to be known before a call, as sizes, dims and positions, may not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._sympy.symbol import SymT, symbol_is_type

from aotc.aot.capture.imports.call import NotSupported
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, Number, number

UNBACKED = (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)
READ = frozenset({"item", "_local_scalar_dense"})
REASON = "its result is a number that depends on data: keep it a tensor"

_DTYPES = ((torch.SymBool, "bool"), (torch.SymInt, "i64"), (torch.SymFloat, "f64"))
# Name of the function that torch calls → op of ours, and in which type its operands are taken;
# none is that of the result.
_OPS: Mapping[str, tuple[str, str]] = {
    "add": ("add", ""),
    "sub": ("sub", ""),
    "mul": ("mul", ""),
    "pow": ("pow", ""),
    "truediv": ("div", "f64"),
    "sqrt": ("sqrt", "f64"),
    "sym_sqrt": ("sqrt", "f64"),
    "_sym_sqrt": ("sqrt", "f64"),
    "neg": ("neg", ""),
    "sym_max": ("maximum", ""),
    "sym_min": ("minimum", ""),
    "eq": ("eq", "operands"),
    "ne": ("ne", "operands"),
    "lt": ("lt", "operands"),
    "le": ("le", "operands"),
    "gt": ("gt", "operands"),
    "ge": ("ge", "operands"),
    "and_": ("logical_and", "bool"),
    "or_": ("logical_or", "bool"),
    "not_": ("logical_not", "bool"),
    "sym_not": ("logical_not", "bool"),
    "sym_float": ("", ""),
    "sym_int": ("", ""),
}


def is_of_sizes(value: torch.SymInt) -> bool:
    """Whether a number is one of sizes of inputs alone, which are known before a call."""
    return not any(symbol_is_type(each, UNBACKED) for each in value.node.expr.free_symbols)


def dtype_of(value: Any) -> str:
    """The element type of a number's value: i64, f64 or bool."""
    return next(dtype for kind, dtype in _DTYPES if isinstance(value, kind))


def read(node: torch.fx.Node, data: Node) -> Node:
    """The number that `item()` gives of a tensor of one element."""
    return build.cast(build.reshape(data, ()), dtype_of(node.meta["val"]))


def computed(node: torch.fx.Node, operands: Sequence[Any]) -> Node:
    """A number of other numbers, of which one at least depends on data."""
    name = getattr(node.target, "__name__", "")
    dtype = dtype_of(node.meta["val"])
    if name == "sym_ite":
        condition, chosen, other = operands
        return build.where(_as(condition, "bool"), _as(chosen, dtype), _as(other, dtype))
    if name not in _OPS:
        raise NotSupported(REASON)
    op, taken = _OPS[name]
    if taken == "operands":
        is_float = any(_is_float(each) for each in operands)
        taken = "f64" if is_float else "i64"
    given = [_as(each, taken or dtype) for each in operands]
    return build.cast(build.pointwise(op, *given), dtype) if op else given[0]


def _is_float(value: Node | Number) -> bool:
    return value.type.kind == "float" if isinstance(value, Node) else type(value) is float


def _as(value: Node | Number, dtype: str) -> Node:
    return build.cast(value, dtype) if isinstance(value, Node) else number(value, dtype)


def takes_number(argument: torch.Argument) -> bool:
    """Whether an op's argument is a number beside the elements: no size, dim or position."""
    return str(argument.type) in ("number", "Optional[number]", "Tensor", "Optional[Tensor]")
