"""Operands of products that are computed in the call, packed once as constant ones are when built.

A program of a product brings its part of the right operand in the order in which it is multiplied,
and so does each other program with the same columns. Where there are several of them, one kernel
before the product does that once, in panels (`matmul_packed`), which programs then read front to
back, with all sums in registers. A left operand that lies along its rows is copied to rows along
the depth where several panels read it. Where the instruction set multiplies words of two rows, the
panels hold these side by side, and the depth of both operands is filled up with zeros to whole
blocks of words.
"""

from __future__ import annotations

import math

from aotc.aot.ir import build
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.infer import PACK_N, WORD_ROWS
from aotc.aot.ir.size import fixed, typical
from aotc.aot.schedule.domain import batch_index, matmul_domain, operand_accesses
from aotc.aot.schedule.trace import behind_views
from aotc.aot.traits import TargetTraits

# Rows from which a copy of the right operand costs less than those of its programs, and columns
# from which the same is true of the left one (each takes 1 to 3 % of the time of 512³).
FEWEST_READS = 256
FEWEST_COPIED = 32  # rows from which a right operand that is copied anyway is copied to panels
FEWEST_TERMS = 32  # of a sum: shorter ones take the time of the result
PACKED_TYPES = frozenset({"f32", "f64"})
WORD_TYPES = frozenset({"bf16"})  # which are packed, too, where they are multiplied by words
BLOCK_OF_WORDS = 32  # elements of the depth in a block of words, which have no tail
# The same of blocks of tiles. Of other depths and columns 16 threads multiply the operands as they
# are faster: 768 × 768 × 20,000 in 7.4 ms for 13, 1000 × 333 × 555 in 0.13 for 0.20.
BLOCK_OF_TILES = 64


def with_packed_operands(
    root_op: Node, copies: dict[Node, Node], traits: TargetTraits, *, is_copied: bool
) -> Node:
    """The product, as a matrix, with its right operand in panels, if many rows read it, or if it is
    copied anyway (`is_copied`), else as it is; what is copied is added to `copies`."""
    by_words = root_op.dtype in WORD_TYPES and root_op.dtype in dict(traits.product_rates)
    if not (by_words or root_op.dtype in PACKED_TYPES) or not _may_pack(root_op):
        return root_op
    left, right = root_op.inputs
    rows, depth, columns = root_op.shape[-2], *map(fixed, right.shape[-2:])
    if by_words and traits.has_tiles and (depth % BLOCK_OF_TILES or columns % PACK_N):
        return root_op
    missing = -depth % BLOCK_OF_WORDS if by_words else 0
    least = FEWEST_COPIED if is_copied else FEWEST_READS
    if by_words and (missing or columns % PACK_N):
        least *= 2  # zeros are one copy more
    if typical(rows) < least or (missing and columns < FEWEST_READS):
        return root_op
    matrix = build.reshape(left, (rows, depth))
    if columns >= FEWEST_READS and (missing or _lies_along_rows(root_op)):
        matrix = build.pad(matrix, (0, 0), (0, missing), 0.0) if missing else matrix
        copies.setdefault(matrix, build.stored(matrix))
        matrix = copies[matrix]
    whole = _words(right, missing, copies) if by_words else _panels(right)
    copies.setdefault(whole, build.stored(whole))
    packed = copies[whole]
    if not by_words:
        packed = build.reshape(packed, (whole.shape[0], depth, PACK_N))
    return make("matmul_packed", (matrix, packed), {"n": columns}, root_op.source)


def _may_pack(root_op: Node) -> bool:
    """Whether it is one product of a long depth and whole panels of columns, both known."""
    if root_op.op != "matmul" or math.prod(root_op.shape[:-2]) != 1:
        return False
    right = root_op.inputs[1]
    depth, columns = right.shape[-2:]
    if not isinstance(depth, int) or not isinstance(columns, int) or _is_larger(right):
        return False
    return depth >= FEWEST_TERMS and columns >= PACK_N


def _words(right: Node, missing: int, copies: dict[Node, Node]) -> Node:
    """[panels, K / r, PACK_N, r] of a matrix [K, N] and so many rows of zeros: r rows side by side.
    Zeros are copied first: rows with a mask are not brought side by side as vectors."""
    depth, columns = right.shape[-2:]
    panels, beside = math.ceil(fixed(columns) / PACK_N), WORD_ROWS[right.dtype]
    zeros = (missing, panels * PACK_N - fixed(columns))
    whole = build.reshape(right, (depth, columns))
    if any(zeros):
        padded = build.pad(whole, (0, 0), zeros, 0.0)
        whole = copies.setdefault(padded, build.stored(padded))
    split = build.reshape(whole, ((depth + missing) // beside, beside, panels, PACK_N))
    return build.permute(split, (2, 0, 3, 1))


def _panels(right: Node) -> Node:
    """[panels, …, PACK_N] of a matrix [K, N]; in their middle K, or the dims that were joined to
    it, so that the kernel which copies them can choose its order."""
    depth, columns = right.shape[-2:]
    source, order = build.reshape(right, (depth, columns)), (0, 1)
    if right.op == "reshape" and right.inputs[0].op == "permute":
        apart = right.inputs[0]
        if apart.shape[-1] == columns:
            source, order = apart.inputs[0], apart.attr("dims")
    *inner, last = order
    panels = math.ceil(fixed(columns) / PACK_N)
    missing = [0] * source.type.rank
    missing[last] = panels * PACK_N - fixed(columns)
    padded = build.pad(source, (0,) * source.type.rank, tuple(missing), 0.0)
    shape = (*source.shape[:last], panels, PACK_N, *source.shape[last + 1 :])
    behind = [axis + (axis > last) for axis in inner]
    return build.permute(build.reshape(padded, shape), (last, *behind, last + 1))


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
