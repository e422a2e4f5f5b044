"""Convolutions of f32 by products of TF32, where torch's switch asks for them on a GPU.

An operand is rounded to TF32, as cuDNN does, and not cut off, as Triton's product does with what it
is given: a product of numbers of TF32 is exact. Data are rounded where a convolution reads them,
before other steps, so that the kernel that stores them rounds. Weights are rounded at the end, when
all factors are folded into them.
"""

from __future__ import annotations

from collections.abc import Iterator

from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.ops import OPS

ROUND = "round_tf32"


def is_product_of_f32(node: Node) -> bool:
    """Whether a node is a convolution of f32 that becomes products of matrices: one that has a
    single channel a group is sums of the elements of its windows."""
    if node.op != "convolution" or node.dtype != "f32":
        return False
    return bool(node.attr("groups") == 1 or node.inputs[1].shape[1] > 1)


def round_data(graph: Graph) -> tuple[Graph, int]:
    """conv(x, w) → conv(round_tf32(x), w)"""
    replaced = {
        node: node.on((make(ROUND, (node.inputs[0],)), node.inputs[1]))
        for node in graph.nodes()
        if is_product_of_f32(node)
    }
    return graph.replaced(replaced), len(replaced)


def multiply_rounded(graph: Graph) -> tuple[Graph, int]:
    """round_tf32(x) · w → matmul_tf32(round_tf32(x), round_tf32(w)), also behind moves of x."""
    replaced: dict[Node, Node] = {}
    for node in graph.nodes():
        if node.op == "matmul" and any(map(_is_rounded, node.inputs)):
            operands = tuple(
                each if _is_rounded(each) else _below_views(each) for each in node.inputs
            )
            replaced[node] = make("matmul_tf32", operands, (), node.source)
    return graph.replaced(replaced), len(replaced)


def _is_rounded(node: Node) -> bool:
    """Whether all elements are numbers of TF32, some of them since they were rounded to it."""
    leaves = list(_chosen(node))
    return any(leaf.op == ROUND for leaf in leaves) and all(map(_is_of_tf32, leaves))


def _chosen(root: Node) -> Iterator[Node]:
    """What the elements of `root` are chosen from: the nodes behind moves of elements."""
    waiting, seen = [root], {root}
    while waiting:
        node = waiting.pop()
        operands = node.inputs[1:] if node.op == "where" else node.inputs
        operands = operands[:1] if node.op in ("take", "gather") else operands
        is_filled = node.op == "pad" and node.attr("value") != 0
        if is_filled or not (OPS[node.op].is_choice and operands):
            yield node
            continue
        new = [each for each in operands if each not in seen]
        seen.update(new)
        waiting += new


def _is_of_tf32(leaf: Node) -> bool:
    return leaf.op == ROUND or (leaf.op == "scalar" and leaf.attr("value") == 0.0)


def _below_views(node: Node) -> Node:
    """`node` rounded, before it is permuted: folding keeps what a product reads transposed."""
    if node.op == "permute":
        return node.on((_below_views(node.inputs[0]),))
    return make(ROUND, (node,))
