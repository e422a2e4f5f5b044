"""Attention sinks: softmax over the scores and one more column, which has a weight but no value.

With p the weights of the keys alone and l the log-sum-exp of their scores, softmax([scores, c])
without its last column = p · e^l / (e^l + e^c).
"""

from __future__ import annotations

import math

import numpy

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.rules import Context, Rule, rule_for
from aotc.aot.ir.types import FLOATS_TO_F32
from aotc.aot.rewrites import attention
from aotc.aot.schedule.attention import has_few_rows

LEAST = float(numpy.finfo(numpy.float32).min)  # the log of the sum of a row that sees no key


def rules(serves: attention.Serves) -> tuple[Rule, ...]:
    """The table for a target that serves some attentions; others stay arithmetic."""

    def recognise(root: Node, context: Context) -> Node | None:
        weights = _weights_of(root, context)
        if weights is None:
            return None
        found = attention.of_scores(root, weights[0], context, is_safe=True)
        if found is None or not serves(attention.unviewed(found), context):
            return None
        return _scaled(found, weights[1])

    # matmul(softmax([scores, c])[.., :-1], v) → attention(q, k, v) · e^l / (e^l + e^c)
    return (rule_for(("matmul",), "attention-sinks", recognise, is_exact=False),)


RULES = rules(lambda _, __: True)


def has_many_rows(attention: Node, _: Context) -> bool:
    """Whether a GPU's kernel with sums takes an attention in less time than its arithmetic: it has
    one program for the keys of a block of rows."""
    return not has_few_rows(attention)


def _scaled(found: Node, sink: Node) -> Node:
    """The attention times the share of the weights that its sinks leave to the keys."""
    kernel = attention.unviewed(found)
    sums = make("attention_log_sum_exp", kernel.inputs, kernel.attrs)
    rows = build.reshape(sums, sink.shape)
    sees_nothing = rows <= LEAST
    rows = make("where", (sees_nothing, build.scalar(-math.inf, "f32"), rows))
    sink = build.cast(sink, "f32")
    peak = build.maximum(rows, sink)  # of infinite ones come NaN, as of the softmax of both
    of_keys, of_sink = (make("exp", (each - peak,)) for each in (rows, sink))
    left = build.reshape(make("div", (of_keys, of_keys + of_sink)), (*found.shape[:-1], 1))
    return build.cast(build.cast(found, "f32") * left, found.dtype)


def _weights_of(root: Node, context: Context) -> tuple[Node, Node] | None:
    """(scores of the keys, the column of sinks) of a product with such weights."""
    if root.dtype not in FLOATS_TO_F32:
        return None
    for outer in attention.views_of_rows(root.inputs[0]):
        if outer.op == "slice" and context.is_used_once(outer):
            return _joined(outer)
    return None


def _joined(weights: Node) -> tuple[Node, Node] | None:
    last = weights.type.rank - 1
    if (weights.attr("axis"), weights.attr("start"), weights.attr("step")) != (last, 0, 1):
        return None
    found = attention.softmax(attention.plain(weights.inputs[0]))
    joined = None if found is None else _not_lowered(attention.plain(found[0]))
    if joined is None or joined.op != "concat" or joined.attr("axis") != last:
        return None
    if len(joined.inputs) != 2 or joined.inputs[0].shape != weights.shape:
        return None
    scores, sink = joined.inputs
    return (scores, sink) if sink.shape[-1] == 1 else None


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
