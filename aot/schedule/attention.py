"""Attention: what kernels of it take, and the loops of one that reads its operands at its symbols.

On the CPU a kernel on memory competes with arithmetic, which moves scores through memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from aotc.aot.ir import access, types
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import AttrValue, Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import (
    Extent,
    Shape,
    bounds,
    fixed,
    is_static,
    proves_at_most,
    substitute,
    typical,
)
from aotc.aot.schedule.group import Domain
from aotc.aot.schedule.trace import Access

LARGEST_ELEMENT = 256  # numbers of one row of a head
FEW_ROWS = 64  # query rows of one key head up to which one tile takes them all
PROGRAMS = 8  # of a CPU: heads are not taken together where fewer would be left
MOST_OF_ONE_CORE = 1 << 21  # operations that are not worth a second core
SMALLEST_BLOCK, LARGEST_BLOCK = 16, 64  # rows, or keys, of a block of scores on the CPU
BLOCK_ELEMENTS = 64 * 256  # of an operand's block, which shares the nearest caches with others
LONG = 512  # rows and keys of calls that take long
BLOCK_COST = 8  # rows or keys that take as long as a block takes for itself
OPERATIONS_PER_BYTE = 10  # of one core, and of the memory that scores leave its caches for
SCORE_PASSES = 4  # of arithmetic over scores: written and read, and the weights again
Position = tuple[Index, ...]


def is_cheaper_on_memory(query: Shape, key: Shape, value: Shape, dtype: str) -> bool:
    """Whether a CPU's kernel does attention of these shapes for less than arithmetic. Dynamic sizes
    are judged where calls take long: one form serves all of them.

    That moves its scores through memory, keys and values once for each head that shares them, and
    numbers of 16 bits as f32; the kernel fills up blocks of rows and keys, and where few rows have
    many keys some of the cores are idle.
    """
    members = heads_together(query, key)
    rows, keys = _long(query[2] * members), _long(key[2])
    heads = typical(query[0] * query[1]) // members
    elements = fixed(query[3]), fixed(value[3])
    if min(rows, keys, *elements) == 0 or max(elements) > LARGEST_ELEMENT:
        return False
    down, across = rows_of_block(rows, max(elements)), block_of(keys, max(elements))
    filled = -(-rows // down) * down * -(-keys // across) * across
    moved = SCORE_PASSES * types.DTYPES["f32"].itemsize_bytes * rows * keys
    is_alike = members == 1 and types.DTYPES[dtype].itemsize_bytes > 2
    if rows < SMALLEST_BLOCK and keys > LARGEST_BLOCK and is_alike:
        return False  # both read keys and values, arithmetic in a sixth less time
    operations, useful = (2 * sum(elements) * scores for scores in (filled, rows * keys))
    if rows < SMALLEST_BLOCK and heads < PROGRAMS and heads * operations > MOST_OF_ONE_CORE:
        operations *= PROGRAMS // heads
    return operations - useful <= OPERATIONS_PER_BYTE * moved


def _long(extent: Extent) -> int:
    """The typical size, or a longer one up to `LONG` that the ranges allow."""
    if isinstance(extent, int):
        return extent
    longer = {dim: max(dim.typical, min(dim.high, LONG)) for dim in extent.dims()}
    return fixed(substitute(extent, longer))


def block_of(extent: Extent, widest: int) -> int:
    """Rows, or keys, of a CPU's block: the fewest with what fills up the last one, and for each
    block; of a range as many at its ends and at its typical size together."""
    largest = BLOCK_ELEMENTS >> (widest - 1).bit_length()
    block = best = max(SMALLEST_BLOCK, min(LARGEST_BLOCK, largest))
    sizes = {*bounds(extent), typical(extent)}

    def cost(block: int) -> int:
        return sum(-(-size // block) * (block + BLOCK_COST) for size in sizes)

    while block >= SMALLEST_BLOCK:
        best = min(best, block, key=cost)
        block //= 2
    return best


def heads_together(query: Shape, key: Shape) -> int:
    """How many heads beside each other, which share their keys, a program of a CPU takes where
    these have few rows: as many as leave programs for its cores."""
    batch, heads, rows, _ = query
    shared = fixed(heads) // max(1, fixed(key[1]))
    for members in range(shared, 1, -1):
        is_short = is_static((rows,)) and members * fixed(rows) <= FEW_ROWS
        programs = typical(batch) * fixed(heads) // members
        if is_short and shared % members == 0 and programs >= PROGRAMS:
            return members
    return 1


def rows_of_block(rows: Extent, widest: int) -> int:
    """Rows of a CPU's block: no more than there are."""
    most = bounds(rows)[1]
    return min(block_of(rows, widest), 1 << (max(1, most) - 1).bit_length())


