"""What the cases of kernels are written with: operands, arithmetic, graphs, inputs for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Constant, Graph, Node, make, walk
from aotc.aot.ir.types import DTYPES, TensorType


def operand(name: str, *shape: int, dtype: str = "f32") -> Node:
    """A graph input."""
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def weight(name: str, *shape: int, dtype: str = "f32") -> Node:
    """A graph constant."""
    return make("constant", (), {"name": name, "dtype": dtype, "shape": shape})


def op(name: str, *operands: Node | float, **attrs: object) -> Node:
    """A node; Python numbers take the last node's element type."""
    if attrs or not operands:
        return make(name, operands, attrs)
    return b.pointwise(name, *operands)


def attention_attrs(scale: float, **given: object) -> dict[str, object]:
    """Those of an attention without mask, window, cap and sinks, but for what is given."""
    plain = {"causal": False, "offset": 0, "window": 0, "softcap": 0.0, "has_sinks": False}
    return {"scale": scale, **plain, "is_safe": False} | given


def graph_of(outputs: Sequence[Node]) -> Graph:
    """The graph of the outputs, constants filled with random numbers."""
    found = list(walk(tuple(outputs)))
    inputs = tuple(node for node in found if node.op == "input")
    names = tuple(node.attr("name") for node in inputs)
    constants = {
        node.attr("name"): Constant(node.attr("name"), node.type, values(node.type, number))
        for number, node in enumerate(found)
        if node.op == "constant"
    }
    outs = tuple(f"output_{number}" for number in range(len(outputs)))
    return Graph(inputs, tuple(outputs), names, outs, constants)


def values(kind: TensorType, seed: int) -> numpy.ndarray:
    """Random numbers of a type; integers are small and never negative, so they may be indices."""
    random = numpy.random.default_rng(seed)
    row = DTYPES[kind.dtype]
    if row.kind == "bool":
        return numpy.asarray(random.random(kind.shape) < 0.3)
    if row.kind == "int":
        return numpy.asarray(random.integers(0, 7, kind.shape)).astype(row.numpy)
    numbers = numpy.asarray(random.standard_normal(kind.shape))
    if kind.dtype == "bf16":
        return (numbers.astype("float32").view("uint32") >> 16).astype("uint16")
    return numbers.astype(row.numpy)


def softmax(data: Node, axis: int) -> Node:
    """Softmax as arithmetic."""
    powers = op("exp", op("sub", data, b.reduce("max", data, [axis])))
    return op("div", powers, b.reduce("sum", powers, [axis]))


def layer_norm(data: Node) -> Node:
    """LayerNorm over the last axis as arithmetic, without scale and shift."""
    axes, share = [data.type.rank - 1], 1.0 / data.shape[-1]
    centred = op("sub", data, op("mul", b.reduce("sum", data, axes), share))
    spread = op("mul", b.reduce("sum", op("mul", centred, centred), axes), share)
    return op("mul", centred, op("rsqrt", op("add", spread, 1e-5)))
