"""Weight-only quantisation: chosen weights → small integers or 8-bit floats and scales of groups.

What is stored is an expression of the weight as it came, so that the weights program computes it,
of new weights too. All of it is done in f32: s = max |w| / largest, q = w / s rounded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aotc.aot.ir import build
from aotc.aot.ir.constants import stored_constant
from aotc.aot.ir.float8 import E4M3, bits_of, rounded, widened
from aotc.aot.ir.graph import Constant, Graph, Node, make
from aotc.aot.ir.quantised import GROUP, LARGEST, SMALLEST_SCALE
from aotc.aot.ir.storage import Array


def quantise_weights(
    graph: Graph, originals: Mapping[str, Array], kind: str, transposed: Collection[str] = ()
) -> Graph:
    """`graph` with the matrices of these names stored as `kind`: int8, int4 or fp8.

    originals: their values as they came, by the model's names; [rows, k] with k a multiple of
    GROUP, but for the `transposed` ones, which are [k, rows].
    """
    pool = dict(graph.constants)
    replaced: dict[Node, Node] = {}
    for node in graph.nodes():
        if node.op != "constant":
            continue
        known = pool[node.attr("name")]
        name = next((each for each in known.names if each in originals), None)
        if name is None:
            continue
        own = Constant(known.name, known.type, originals[name], known.names)
        rows = build.transpose(node) if name in transposed else node
        parts = {}
        for label, expression in zip(("q", "scale"), _quantised(rows, kind), strict=True):
            made = stored_constant(f"{known.name}.{label}", expression, {own.name: own})
            pool[made.name] = made
            parts[label] = build.constant(made.name, made.type)
        found = _dequantised(parts["q"], parts["scale"], kind, rows)
        replaced[node] = build.transpose(found) if name in transposed else found
    whole = Graph(
        graph.inputs, graph.outputs, graph.input_names, graph.output_names, pool, graph.states
    )
    changed = whole.replaced(replaced)
    return changed.with_outputs(changed.outputs)


def _quantised(weight: Node, kind: str) -> tuple[Node, Node]:
    """The numbers as they are stored, and the scales [rows, groups, 1]."""
    rows, inner = weight.shape
    groups = build.reshape(build.cast(weight, "f32"), (rows, inner // GROUP, GROUP))
    most = build.extreme("max", build.unary("abs", groups), (2,))
    scale = build.maximum(build.pointwise("div", most, LARGEST[kind]), SMALLEST_SCALE)
    ratio = build.pointwise("div", groups, scale)
    if kind == "fp8":
        return bits_of(rounded(ratio, E4M3, saturates=True), E4M3), scale
    near = build.unary("round", ratio)
    near = build.maximum(build.minimum(near, LARGEST[kind]), -LARGEST[kind])
    q = build.cast(near, "i8")
    if kind == "int8":
        return q, scale
    low, high = (build.cast(build.slice_axis(q, 2, start, GROUP, 2) + 8, "u8") for start in (0, 1))
    return build.pointwise("bitwise_or", low, build.pointwise("shift_left", high, 4)), scale


def _dequantised(q: Node, scale: Node, kind: str, weight: Node) -> Node:
    rows, groups = scale.shape[:2]
    if kind == "fp8":
        found = widened(q, E4M3)
    elif kind == "int8":
        found = build.cast(q, "f32")
    else:
        pairs = build.reshape(q, (*q.shape, 1))
        shifts = build.cast(build.counter(4, 3, 2) * 4, "u8")
        halves = build.pointwise("bitwise_and", make("shift_right", (pairs, shifts)), 15)
        found = build.cast(build.reshape(halves, (rows, groups, GROUP)), "f32") - 8.0
    return build.cast(build.reshape(found * scale, weight.shape), weight.dtype)
