"""A function over torch's tensors as nodes of ours, for right sides of users' rewrites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotc.aot.capture.exported import import_program
from aotc.aot.capture.exporting import decompose, export
from aotc.aot.capture.golden import quiet_settings
from aotc.aot.capture.imports.call import DTYPE_NAMES
from aotc.aot.capture.imports.table import NOT_DECOMPOSED
from aotc.aot.capture.sizes import Sizes
from aotc.aot.capture.spec import FunctionModule, Spec
from aotc.aot.ir.graph import Node, walk
from aotc.aot.ir.size import fixed
from aotc.aot.ir.types import TensorType

_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


def traced(function: Callable[..., Any], operands: Sequence[Node]) -> Node:
    """What `function` computes of tensors that stand for `operands`; its one result.

    Raises `ValueError` for several results and for constants of the function's own, the errors of
    the capture stage, and `UndecidedSize` where an operand's size is only known at a call.
    """
    examples = tuple(_example(node.type) for node in operands)
    name = getattr(function, "__name__", "function")
    spec = Spec(name, name, examples, {}, FunctionModule(function))
    with torch.no_grad(), quiet_settings():
        program = export(spec)
        graph, _ = import_program(
            decompose(program, {}, NOT_DECOMPOSED), program, Sizes({}, (), ())
        )
    if len(graph.returned) != 1:
        raise ValueError(f"it gives {len(graph.returned)} tensors, expected one")
    if graph.constants:
        raise ValueError("it makes tensors of its own: compute them from its operands")
    new: dict[Node, Node] = dict(zip(graph.inputs, operands, strict=True))
    for node in walk(graph.returned, new):
        new[node] = node.on(tuple(new[each] for each in node.inputs))
    return new[graph.returned[0]]


def _example(kind: TensorType) -> torch.Tensor:
    return torch.zeros(tuple(map(fixed, kind.shape)), dtype=_DTYPES[kind.dtype])
