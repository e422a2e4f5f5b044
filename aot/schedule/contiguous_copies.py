"""Copies that a product reads instead of its operands, where these lie badly for it.

An implicit GEMM reads windows of its input in runs of channels. Where channels are few or not the
contiguous axis, it would gather element by element and check bounds for each. Then the input is
copied once, padding included and channels last, so that a whole row of a window is one run.

A right operand of which neither rows nor columns lie together, the filters of a convolution that
come as an argument, is copied row by row: each tile of rows would gather all of it again.

A concat of many parts looks at all of them for each element, and a kernel takes only so many
pointers: it is joined from concats of a few parts each, which are stored.
"""

from __future__ import annotations

from math import isqrt

from aotc.aot.ir import build
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.size import Extent
from aotc.aot.schedule.domain import batch_index, contiguous_run, matmul_domain, operand_accesses
from aotc.aot.schedule.group import Domain
from aotc.aot.schedule.grow import MATMULS
from aotc.aot.schedule.trace import accesses

_MOVES = frozenset({"view", "pad", "window"})
MOST_PARTS = 32  # of a concat that one kernel joins


def with_contiguous_copies(graph: Graph) -> tuple[Graph, frozenset[Node]]:
    """The graph with such copies put in, and the nodes that are the copies."""
    copies: dict[Node, Node] = {}

    def copied(_: Node, node: Node) -> Node:
        if node.kind == "concat" and len(node.inputs) > MOST_PARTS:
            node = _by_parts(node, copies)
        return _with_columns(_with_copy(node, copies), copies) if node.kind in MATMULS else node

    found = graph.rebuilt(copied)
    asked = (node for node in found.nodes() if build.is_stored(node))
    return found, frozenset([*copies.values(), *asked])


def _by_parts(joined: Node, copies: dict[Node, Node]) -> Node:
    """concat(x, y, z, …) → concat(concat(x, y, …), concat(z, …), …), the inner ones stored."""
    axis, parts = joined.attr("axis"), list(joined.inputs)
    while len(parts) > MOST_PARTS:
        count = max(2, min(MOST_PARTS, isqrt(len(parts) - 1) + 1))
        groups = [parts[start : start + count] for start in range(0, len(parts), count)]
        parts = [build.concat(group, axis) for group in groups]
        copies |= {part: part for part in parts if part.op == "concat"}
    return make("concat", tuple(parts), joined.attrs, joined.source)


def _with_copy(root_op: Node, copies: dict[Node, Node]) -> Node:
    """The matmul on windows of a copy of their input, if it then reads longer runs."""
    path = [root_op.inputs[0]]
    while path[-1].kind == "view" and path[-1].op in ("reshape", "permute"):
        path.append(path[-1].inputs[0])
    if path[-1].op != "window" or _run(root_op, None) > 0:
        return root_op
    source = path[-1].inputs[0]
    axes = path[-1].attr("axes")
    first = [axis for axis in range(len(source.shape)) if axis not in axes]
    order = (*first[:1], *axes, *first[1:])
    copy = make("permute", (source,), {"dims": order})
    back = tuple(order.index(axis) for axis in range(len(order)))
    moved = make("permute", (copy,), {"dims": back})
    for node in reversed(path):
        moved = node.on((moved,))
    changed = root_op.on((moved, *root_op.inputs[1:]))
    if _run(changed, copy) == 0:
        return root_op
    copies[source] = copy
    return changed


def _with_columns(root_op: Node, copies: dict[Node, Node]) -> Node:
    """The matmul on a copy of its right operand, if that is gathered as it lies."""
    right = root_op.inputs[1]
    domain = matmul_domain(root_op)
    if root_op.kind != "matmul" or root_op.type.rank > 3 or not _is_gathered(root_op, domain):
        return root_op
    copies[right] = build.stored(right)
    return root_op.on((root_op.inputs[0], copies[right]))


def _is_gathered(root_op: Node, domain: Domain) -> bool:
    """Whether a view of memory has neither a row nor a column of elements that lie together."""
    assert domain.reduced is not None
    _, need = operand_accesses(root_op, domain, batch_index(root_op, domain))
    while need.node.kind == "view":
        (need,) = accesses(need.node, need.index)
    if need.node.op != "input":
        return False
    offset = ix.linear(need.index, need.node.shape)
    return not {offset.stride(domain.lanes), offset.stride(domain.reduced)} & {0, 1}


def _run(root_op: Node, copy: Node | None) -> Extent:
    """Elements of k in one run, if the matmul reads the copy, or what is behind its views."""

    def is_boundary(node: Node) -> bool:
        return node is copy or (copy is None and node.kind not in _MOVES)

    return contiguous_run(root_op, matmul_domain(root_op), is_boundary)
