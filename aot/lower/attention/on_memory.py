"""Attention on memory, with the sums of its rows, and its gradients → calls of their template.

A program has a tile of rows, or for the gradients a whole head of keys, so that scores stay in the
cache and every sum has one order.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from aotc.aot.ir.graph import Node
from aotc.aot.lower.call import Block, Called, Place, from_template, places_of
from aotc.aot.lower.tiles import power_above
from aotc.aot.schedule.attention import block_of
from aotc.kernels.templates.registry import ATTENTION

_call = partial(from_template, ATTENTION, num_stages=1, num_warps=1)
MORE_BLOCKS = ((32, 64), (64, 32), (128, 128))  # that tuning tries: rows and keys


def attention(node: Node) -> Called:
    """One program for each block of rows of a head."""
    (query, key, value, *masks), _, how = places_of(node)
    batch, heads, rows, _ = query.shape
    ends = {"HEADS": heads, "SAFE": how["is_safe"]}
    numbers = {**_numbers(how, query, key, value, *masks), **ends}
    blocks = [(each, (-(-rows // each["BM"]), heads, batch)) for each in _blocks(query, key, value)]
    reads = {"q": query, "k": key, "v": value, "mask": masks[0] if masks else None}
    return _call("attention_forward", {"out": 0, "sums": 1}, reads, numbers, blocks)


def attention_backward(node: Node) -> Called:
    """One program for each head of keys."""
    (query, key, value, gradient, out, sums, *masks), stored, how = places_of(node)
    ends = {"g": gradient, "out": out, "sums": sums}
    gradients = dict(zip(("dq", "dk", "dv"), stored, strict=True))
    numbers = {
        **_numbers(how, query, key, value, *masks),
        **{name.upper(): place.strides[:3] for name, place in ends.items()},
        **{name.upper(): (place.strides[2], place.start) for name, place in gradients.items()},
    }
    blocks = [(each, (key.shape[1], key.shape[0], 1)) for each in _blocks(query, key, value)]
    memories = {name: place.memory for name, place in gradients.items()}
    reads = {"q": query, "k": key, "v": value, "mask": masks[0] if masks else None, **ends}
    return _call("attention_backward", memories, reads, numbers, blocks)


def _numbers(
    how: dict[str, Any], query: Place, key: Place, value: Place, mask: Place | None = None
) -> dict[str, Any]:
    """What both kernels are given: sizes, what scores are made of, and steps to the next batch,
    head and row."""
    _, heads, rows, element = query.shape
    return {
        "RATIO": heads // key.shape[1],
        "T": rows,
        "S": key.shape[2],
        "D": element,
        "E": value.shape[3],
        "BD": power_above(element),
        "BE": power_above(value.shape[3]),
        "SCALE": how["scale"],
        "CAUSAL": how["offset"] if how["causal"] else None,
        **{name: place.strides[:3] for name, place in zip("QKV", (query, key, value), strict=True)},
        "MASK": mask.strides if mask else None,
    }


def _blocks(query: Place, key: Place, value: Place) -> list[Block]:
    """Rows and keys of a block, the first as a rule the fastest."""
    rows, keys = query.shape[2], key.shape[2]
    widest = max(query.shape[3], value.shape[3])
    tallest, longest = power_above(rows), power_above(keys)
    fitting = [row for row in MORE_BLOCKS if row[0] <= tallest and row[1] <= longest]
    sides = dict.fromkeys(((block_of(rows, widest), block_of(keys, widest)), *fitting))
    return [{"BM": down, "BN": across} for down, across in sides]
