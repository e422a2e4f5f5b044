"""Attention on the processor: a call of our own kernel where scores in memory would cost more.

What is not served stays the arithmetic that it was: sizes that a call decides, few rows, keys or
values that are weights (whose products are packed).
"""

from __future__ import annotations

import math

from aotc.aot.ir import build, own_attention
from aotc.aot.ir.graph import Graph, Node, made_for, make
from aotc.aot.ir.own_attention import Scoring
from aotc.aot.ir.rules import Context
from aotc.aot.ir.size import is_static
from aotc.aot.rewrites.replace import replace_nodes


def serves(attention: Node, context: Context) -> bool:
    """Whether the kernel takes an attention, and costs less than its arithmetic."""
    query, key, value = attention.inputs[:3]
    if context.is_constant(key) or context.is_constant(value):
        return False
    if not all(is_static(operand.shape) for operand in attention.inputs):
        return False
    return own_attention.is_cheaper(query.shape, key.shape, value.shape)


def call_kernels(graph: Graph) -> tuple[Graph, int]:
    """`graph` with calls in place of its attentions, and how many there are."""
    replaced: dict[Node, Node] = {}
    for node in graph.nodes():
        if node.op == "attention":
            with made_for(node.source):
                replaced[node] = _called(node)
    return graph.with_outputs(replace_nodes(graph.outputs, replaced)), len(replaced)


def _called(attention: Node) -> Node:
    query, key, value, *masks = attention.inputs
    scoring = Scoring(
        scale=attention.attr("scale"),
        offset=attention.attr("offset") if attention.attr("causal") else None,
        mask=_added(masks[0]) if masks else None,
        is_safe=attention.attr("is_safe"),
    )
    result, _ = own_attention.forward(query, key, value, scoring)
    return result


def _added(mask: Node) -> Node:
    """A mask as numbers that are added to the scores."""
    if mask.dtype == "bool":
        return make("where", (mask, build.scalar(0.0, "f32"), build.scalar(-math.inf, "f32")))
    return mask if mask.dtype in own_attention.DTYPES else build.cast(mask, "f32")
