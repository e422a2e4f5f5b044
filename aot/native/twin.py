"""The Triton kernel that stands beside a native function: `aot.native_op(…, triton=op)`.

It becomes an attribute of the op `native`, so that both are candidates of one kernel and the tuner
may take either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotc.aot.capture.exported import graph_of
from aotc.aot.capture.imports.call import NotSupported
from aotc.aot.ir.call import ATTRIBUTES
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.types import TensorType

TAKEN = ("source", "function", "arguments", "candidates")
Attrs = tuple[tuple[str, Any], ...]


class _Called(torch.nn.Module):
    """The op as a model, with its numbers as they are at the build."""

    def __init__(self, op: Callable[..., Any], numbers: Sequence[int | float]) -> None:
        super().__init__()
        self._op, self._numbers = op, tuple(numbers)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """One call."""
        return self._op(*tensors, *self._numbers)


def triton_attrs(
    op: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[int | float],
    results: Sequence[tuple[str, Any]],
) -> Attrs:
    """What the op `call` would say of the kernel: its text, arguments and candidates.

    tensors: like those that the op is given. Raises `NotSupported` where
    the op is anything but one call of a kernel that reads its arguments and stores `results`.
    """
    given = tuple(torch.empty(each.shape, dtype=each.dtype) for each in tensors)
    graph = graph_of(_Called(op, numbers), given)
    calls = [_without_views(node) for node in graph.returned]
    first = calls[0]
    found = dict(first.attrs)
    is_call = first.op == "call" and set(found) == set(ATTRIBUTES)
    if not is_call or found["updates"] or any(node not in graph.inputs for node in first.inputs):
        raise NotSupported("`triton` is not one call of a kernel on the op's own arguments")
    numbers = [node.attr("result") if node.op == "call" else -1 for node in calls]
    stored = [TensorType(dtype, shape) for dtype, shape in found["results"]]
    wanted = [TensorType(dtype, shape) for dtype, shape in results]
    if numbers != list(range(len(wanted))) or stored != wanted:
        raise NotSupported(f"`triton` stores {list(map(str, stored))}, not the op's results")
    arguments = tuple(_renumbered(row, first, graph) for row in found["arguments"])
    return tuple((name, arguments if name == "arguments" else found[name]) for name in TAKEN)


def _without_views(node: Node) -> Node:
    while node.op in ("reshape", "permute"):
        node = node.inputs[0]
    return node


def _renumbered(row: tuple[str, str, Any], call: Node, graph: Graph) -> tuple[str, str, Any]:
    """An argument of the kernel, with the op's argument in place of the call's operand."""
    name, kind, what = row
    if kind != "read":
        return row
    return name, kind, (graph.inputs.index(call.inputs[what[0]]), what[1])
