"""The reference interpreter: runs a graph in numpy, node by node, rounding each result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy

from aotc.aot.ir.graph import Constant, Graph, Node, walk
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.reference import REFERENCE
from aotc.aot.ir.storage import Array, narrow, widen


def evaluate(node: Node, operands: Sequence[Array]) -> Array:
    """Result of one op on stored arrays (bf16 as uint16), as a stored array of `node.type`.

    Raises `ValueError` for a kernel of the user's, whose meaning is its text, and for torch's ops.
    """
    if node.op == "placed":
        return _placed(node, operands)
    if node.kind == "call":
        raise ValueError(f"`{node.attr('function')}` has no meaning in numpy: run its kernel")
    if node.kind == "torch":
        raise ValueError(f"`{node.attr('operator')}` has no meaning in numpy: torch runs it")
    moves_only = OPS[node.op].cost == 0.0 and node.kind not in ("scalar", "extent", "iota", "pad")
    if moves_only:
        return numpy.asarray(REFERENCE[node.op](*operands, **dict(node.attrs)))
    is_exact = OPS[node.op].is_discontinuous
    wide = [_operand(*pair, is_exact) for pair in zip(node.inputs, operands, strict=True)]
    with numpy.errstate(all="ignore"):
        result = REFERENCE[node.op](*wide, **dict(node.attrs))
    return narrow(numpy.asarray(result), node.dtype)


def _placed(node: Node, operands: Sequence[Array]) -> Array:
    """The result of ops on tensors that lie within `operands`."""
    wide = [
        widen(_view(operands[number], *where), node.inputs[number].dtype)
        for number, *where in node.attr("operands")
    ]
    result = numpy.zeros(node.shape, narrow(numpy.zeros(0), node.dtype).dtype)
    with numpy.errstate(all="ignore"):
        for op, attrs, (number, *where) in node.attr("stored"):
            if number == node.attr("result"):
                found = numpy.asarray(REFERENCE[op](*wide, **dict(attrs)))
                _view(result, *where)[...] = narrow(found, node.dtype)
    return result


def _view(memory: Array, start: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
    flat = numpy.ascontiguousarray(memory).reshape(-1)[start:]
    steps = [stride * flat.itemsize for stride in strides]
    return numpy.lib.stride_tricks.as_strided(flat, shape, steps)


def _operand(node: Node, stored: Array, is_exact: bool) -> Array:
    # A literal is never stored: 16-bit arithmetic reads it with f32's precision.
    if node.op == "scalar" and not is_exact:
        return numpy.asarray(REFERENCE["scalar"](**dict(node.attrs)))
    return widen(stored, node.dtype)


def evaluate_all(
    outputs: tuple[Node, ...], values: dict[Node, Array], constants: Mapping[str, Constant]
) -> list[Array]:
    """Results of `outputs`, given those of the inputs in `values`, which also collects the rest."""
    for node in walk(outputs):
        if node in values:
            continue
        if node.op == "constant":
            values[node] = constants[node.attr("name")].array
        else:
            values[node] = evaluate(node, [values[operand] for operand in node.inputs])
    return [values[node] for node in outputs]


def interpret(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """Outputs of `graph`, without its checks, for stored arrays in the order of its inputs.

    Raises `ValueError` when an array's shape or storage type differs from its input's.
    """
    values: dict[Node, Array] = {}
    for node, array in zip(graph.inputs, inputs, strict=True):
        stored = narrow(numpy.zeros(0), node.dtype).dtype
        if array.shape != node.shape or array.dtype != stored:
            raise ValueError(f"input is {array.dtype}{list(array.shape)}, expected {node.type}")
        values[node] = array
    return evaluate_all((*graph.returned, *graph.kept), values, graph.constants)
