"""What no kernel can compute, refused before any is written."""

from __future__ import annotations

from aotc.aot.errors import UnsupportedError
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.size import bounds

LARGEST_NUMEL = 2**31 - 1


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


def check_supported(graph: Graph) -> None:
    """Raise `TensorTooLarge` or `EmptyTensorUnsupported` where one is due."""
    for node in graph.nodes():
        if bounds(node.type.numel)[0] > LARGEST_NUMEL:
            named = f"`{node.op}` of {node.type}"
            raise TensorTooLarge(tensor=named, numel=node.type.numel, source=_at(node))
        if node.type.numel and _reads_nothing(node):
            raise EmptyTensorUnsupported(tensor=f"`{node.op}` of {node.type}", source=_at(node))


def _reads_nothing(node: Node) -> bool:
    """Whether elements are computed from an operand without any, but for parts of a concat."""
    return node.kind not in ("concat", "view") and 0 in (item.type.numel for item in node.inputs)


def _at(node: Node) -> str:
    return f", at {node.source}" if node.source else ""
