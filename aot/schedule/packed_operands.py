"""Operands of products that are computed in the call, packed once as constant ones are when built.

A program of a product brings its part of the right operand in the order in which it is multiplied,
and so does each other program with the same columns. Where there are several of them, one kernel
before the product does that once, in panels (`matmul_packed`), which programs then read front to
back, with all sums in registers. A left operand that lies along its rows is copied to rows along
the depth where several panels read it.
"""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.infer import PACK_N
from aotc.aot.ir.size import is_static, typical
from aotc.aot.schedule.domain import batch_index, matmul_domain, operand_accesses
from aotc.aot.schedule.trace import behind_views
from aotc.aot.traits import TargetTraits

# Rows from which a copy of the right operand costs less than those of its programs, and columns
# from which the same is true of the left one (512³ f32: 3 % of the product's time each).
FEWEST_READS = 256
FEWEST_TERMS = 32  # of a sum: shorter ones take the time of the result
PACKED_TYPES = ("f32", "f64")


def with_packed_operands(root_op: Node, copies: dict[Node, Node], traits: TargetTraits) -> Node:
    """The product with its right operand in panels, if many rows read it; what is copied for that
    is added to `copies`."""
    if root_op.op != "matmul" or root_op.dtype not in PACKED_TYPES or not traits.packs_weights:
        return root_op
    left, right = root_op.inputs
    if math.prod(root_op.shape[:-2]) != 1 or not is_static(root_op.shape[-1:]):
        return root_op
    rows, (depth, columns) = root_op.shape[-2], right.shape[-2:]
    is_long = isinstance(depth, int) and depth >= FEWEST_TERMS
    if not is_long or typical(rows) < FEWEST_READS or columns < PACK_N or _is_larger(right):
        return root_op
    panels = math.ceil(columns / PACK_N)
    dense = build.reshape(right, (depth, columns))
    padded = build.pad(dense, (0, 0), (0, panels * PACK_N - columns), 0.0)
    packed = build.permute(build.reshape(padded, (depth, panels, PACK_N)), (1, 0, 2))
    matrix = build.reshape(left, (rows, depth))
    if columns >= FEWEST_READS and _lies_along_rows(root_op):
        copies.setdefault(matrix, build.stored(matrix))
        matrix = copies[matrix]
    copies.setdefault(packed, build.stored(packed))
    product = make("matmul_packed", (matrix, copies[packed]), {"n": columns}, root_op.source)
    return build.reshape(product, root_op.shape)


def _is_larger(operand: Node) -> bool:
    """Whether an operand repeats elements of what it views, as windows do."""
    behind = operand
    while behind.kind == "view":
        behind = behind.inputs[0]
    return behind.kind == "window" or typical(behind.type.numel) < typical(operand.type.numel)


def _lies_along_rows(root_op: Node) -> bool:
    """Whether neighbours in a column of the left operand, which no build can copy, are neighbours
    in memory."""
    domain = matmul_domain(root_op)
    assert domain.reduced is not None
    need, _ = operand_accesses(root_op, domain, batch_index(root_op, domain))
    memory, _ = behind_views(need)
    if memory.node.op == "constant":
        return False
    offset = ix.linear(memory.index, memory.node.shape)
    return offset.stride(domain.reduced) != 1 and offset.stride(domain.rows) == 1
