"""Weights: matmuls of one input joined into one, constant operands packed for the kernels.

Matmuls of one input whose results are combined elementwise become one matmul of interleaved
weights: silu(x·v) * (x·w) reads the even and the odd columns of x·[v₀ w₀ v₁ w₁ …]. Both factors of
an element are then in one tile, and a GPU's matmul kernel multiplies them at its end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, made_for, make
from aotc.aot.ir.infer import PACK_N, WORD_ROWS, packed_columns
from aotc.aot.ir.rules import Context, Rule, rule_for
from aotc.aot.ir.size import Extent, fixed
from aotc.aot.rewrites.panels import is_widened, joined, panels_of, transposed

FEWEST_BESIDE = 8  # columns of each of several products that are packed
WORDS_DEPTH = 32  # what the depth must be a multiple of: half or all of that of a processor's tiles


def _pack(root: Node, context: Context) -> Node | None:
    """x · w → matmul_packed(x as rows, panels of PACK_N columns of w) for a constant w"""
    left, right = root.inputs
    if not context.is_constant(right) or context.is_constant(left):
        return None
    inner, columns = right.shape[-2:]
    if 0 in root.shape or not inner:
        return None
    if any(extent != 1 for extent in right.shape[:-2]):
        return _packed_beside(left, right)
    panels = math.ceil(columns / PACK_N)
    dense = build.reshape(right, (inner, columns))
    if is_widened(dense):
        packed = panels_of(dense)
    else:
        zero = 0 if dense.dtype == "i8" else 0.0
        padded = build.pad(dense, (0, 0), (0, panels * PACK_N - columns), zero)
        packed = _panels(padded, inner, panels)
    rows = build.reshape(left, (left.type.numel // inner, inner))
    product = make("matmul_packed", (rows, packed), {"n": columns})
    return build.reshape(product, root.shape)


def _packed_beside(left: Node, right: Node) -> Node | None:
    """Several products by constants, the columns of each beside those of the one before; None where
    they are too few for vectors, or have a matrix of theirs in common."""
    inner, columns = map(fixed, right.shape[-2:])
    is_plain = left.type.rank == right.type.rank == 3 and left.shape[0] == right.shape[0]
    if not is_plain or columns < FEWEST_BESIDE or is_widened(right):
        return None
    wide, zero = packed_columns(columns), 0 if right.dtype == "i8" else 0.0
    padded = build.pad(right, (0, 0, 0), (0, 0, wide - columns), zero)
    count = fixed(right.shape[0])
    beside = build.reshape(build.permute(padded, (1, 0, 2)), (inner, count * wide))
    missing = -(count * wide) % PACK_N
    whole = build.pad(beside, (0, 0), (0, missing), zero)
    packed = _panels(
        whole, inner, (count * wide + missing) // PACK_N, WORD_ROWS.get(right.dtype, 1)
    )
    return make("matmul_packed", (left, packed), {"n": columns})


def _panels(padded: Node, inner: Extent, panels: int, multiple: int = WORDS_DEPTH) -> Node:
    """A matrix whose columns fill panels as these; rows of bf16 and i8 side by side where tiles of
    a processor and vectors take whole words of them: where the depth is such a multiple."""
    beside = WORD_ROWS.get(padded.dtype)
    if beside is None or fixed(inner) % multiple:
        return build.permute(build.reshape(padded, (inner, panels, PACK_N)), (1, 0, 2))
    words = build.reshape(padded, (inner // beside, beside, panels, PACK_N))
    return build.permute(words, (2, 0, 3, 1))


# matmul(x, constant) → matmul_packed(x, panels)
PACKING: tuple[Rule, ...] = (rule_for(("matmul", "matmul_i8"), "pack", _pack, is_exact=False),)


JOINED = frozenset({"matmul", "matmul_i8"})


def join_matmuls(graph: Graph) -> tuple[Graph, int]:
    """x·v, x·w → slices of x·[v w], biases joined too; answers how many matmuls went."""
    users = graph.users()
    context = Context()
    groups: dict[tuple[str, Node], list[Node]] = {}
    for node in graph.nodes():
        if node.op not in JOINED or node.type.rank != 2 or node in graph.outputs:
            continue
        if context.is_constant(node.inputs[1]) and not context.is_constant(node.inputs[0]):
            groups.setdefault((node.op, node.inputs[0]), []).append(node)
    replaced: dict[Node, Node] = {}
    count = 0
    for members in groups.values():
        pairs = _joinable([(each, _bias_user(each, users, context)) for each in members], users)
        if len(pairs) < 2:
            continue
        count += len(pairs) - 1
        with made_for(pairs[0][0].source):
            replaced.update(_join([member for member, _ in pairs], [bias for _, bias in pairs]))
    return graph.replaced(replaced), count


def _bias_user(member: Node, users: dict[Node, tuple[Node, ...]], context: Context) -> Node | None:
    """The one user of a matmul, when it adds a constant row."""
    readers = users[member]
    if len(readers) != 1 or readers[0].op != "add" or readers[0].inputs[0] is not member:
        return None
    bias = readers[0].inputs[1]
    is_row = context.is_constant(bias) and bias.shape in ((), (1, member.shape[1]))
    return readers[0] if is_row else None


def _joinable(
    pairs: Sequence[tuple[Node, Node | None]], users: Mapping[Node, tuple[Node, ...]]
) -> Sequence[tuple[Node, Node | None]]:
    """Matmuls, each with the sum of it and its bias, without those on which arithmetic of their own
    follows: on a part of a joined one's columns it could not run on the tile in registers. Parts of
    equal width may go on together (gate and up).
    """
    if len({member.shape[1] for member, _ in pairs}) < 2:
        return pairs
    return [
        (member, biased)
        for member, biased in pairs
        if not any(user.kind == "pointwise" for user in users[biased or member])
    ]


def _join(members: Sequence[Node], biased: Sequence[Node | None]) -> dict[Node, Node]:
    left = members[0].inputs[0]
    # Weights are mostly transposed as they come: their rows joined, then transposed once.
    weights = [build.transpose(member.inputs[1]) for member in members]
    rows = joined(weights, 0, build.concat) if _are_widened(weights) else build.concat(weights, 0)
    product = make(members[0].op, (left, build.transpose(rows)))
    sums = [node for node in biased if node is not None]
    ends: Sequence[Node] = members
    if len(sums) == len(members) and max(Counter(sums).values()) == 1:
        biases = [build.expand(node.inputs[1], (1, node.shape[1])) for node in sums]
        product = make("add", (product, build.concat(biases, 1)))
        ends = sums
    starts = [sum(m.shape[1] for m in members[:number]) for number in range(len(members))]
    return {
        end: build.slice_axis(product, 1, start, start + end.shape[1])
        for end, start in zip(ends, starts, strict=True)
    }


def widen_products(graph: Graph) -> tuple[Graph, int]:
    """matmul_i8(a, b) → Σ i32(f32(a) · f32(b)) over parts of the inner dimension"""
    found = [node for node in graph.nodes() if node.op == "matmul_i8"]
    replaced = {node: build.matmul_of_bytes(*node.inputs) for node in found}
    return (graph.replaced(replaced), len(replaced)) if replaced else (graph, 0)


def orient_weights(graph: Graph) -> tuple[Graph, int]:
    """x · w for a constant w → x · transpose(transpose(w)), whose inner part is then folded."""
    context = Context()
    replaced: dict[Node, Node] = {}
    for node in graph.nodes():
        if node.op != "matmul" or not context.is_constant(node.inputs[1]):
            continue
        left, right = node.inputs
        if right.type.rank == 2 and is_widened(right):
            view = build.transpose(transposed(right))
            if view is not right:
                replaced[node] = make("matmul", (left, view), (), node.source)
            continue
        swapped = build.transpose(right)
        if right.op == "permute" and swapped is right.inputs[0]:
            continue
        dims = (*range(right.type.rank - 2), right.type.rank - 1, right.type.rank - 2)
        view = make("permute", (make("permute", (right,), {"dims": dims}),), {"dims": dims})
        replaced[node] = make("matmul", (left, view), (), node.source)
    return graph.replaced(replaced), len(replaced)


# -- pairs -----------------------------------------------------------------------------------------


Users = Mapping[Node, tuple[Node, ...]]


def pair_matmuls(graph: Graph) -> tuple[Graph, int]:
    """x·v and x·w that one operation combines → even and odd columns of one product."""
    users, context = graph.users(), Context()
    replaced: dict[Node, Node] = {}
    count = 0
    for node in graph.nodes():
        if node.kind != "pointwise" or len(node.inputs) != 2:
            continue
        sources = [_source(operand, users, context) for operand in node.inputs]
        left, right = sources
        if left is None or right is None or not _may_pair(left, right, graph, replaced):
            continue
        with made_for(left.source):
            replaced.update(_interleaved(left, right))
        count += 1
    return graph.replaced(replaced), count


def _source(node: Node, users: Users, context: Context) -> Node | None:
    """The matmul behind elementwise ops that nothing else reads."""
    while len(users[node]) == 1:
        if node.op == "matmul":
            return node
        varying = [operand for operand in node.inputs if not context.is_constant(operand)]
        is_step = node.kind == "pointwise" or node.op == "reshape"
        if not is_step or len(varying) != 1 or varying[0].type.numel != node.type.numel:
            return None
        node = varying[0]
    return None


def _may_pair(left: Node, right: Node, graph: Graph, replaced: Mapping[Node, Node]) -> bool:
    context = Context()
    is_new = left is not right and left not in replaced and right not in replaced
    is_inner = left not in graph.outputs and right not in graph.outputs
    is_alike = left.inputs[0] is right.inputs[0] and left.shape == right.shape
    weights = (left.inputs[1], right.inputs[1])
    are_weights = all(weight.type.rank == 2 and context.is_constant(weight) for weight in weights)
    return is_new and is_inner and is_alike and are_weights


def _are_widened(weights: Sequence[Node]) -> bool:
    return all(map(is_widened, weights))


def _alternating(parts: Sequence[Node], axis: int) -> Node:
    """The rows of several matrices along an axis, interleaved."""
    shape = parts[0].shape
    apart = [build.reshape(each, (*shape[: axis + 1], 1, *shape[axis + 1 :])) for each in parts]
    whole = build.concat(apart, axis + 1)
    return build.reshape(whole, (*shape[:axis], len(parts) * shape[axis], *shape[axis + 1 :]))


def _interleaved(left: Node, right: Node) -> dict[Node, Node]:
    columns = left.shape[-1]
    weights = [build.transpose(matmul.inputs[1]) for matmul in (left, right)]
    rows = joined(weights, 0, _alternating) if _are_widened(weights) else _alternating(weights, 0)
    product = make("matmul", (left.inputs[0], build.transpose(rows)))
    axis = product.type.rank - 1
    return {
        matmul: build.slice_axis(product, axis, start, 2 * columns, 2)
        for start, matmul in enumerate((left, right))
    }
