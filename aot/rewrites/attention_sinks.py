"""Attention sinks: softmax over the scores and one more column, which has a weight but no value.

matmul(softmax([scores, c])[.., :-1], v) → attention(q, k, v, c) that has sinks

The column may be the first one as well.
"""

from __future__ import annotations

from aotc.aot.ir.graph import Node
from aotc.aot.ir.rules import Context, Rule, rule_for
from aotc.aot.ir.types import FLOATS_TO_F32
from aotc.aot.rewrites import attention


def rules(serves: attention.Serves) -> tuple[Rule, ...]:
    """The table for a target that serves some attentions; others stay arithmetic."""

    def recognise(root: Node, context: Context) -> Node | None:
        if root.dtype not in FLOATS_TO_F32:
            return None
        for weights in attention.views_of_rows(root.inputs[0]):
            if weights.op == "slice" and context.is_used_once(weights):
                found = _attention(root, weights, context)
                is_served = found is not None and serves(attention.unviewed(found), context)
                return found if is_served else None
        return None

    # matmul(softmax([scores, c])[.., :-1], v) → attention(q, k, v, c) that has sinks
    return (rule_for(("matmul",), "attention-sinks", recognise, is_exact=False),)


RULES = rules(lambda _, __: True)


def _attention(root: Node, weights: Node, context: Context) -> Node | None:
    """The attention of a product whose left operand is all weights but an outer column's."""
    last = weights.type.rank - 1
    if (weights.attr("axis"), weights.attr("step")) != (last, 1):
        return None
    found = attention.softmax(attention.plain(weights.inputs[0]))
    joined = None if found is None else _not_lowered(attention.plain(found[0]))
    if found is None or joined is None or joined.op != "concat" or joined.attr("axis") != last:
        return None
    if len(joined.inputs) != 2:
        return None
    is_first = weights.attr("start") == 1
    sinks, scores = joined.inputs if is_first else joined.inputs[::-1]
    if scores.shape != weights.shape or sinks.shape[-1] != 1 or weights.attr("start") not in (0, 1):
        return None
    return attention.of_scores(root, scores, context, found[1], sinks)


def _not_lowered(scores: Node) -> Node:
    """x - max(x) → x, of which the softmax is the same; so with NaN as the peak of what has one."""
    if scores.op != "sub":
        return scores
    data, peak = map(attention.plain, scores.inputs)
    if peak.op == "where" and _tells_nan(peak.inputs[0], data):
        peak = attention.plain(peak.inputs[2])
    axes = (data.type.rank - 1,)
    is_peak = peak.op == "max" and peak.attr("axes") == axes
    return data if is_peak and attention.plain(peak.inputs[0]) is data else scores


def _tells_nan(condition: Node, data: Node) -> bool:
    """Whether a condition is that a row of `data` has a NaN."""
    if condition.op != "any" or condition.inputs[0].op != "isnan":
        return False
    return attention.plain(condition.inputs[0].inputs[0]) is data
