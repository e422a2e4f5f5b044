"""What no kernel can compute, refused before any is written."""

from __future__ import annotations

from aotc.aot.errors import UnsupportedError
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.size import bounds
from aotc.aot.schedule.traits import TargetTraits

LARGEST_NUMEL = 2**31 - 1
# The CPU's vector math is polynomials for f32, which 16-bit floats are computed in too.
POLYNOMIALS = frozenset(
    {
        "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
        "atan2", "sinh", "cosh", "tanh", "sigmoid", "erf", "pow", "silu", "gelu", "gelu_tanh",
        "attention",
    }
)  # fmt: skip


class EmptyTensorUnsupported(UnsupportedError):
    """The model computes from a tensor of no elements."""

    code = "empty-tensor"
    template = "the model computes {tensor}, which has no elements{source}"
    hint = "leave empty tensors out of the model"


class TensorTooLarge(UnsupportedError):
    """Kernels address elements with 32 bits."""

    code = "tensor-too-large"
    template = "the model holds {tensor} with {numel} elements, expected at most 2147483647{source}"
    hint = "split the tensor, or give the model smaller inputs"


class DoubleUnsupported(UnsupportedError):
    """The CPU target has functions of f32 only; all calls are listed at once."""

    code = "double-function"
    template = "the cpu target has no `f64` form of what the model computes:\n{calls}"
    hint = "compute these in float32, or build for a target with a GPU"


def refuse(graph: Graph, traits: TargetTraits) -> None:
    """Raise `TensorTooLarge`, `EmptyTensorUnsupported` or `DoubleUnsupported` where one is due."""
    doubles = []
    for node in graph.nodes():
        if bounds(node.type.numel)[0] > LARGEST_NUMEL:
            named = f"`{node.op}` of {node.type}"
            raise TensorTooLarge(tensor=named, numel=node.type.numel, source=_at(node))
        if node.type.numel and _reads_nothing(node):
            raise EmptyTensorUnsupported(tensor=f"`{node.op}` of {node.type}", source=_at(node))
        if traits.device == "cpu" and node.dtype == "f64" and node.op in POLYNOMIALS:
            doubles.append(f"  `{node.op}`{_at(node)}")
    if doubles:
        raise DoubleUnsupported(calls="\n".join(dict.fromkeys(doubles)))


def _reads_nothing(node: Node) -> bool:
    """Whether elements are computed from an operand without any, but for parts of a concat."""
    return node.kind not in ("concat", "view") and 0 in (item.type.numel for item in node.inputs)


def _at(node: Node) -> str:
    return f", at {node.source}" if node.source else ""