def mask_of(root_op: Node) -> Node | None:
    """What hides keys, or is added to the scores."""
    return next((each for each in _of_scores(root_op) if each.type.kind != "int"), None)


def ends_of(root_op: Node) -> Node | None:
    """How many keys each row sees."""
    return next((each for each in _of_scores(root_op) if each.type.kind == "int"), None)


def sinks_of(root_op: Node) -> Node | None:
    """The score of each row that weighs no value."""
    return root_op.inputs[-1] if root_op.attr("has_sinks") else None


def _of_scores(root_op: Node) -> tuple[Node, ...]:
    """Mask and ends, where they are there."""
    return root_op.inputs[3 : len(root_op.inputs) - root_op.attr("has_sinks")]


def groups(root_op: Node) -> int:
    """Query heads that share one key head."""
    heads, key_heads = (fixed(operand.shape[1]) for operand in root_op.inputs[:2])
    return heads // max(1, key_heads)


def has_few_rows(root_op: Node) -> bool:
    """Whether one tile holds all query rows of a key head, as in decoding."""
    return proves_at_most(groups(root_op) * root_op.shape[2], FEW_ROWS)


def attention_domain(root_op: Node) -> Domain:
    """Outer z over heads, rows x over queries, lanes y over elements of a value, s over keys.

    With few rows z counts key heads, and x the queries of all heads that share one.
    """
    batch, heads, queries, elements = root_op.shape
    rows = queries
    if has_few_rows(root_op):
        heads, rows = heads // groups(root_op), rows * groups(root_op)
    keys = root_op.inputs[1].shape[2]
    return Domain(
        Symbol("z", batch * heads), Symbol("x", rows), Symbol("y", elements), Symbol("s", keys)
    )


def head_element(root_op: Node) -> Symbol:
    """The symbol d along an element of q and k."""
    return Symbol("d", root_op.inputs[0].shape[3])


def query_position(root_op: Node, domain: Domain) -> tuple[Index, Index, Index, Index]:
    """(batch, query head, query, key head) at the symbols."""
    batch, heads, queries, _ = root_op.shape
    shared = groups(root_op)
    outer, rows = ix.of(domain.outer), ix.of(domain.rows)
    if has_few_rows(root_op):
        at, key_head = ix.unravel(outer, (batch, heads // shared))
        member, query = ix.unravel(rows, (shared, queries))
        return at, key_head * shared + member, query, key_head
    at, head = ix.unravel(outer, (batch, heads))
    return at, head, rows, head // shared


def attention_index(root_op: Node) -> Position:
    """Index of the result at the symbols of its domain."""
    domain = attention_domain(root_op)
    batch, head, query, _ = query_position(root_op, domain)
    return batch, head, query, ix.of(domain.lanes)


def attention_accesses(root_op: Node, domain: Domain) -> tuple[Access, ...]:
    """Index of q, k, v and, where there are, of the mask, the ends and the sinks."""
    assert domain.reduced is not None
    batch, head, query, key_head = query_position(root_op, domain)
    key, element = ix.of(domain.reduced), ix.of(head_element(root_op))
    places: list[Position] = [
        (batch, head, query, element),
        (batch, key_head, key, element),
        (batch, key_head, key, ix.of(domain.lanes)),
    ]
    full = (*root_op.shape[:3], root_op.inputs[1].shape[2])
    for operand in root_op.inputs[3:]:
        scores = (batch, head, query, key)
        places.append(access.through_broadcast(scores, full, operand.shape))
    return tuple(map(Access, root_op.inputs, places))


def attention_operations(root_op: Node) -> int:
    """Multiplications and additions of both products, of the scores that rows see."""
    query, key, value = (operand.shape for operand in root_op.inputs[:3])
    return product_operations(query, key, query[3] + value[3], dict(root_op.attrs))


def product_operations(
    query: Shape, key: Shape, width: Extent, seen: Mapping[str, AttrValue]
) -> int:
    """Of products of scores' shape over so many elements together; where `seen`, the attributes of
    the attention, says causal, of half of the scores, and of no more than a window's."""
    rows, keys = typical(prod(query[:3])), typical(key[2])
    scores = rows * keys // 2 if seen["causal"] else rows * keys
    scores = min(scores, rows * (seen["window"] or keys))
    return 2 * scores * typical(width)
