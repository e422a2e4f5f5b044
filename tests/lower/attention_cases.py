"""Attentions to test kernels with: sizes, masks and views as a table, their graphs and operands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from case_graphs import values

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, make


@dataclass(frozen=True)
class Case:
    """One attention: batch, query and key heads, queries, keys, sizes of keys and values."""

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    size: int
    elements: int
    dtype: str = "f32"
    causal: bool = False
    offset: int = 0
    window: int = 0
    is_safe: bool = False
    mask: tuple[str, tuple[int, ...]] | None = None
    ends: tuple[int, ...] | None = None  # the shape of how many keys each row sees
    softcap: float = 0.0
    sinks: tuple[str, tuple[int, ...]] | None = None
    times: float = 1.0  # the scale, of what it mostly is
    is_packed: bool = False  # q, k and v are slices of one [batch, queries, heads, size] product


CASES = {
    "odd": Case(2, 3, 3, 37, 53, 40, 24),
    "few": Case(2, 6, 2, 3, 77, 40, 40),
    "one": Case(1, 2, 2, 1, 50, 32, 32),
    "one-element": Case(2, 2, 1, 37, 21, 1, 1),
    "one-element-few": Case(1, 2, 2, 1, 21, 3, 1),
    "one-element-causal": Case(1, 2, 2, 70, 7, 7, 1, causal=True),
    "causal": Case(1, 2, 1, 70, 70, 32, 32, causal=True),
    "causal-offset": Case(1, 2, 2, 66, 90, 16, 16, causal=True, offset=24),
    "causal-few": Case(1, 4, 2, 5, 40, 32, 32, causal=True, offset=35),
    "causal-none": Case(1, 1, 1, 70, 40, 16, 16, causal=True, offset=-30, is_safe=True),
    "window": Case(1, 2, 1, 170, 170, 32, 32, causal=True, window=37),
    "window-both-ways": Case(1, 2, 2, 150, 150, 32, 32, causal=True, offset=20, window=41),
    "ends": Case(3, 2, 1, 70, 170, 32, 32, ends=(3, 1, 70, 1)),
    "ends-window": Case(2, 2, 1, 66, 260, 16, 16, window=40, is_safe=True, ends=(2, 1, 66, 1)),
    "ends-few": Case(3, 6, 2, 1, 500, 32, 32, is_safe=True, ends=(3, 1, 1, 1)),
    "ends-mask": Case(
        2, 2, 1, 66, 140, 32, 32, is_safe=True, mask=("bool", (2, 1, 1, 140)), ends=(2, 1, 66, 1)
    ),
    "bool": Case(2, 2, 1, 66, 40, 32, 32, is_safe=True, mask=("bool", (2, 1, 1, 40))),
    "bool-not-safe": Case(1, 2, 2, 66, 20, 16, 16, mask=("bool", (1, 2, 66, 20))),
    "bias": Case(2, 2, 2, 66, 33, 32, 32, mask=("f32", (1, 2, 66, 33))),
    "bias-few": Case(1, 4, 1, 2, 33, 32, 32, "bf16", mask=("bf16", (1, 1, 2, 33))),
    "huge": Case(1, 2, 2, 66, 90, 32, 32, "f16", times=2.0**40),
    "huge-few": Case(1, 4, 2, 2, 90, 32, 32, "f16", times=2.0**40),
    "huge-f32": Case(1, 2, 2, 66, 90, 32, 32, times=2.0**40),
    "cap": Case(2, 3, 3, 37, 53, 40, 24, softcap=0.7),
    "cap-few": Case(2, 6, 2, 3, 77, 40, 40, "f16", softcap=0.5, times=4.0),
    "cap-bias": Case(1, 2, 2, 66, 33, 32, 32, mask=("f32", (1, 2, 66, 33)), softcap=0.4),
    "cap-window": Case(2, 2, 1, 140, 140, 32, 32, "bf16", True, window=37, softcap=0.5, times=3.0),
    "cap-ends": Case(
        2, 2, 1, 66, 260, 16, 16, window=40, is_safe=True, ends=(2, 1, 66, 1), softcap=0.3
    ),
    "cap-huge": Case(1, 2, 2, 66, 90, 32, 32, "f16", times=2.0**40, softcap=30.0),
    "cap-pieces": Case(1, 2, 1, 70, 70, 80, 80, causal=True, softcap=0.6),
    "cap-packed": Case(2, 4, 4, 65, 65, 32, 32, "bf16", softcap=0.5, is_packed=True),
    "sinks": Case(2, 3, 3, 37, 53, 40, 24, sinks=("f32", (1, 3, 1, 1))),
    "sinks-few": Case(2, 6, 2, 3, 177, 40, 40, "f16", sinks=("f16", (1, 6, 1, 1))),
    "sinks-one": Case(1, 2, 2, 1, 50, 32, 32, "bf16", sinks=("bf16", (1, 2, 1, 1))),
    "sinks-window": Case(
        1, 2, 1, 140, 140, 32, 32, "bf16", True, window=37, sinks=("f32", (1, 2, 140, 1))
    ),
    "sinks-ends": Case(
        3, 6, 2, 1, 500, 32, 32, window=90, ends=(3, 1, 1, 1), sinks=("f32", (1, 6, 1, 1))
    ),
    "sinks-bias": Case(
        1,
        2,
        2,
        66,
        33,
        32,
        32,
        mask=("f32", (1, 2, 66, 33)),
        softcap=0.4,
        sinks=("f32", (1, 2, 1, 1)),
    ),
    "sinks-packed": Case(
        2, 4, 4, 65, 65, 32, 32, "bf16", sinks=("bf16", (1, 4, 1, 1)), is_packed=True
    ),
    "sinks-pieces": Case(1, 2, 1, 70, 70, 80, 80, causal=True, sinks=("f32", (1, 2, 1, 1))),
    "pieces": Case(1, 2, 1, 70, 70, 80, 80, causal=True),
    "pieces-of-two-sizes": Case(2, 2, 2, 66, 53, 72, 130),
    "pieces-bias": Case(1, 2, 2, 66, 45, 96, 20, mask=("f32", (1, 2, 66, 45))),
    "pieces-bool": Case(2, 2, 1, 70, 41, 160, 80, is_safe=True, mask=("bool", (2, 1, 1, 41))),
    "packed": Case(2, 4, 4, 65, 65, 32, 32, "bf16", is_packed=True),
    "packed-pieces": Case(2, 4, 4, 65, 65, 80, 80, is_packed=True),
    "packed-causal": Case(1, 4, 2, 72, 72, 64, 64, "f16", causal=True, is_packed=True),
}
MORE = {  # by night, and on a device
    "window-narrow": Case(1, 2, 2, 133, 133, 16, 16, causal=True, window=1),
    "window-ahead": Case(1, 2, 2, 150, 90, 16, 16, causal=True, offset=70, window=33, is_safe=True),
    "window-few": Case(1, 4, 2, 5, 140, 32, 32, causal=True, offset=135, window=50),
    "ends-safe": Case(2, 2, 2, 33, 90, 16, 16, is_safe=True, ends=(1, 2, 33, 1)),
    "ends-few-long": Case(2, 6, 2, 1, 1500, 32, 32, "f16", ends=(2, 1, 1, 1)),
    "ends-few-rows": Case(1, 4, 2, 3, 300, 32, 32, window=60, is_safe=True, ends=(1, 4, 3, 1)),
    "window-bool": Case(
        2,
        2,
        1,
        130,
        130,
        32,
        32,
        causal=True,
        window=50,
        is_safe=True,
        mask=("bool", (2, 1, 1, 130)),
    ),
}


def operand(name: str, shape: tuple[int, ...], dtype: str) -> Node:
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def graph_of(case: Case) -> Graph:
    inputs, operands = [], []
    heads = (case.heads, case.key_heads, case.key_heads)
    rows = (case.queries, case.keys, case.keys)
    sizes = (case.size, case.size, case.elements)
    if case.is_packed:
        product = operand("x", (case.batch * case.queries, sum(heads) * case.size), case.dtype)
        inputs.append(product)
        for place, count in enumerate(heads):
            first = sum(heads[:place]) * case.size
            part = build.slice_axis(product, 1, first, first + count * case.size)
            split = build.reshape(part, (case.batch, case.queries, count, case.size))
            operands.append(build.permute(split, (0, 2, 1, 3)))
    else:
        for name, count, length, size in zip("qkv", heads, rows, sizes, strict=True):
            inputs.append(operand(name, (case.batch, count, length, size), case.dtype))
        operands += inputs
    if case.mask:
        inputs.append(operand("mask", case.mask[1], case.mask[0]))
        operands.append(inputs[-1])
    if case.ends:
        inputs.append(operand("ends", case.ends, "i64"))
        operands.append(inputs[-1])
    if case.sinks:
        inputs.append(operand("sinks", case.sinks[1], case.sinks[0]))
        operands.append(inputs[-1])
    attrs = {
        "scale": case.size**-0.5 * case.times,
        "causal": case.causal,
        "offset": case.offset,
        "window": case.window,
        "softcap": case.softcap,
        "has_sinks": case.sinks is not None,
        "is_safe": case.is_safe,
    }
    result = make("attention", tuple(operands), attrs)
    transposed = build.permute(result, (0, 2, 1, 3))
    rows_of = (case.batch * case.queries, case.heads * case.elements)
    names = tuple(str(node.attr("name")) for node in inputs)
    return Graph(tuple(inputs), (build.reshape(transposed, rows_of),), names, ("out",), {})


def arrays_of(graph: Graph) -> list[numpy.ndarray]:
    found = [values(node.type, 7 + place) for place, node in enumerate(graph.inputs)]
    given = dict(zip((node.attr("name") for node in graph.inputs), found, strict=True))
    if "ends" in given:
        keys, ends = graph.inputs[1].shape[2], given["ends"]
        ends[...] = numpy.random.default_rng(5).integers(-2, keys + 3, ends.shape)
        ends[-1, ..., -1, :] = keys // 3
    mask = given.get("mask")
    if mask is not None and mask.dtype == numpy.float32:
        # One row hides all keys by the smallest finite number, one by -inf but for one key.
        mask[..., 0, :] = numpy.finfo(numpy.float32).min
        mask[..., 1, 1:] = -numpy.inf
    if mask is not None and mask.dtype == bool:
        mask[0, ..., 0, :] = False
    return found
