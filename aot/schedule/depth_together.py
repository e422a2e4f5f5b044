"""Copies of operands, on a GPU, whose depth lies together and in whole loads.

Rows that do not begin at multiples of 16 bytes are loaded element by element: the depth is filled
up with zeros, of both operands. Tensor cores read TF32 from shared memory along the depth only, and
Triton would transpose each tile of an operand of f32 whose columns lie together, in two parts, for
every program.
"""

from __future__ import annotations

from aotc.aot.ir import build
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import typical
from aotc.aot.ir.types import DTYPES, SHORT_FLOATS
from aotc.aot.schedule.domain import batch_index, matmul_domain, operand_accesses
from aotc.aot.schedule.group import Domain
from aotc.aot.schedule.row_pitch import LINE_BYTES, Pitches
from aotc.aot.schedule.trace import Access, behind_views
from aotc.aot.traits import DESCRIPTOR_BYTES, TargetTraits

# Multiply-adds from which on transposing the right operand first is faster (H200: 512³ in 13.5 for
# 14.8 µs, 1024³ in 38 for 103, 2048³ in 200 for 445).
LEAST_TRANSPOSED = 1 << 24
TOGETHER = 4  # numbers of f32 in a load of 16 bytes
# Multiply-adds from which on filling up the depth first is faster, and products of each element
# (H200, f32: 101³ in 7.9 for 19.1 µs, 601³ in 20.7 for 76.2). Products of 16 bits lose less time by
# single loads: 256 rows of 201 take 6.9 µs, of 401 10.8, a copy 2.5.
LEAST_FILLED, LEAST_REUSE, LEAST_SHORT = 1 << 18, 32, 256


def with_depth_together(
    root_op: Node, copies: dict[Node, Node], pitches: Pitches, traits: TargetTraits
) -> Node:
    """The product on copies of those operands, if that pays. Copies are added to `copies`."""
    if not traits.is_gpu or root_op.kind != "matmul":
        return root_op
    depth, columns = map(typical, root_op.inputs[1].shape[-2:])
    work, is_rounded = typical(root_op.type.numel) * depth, root_op.op == "matmul_tf32"
    is_of_parts = traits.precision_of_product(root_op.dtype, columns, depth) == "tf32x3"
    dtypes = {operand.dtype for operand in root_op.inputs}
    is_of_short = dtypes <= set(SHORT_FLOATS) and depth >= LEAST_SHORT
    is_of_floats = is_rounded or is_of_parts or is_of_short
    is_broken = work >= LEAST_FILLED and is_of_floats and _has_broken_loads(root_op)
    if is_broken and not _reads_windows(root_op.inputs[0]):
        return _on_whole_loads(root_op, copies, pitches)
    if is_rounded:
        return _with_rounded_together(root_op, copies)
    if not is_of_parts or work < LEAST_TRANSPOSED or depth % TOGETHER:
        return root_op
    domain, right = _right_of(root_op)
    is_constant = behind_views(right)[0].node.op == "constant"
    is_across = _stride(right, domain.lanes) == 1 and _stride(right, domain.reduced) != 1
    return on_transposed(root_op, copies) if is_across and not is_constant else root_op


def _with_rounded_together(root_op: Node, copies: dict[Node, Node]) -> Node:
    """The product of TF32, whose operands are rounded in memory: with the depth together."""
    domain = matmul_domain(root_op)
    left, right = operand_accesses(root_op, domain, batch_index(root_op, domain))
    if _is_rounded_across(left, domain.reduced):
        copy = root_op.inputs[0]
        copies.setdefault(copy, build.stored(copy))
        root_op = root_op.on((copies[copy], *root_op.inputs[1:]))
    is_across = _is_rounded_across(right, domain.reduced)
    return on_transposed(root_op, copies) if is_across else root_op


def _right_of(root_op: Node) -> tuple[Domain, Access]:
    domain = matmul_domain(root_op)
    return domain, operand_accesses(root_op, domain, batch_index(root_op, domain))[1]


def on_transposed(root_op: Node, copies: dict[Node, Node]) -> Node:
    """The product on a copy of its right operand whose depth lies together."""
    left, right, *others = root_op.inputs
    if right not in copies:
        copies[right] = build.stored(build.transpose(right))
    return root_op.on((left, build.transpose(copies[right]), *others))


def _has_broken_loads(root_op: Node) -> bool:
    """Whether the depth is no multiple of a load, and each row and column is read by several
    programs."""
    (rows, columns), depth = root_op.shape[-2:], root_op.inputs[0].shape[-1]
    is_reused = min(typical(rows), typical(columns)) >= LEAST_REUSE
    nbytes = depth * min(DTYPES[each.dtype].itemsize_bytes for each in root_op.inputs)
    return isinstance(nbytes, int) and nbytes % DESCRIPTOR_BYTES != 0 and is_reused


def _on_whole_loads(root_op: Node, copies: dict[Node, Node], pitches: Pitches) -> Node:
    """x · w → [x 0] · [w; 0], of copies; a weight is stored so"""
    left, right = root_op.inputs
    filled = _filled(build.transpose(right), copies, pitches)
    return root_op.on((_filled(left, copies, pitches), build.transpose(filled)))


def _filled(operand: Node, copies: dict[Node, Node], pitches: Pitches) -> Node:
    """A copy with zeros behind each row, up to whole lines of a cache."""
    if operand in copies:
        return copies[operand]
    none = (0,) * (operand.type.rank - 1)
    unit = LINE_BYTES // DTYPES[operand.dtype].itemsize_bytes
    wide = build.pad(operand, (*none, 0), (*none, -operand.shape[-1] % unit), 0)
    found = pitches.stored(wide)
    if found.op != "constant":
        copies[operand] = found
    return found


def _reads_windows(operand: Node) -> bool:
    """Whether a copy of an operand would repeat elements."""
    while operand.kind in ("view", "pad") or operand.op == "round_tf32":
        operand = operand.inputs[0]
    return operand.op == "window"


def _stride(need: Access, symbol: ix.Symbol | None) -> object:
    """Elements between neighbours in memory; None where that varies."""
    behind, _ = behind_views(need)
    return ix.linear(behind.index, behind.node.shape).stride(symbol) if symbol else None


def _is_rounded_across(need: Access, reduced: ix.Symbol | None) -> bool:
    """Whether an operand is rounded in memory as it lies, neighbours along the depth apart."""
    is_rounded = behind_views(need)[0].node.op == "round_tf32"
    return is_rounded and _stride(need, reduced) != 1
