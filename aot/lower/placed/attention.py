"""Attention, its rows' sums and its gradients as calls of kernels on memory."""

from __future__ import annotations

from functools import partial
from typing import Any

from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import Extent, content, highest, typical
from aotc.aot.ir.size import kernel_text as size_text
from aotc.aot.lower.call import Called
from aotc.aot.lower.placed.template import (
    SMALLEST,
    Block,
    Strided,
    from_template,
    operands_of,
    steps_text,
)
from aotc.aot.lower.tiles import power_above
from aotc.aot.schedule.attention import block_of, heads_together, rows_of_block
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import (
    ATTENTION,
)

MORE_BLOCKS = ((32, 64), (64, 32), (128, 128))  # that tuning tries: rows and keys
ROWS_TILED, KEYS_TILED = 64, 256  # of a block that a processor's tiles multiply, at most
FEW_TILED = 8  # rows that tiles multiply, at least
TILED_BLOCK_COST = 8  # of one more such block, in rows or keys
_attention = partial(from_template, ATTENTION, num_stages=1, num_warps=1)


def attention(node: Node, traits: TargetTraits) -> Called:
    """One program for each block of rows of a head; by the processor's tiles where it has them."""
    (query, key, value, *more), _, how = operands_of(node)
    sinks = more.pop() if how["has_sinks"] else None
    kinds = [node.inputs[place.memory].type.kind for place in more]
    ends = more[kinds.index("int")] if "int" in kinds else None
    masks = [place for place in more if place is not ends]
    batch, heads, rows, _ = query.shape
    members = 1 if traits.is_gpu else heads_together(query.shape, key.shape)
    numbers = {
        **_attention_numbers(how, query, key, value, *masks),
        "HEADS": size_text(heads),
        "MEMBERS": members,
        "ENDS": steps_text(ends.strides[:3]) if ends else None,
        "SINKS": steps_text(sinks.strides[:3]) if sinks else None,
        "SOFTCAP": how["softcap"],
        "SAFE": how["is_safe"],
        "KEEPS_BF16": traits.multiplies_bf16,
    }
    heads, rows = heads // members, rows * members
    sides = _sides((rows, key.shape[2]), (query.shape[3], value.shape[3]), traits)
    if traits.has_tiles and sides[0]["BM"] >= FEW_TILED:
        tallest = _tiled_side(typical(rows), ROWS_TILED)
        longest = _tiled_side(typical(key.shape[2]), KEYS_TILED)
        sides = [{"BM": tallest, "BN": longest}, *sides]
    blocks = [(each, (-(-rows // each["BM"]), heads, batch)) for each in sides]
    mask = masks[0] if masks else None
    reads = {"q": query, "k": key, "v": value, "mask": mask, "ends": ends, "sinks": sinks}
    return _attention("attention_forward", {"out": 0, "sums": 1}, reads, numbers, blocks)


def _tiled_side(extent: int, largest: int) -> int:
    """The side of a block that leaves the least to compute beyond the end, each block's own cost
    counted: products take less time than the copies and powers around them."""
    sizes = [1 << bit for bit in range(SMALLEST.bit_length() - 1, largest.bit_length())]
    return min(sizes, key=lambda size: -(-extent // size) * (size + TILED_BLOCK_COST))


def attention_backward(node: Node, traits: TargetTraits) -> Called:
    """One program for each head of keys."""
    (query, key, value, gradient, out, sums, *masks), stored, how = operands_of(node)
    ends = {"g": gradient, "out": out, "sums": sums}
    gradients = dict(zip(("dq", "dk", "dv"), stored, strict=True))
    numbers = {
        **_attention_numbers(how, query, key, value, *masks),
        **{name.upper(): steps_text(place.strides[:3]) for name, place in ends.items()},
        **{
            name.upper(): steps_text((place.strides[2], place.start))
            for name, place in gradients.items()
        },
    }
    extents = query.shape[2], key.shape[2]
    sides = _sides(extents, (query.shape[3], value.shape[3]), traits)
    blocks = [(each, (key.shape[1], key.shape[0], 1)) for each in sides]
    memories = {name: place.memory for name, place in gradients.items()}
    reads = {"q": query, "k": key, "v": value, "mask": masks[0] if masks else None, **ends}
    return _attention("attention_backward", memories, reads, numbers, blocks)


def _attention_numbers(
    how: dict[str, Any], query: Strided, key: Strided, value: Strided, mask: Strided | None = None
) -> dict[str, Any]:
    """What both kernels are given: sizes, what scores are made of, and steps to the next batch,
    head and row."""
    _, heads, rows, element = query.shape
    keys = key.shape[2]
    return {
        "RATIO": heads // key.shape[1],
        "T": size_text(rows),
        "S": size_text(keys),
        "T_UNIT": content(rows),
        "S_UNIT": content(keys),
        "S_MOST": highest(keys),
        "D": element,
        "E": value.shape[3],
        "BD": power_above(element),
        "BE": power_above(value.shape[3]),
        "SCALE": how["scale"],
        "CAUSAL": how["offset"] if how["causal"] else None,
        "WINDOW": how["window"],
        **{
            name: steps_text(place.strides[:3])
            for name, place in zip("QKV", (query, key, value), strict=True)
        },
        "MASK": steps_text(mask.strides) if mask else None,
    }


def _sides(
    extents: tuple[Extent, Extent], elements: tuple[int, int], traits: TargetTraits
) -> list[Block]:
    """Rows and keys of a block of so many of both, the first as a rule the fastest."""
    rows, keys = extents
    widest = max(elements)
    tallest, longest = power_above(typical(rows)), power_above(typical(keys))
    fitting = [row for row in MORE_BLOCKS if row[0] <= tallest and row[1] <= longest]
    down = block_of(rows, widest) if traits.is_gpu else rows_of_block(rows, widest)
    first = down, block_of(keys, widest)
    sides = dict.fromkeys((first, *fitting))
    return [{"BM": down, "BN": across} for down, across in sides]
