"""Whether an exported program says the truth about shapes where a size is 1.

torch.export takes sizes other than 0 and 1 for granted and simplifies shapes by that: `x[-2:]` has
two elements, `x[2:]` has `n - 2`. Kernels hold for a size of 1 as well, provided that the shapes
do: each op is run there on tensors without memory, and its shapes are compared with those that
torch recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree


def untrue_at_one(program: ExportedProgram, symbols: Collection[Any]) -> frozenset[Any]:
    """Those of the symbols that may not be 1: alone, or, where all may, together (then all)."""
    hints = _hints(program)
    found = {each for each in symbols if _differs(program, {**hints, each: 1})}
    rest = [each for each in symbols if each not in found]
    if len(rest) > 1 and _differs(program, {**hints, **dict.fromkeys(rest, 1)}):
        found.update(rest)
    return frozenset(found)


def example_numbers(tensors: Iterable[Any]) -> dict[Any, int]:
    """The example's sizes by symbol, also of those that only show as `32 * s` or `s + 1`."""
    found = {}
    for size in (each for tensor in tensors for each in getattr(tensor, "shape", ())):
        if not isinstance(size, torch.SymInt) or not isinstance(size.node.hint, int):
            continue
        formula = size.node.expr
        if len(formula.free_symbols) == 1:
            (symbol,) = formula.free_symbols
            offset = formula.subs(symbol, 0)
            scale = formula.subs(symbol, 1) - offset
            if scale.is_Integer and scale != 0 and (formula - scale * symbol - offset).is_zero:
                found[symbol] = (size.node.hint - int(offset)) // int(scale)
    return found


def _hints(program: ExportedProgram) -> dict[Any, int]:
    """The example's sizes by symbol."""
    placeholders = program.graph.find_nodes(op="placeholder")
    return example_numbers(node.meta.get("val") for node in placeholders)


class _Untrue(Exception):
    """A recorded shape is not that of the op's result."""


class _Shapes(torch.fx.Interpreter):
    """Runs ops for their shapes at given sizes; what cannot be run so has those of the program."""

    def __init__(self, program: ExportedProgram, sizes: Mapping[Any, int]) -> None:
        super().__init__(program.graph_module)
        self._sizes = sizes
        self._numbers: dict[Any, Any] = {}  # what formulas are at the sizes

    def run_node(self, n: torch.fx.Node) -> Any:
        """The result on tensors without memory; raises `_Untrue`."""
        recorded = n.meta.get("val")
        if n.op == "output":
            return None
        if n.op != "call_function":
            return self._recorded(recorded)
        try:
            found = super().run_node(n)
        except Exception:  # data that is read, an op without shapes of its own, a subgraph
            return self._recorded(recorded)
        pairs = zip(pytree.tree_leaves(found), pytree.tree_leaves(recorded), strict=False)
        for ours, theirs in pairs:
            if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
                shape = self._shape(theirs)
                if shape is not None and shape != tuple(ours.shape):
                    raise _Untrue(n)
        return found

    def _recorded(self, recorded: Any) -> Any:
        return pytree.tree_map(self._at, recorded)

    def _at(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            shape = self._shape(value)
            if shape is None:
                return value
            if min(shape, default=0) < 0:
                raise _Untrue(value)
            return torch.empty(shape, dtype=value.dtype, device="meta")
        return self._number(value) if isinstance(value, torch.SymInt) else value

    def _shape(self, value: torch.Tensor) -> tuple[int, ...] | None:
        """The shape that torch recorded, at the sizes; None where it depends on data."""
        found = tuple(map(self._number, value.shape))
        return found if all(type(size) is int for size in found) else None

    def _number(self, size: Any) -> Any:
        if isinstance(size, int):
            return size
        formula = size.node.expr
        if formula not in self._numbers:
            self._numbers[formula] = formula.subs(self._sizes)
        number = self._numbers[formula]
        return int(number) if number.is_Integer else size


def _differs(program: ExportedProgram, sizes: Mapping[Any, int]) -> bool:
    """Whether any op has another shape at the sizes than torch recorded."""
    placeholders = program.graph.find_nodes(op="placeholder")
    try:
        with torch.random.fork_rng(devices=[]):  # ops that draw leave torch's generator alone
            _Shapes(program, sizes).run(*[None] * len(placeholders))
    except _Untrue:
        return True
    return False
