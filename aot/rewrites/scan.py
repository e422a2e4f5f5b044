"""Parallel scans: blocks of a long row are scanned, then the ends of the blocks, level by level.

An element's result is the scan of its block up to it, combined with the scan of the blocks before.
The order of sums is fixed, so every call gives the same bits. A block of few elements is a masked
reduction, which fuses with the ops around it; a larger one is scanned by a kernel. Targets with a
kernel that scans whole rows use this for short rows only. Rows of dynamic length up to WALKED have
one program each, which goes along them, and longer ones blocks where they lie: a row that may have
one element is not filled up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, Node, made_for, make
from aotc.aot.ir.narrow import NUMEL_LIMIT
from aotc.aot.ir.reductions import REDUCTIONS, lowest
from aotc.aot.ir.size import Extent, bounds
from aotc.aot.ir.size import highest as highest_size
from aotc.aot.ir.types import Scalar

SHORT = 4  # elements whose reductions cost less than a kernel of its own
FEW = 32  # elements whose reductions read each other
BLOCK = 1024  # elements that a program scans together
WALKED = 8 * BLOCK  # elements that one program scans in less time than three kernels take


@dataclass(frozen=True, slots=True)
class Scan:
    """An associative operation: as a kind of `scan`, as a reduction, between two values, and what
    changes nothing."""

    name: str
    reduce: Callable[[Node, int], Node]  # over one axis, which stays
    combine: Callable[[Node, Node], Node]
    identity: Callable[[str], Scalar]


def _running_reduction(name: str) -> Scan:
    row = REDUCTIONS[name]
    return Scan(
        name,
        lambda data, axis: build.extreme(name, data, (axis,)),
        lambda left, right: build.pointwise(row.combine, left, right),
        row.identity,
    )


SUM, PRODUCT, MAXIMUM, MINIMUM = map(_running_reduction, ("sum", "prod", "max", "min"))


def _log_sum(data: Node, axis: int) -> Node:
    """log Σ e^x = m + log1p((k - 1) + Σ e^(x - m)) for the largest m, which k elements are; the sum
    is over the others. An infinite m, or NaN, is the result."""
    peak = build.extreme("max", data, (axis,))
    # An infinite peak, or NaN, would be subtracted from itself.
    is_finite = abs(peak) < float("inf")
    shift = build.where(is_finite, peak, 0.0)
    is_peak = build.equal(data, peak)
    less = build.where(is_peak, 0.0, build.unary("exp", data - shift))
    total = build.reduce("sum", less, (axis,))
    equals = build.reduce("sum", build.cast(is_peak, data.dtype), (axis,)) - 1.0
    rest = build.unary("log1p", total + equals)
    return peak + build.where(is_finite, rest, 0.0)


def _log_add(left: Node, right: Node) -> Node:
    """log(e^a + e^b) = max + log1p(e^(min - max)); an infinite max, or NaN, is the result."""
    peak = build.maximum(left, right)
    away = build.minimum(left, right) - peak
    is_finite = abs(peak) < float("inf")
    rest = build.unary("log1p", build.unary("exp", away))
    return peak + build.where(is_finite, rest, 0.0)


LOG_SUM = Scan("log_sum", _log_sum, _log_add, lowest)


KINDS = {
    "sum": SUM,
    "prod": PRODUCT,
    "max": MAXIMUM,
    "min": MINIMUM,
    "log_sum": LOG_SUM,
    "max_place": MAXIMUM,
    "min_place": MINIMUM,
}


def expand_scans(graph: Graph) -> tuple[Graph, int]:
    """`graph` with each `scan` as scans of blocks along the last axis, and how many there were."""
    return _expanded(graph, {node for node in graph.nodes() if node.op == "scan"})


def expand_short_scans(graph: Graph) -> tuple[Graph, int]:
    """The same along at most SHORT elements."""
    nodes = (node for node in graph.nodes() if node.op == "scan")
    wanted = {node for node in nodes if highest_size(node.shape[node.attr("axis")]) <= SHORT}
    return _expanded(graph, wanted)


def _expanded(graph: Graph, wanted: Container[Node]) -> tuple[Graph, int]:
    count = sum(node in wanted for node in graph.nodes())

    def expand(node: Node, made: Node) -> Node:
        if node not in wanted:
            return made
        with made_for(node.source):
            return _reductions(made)

    return graph.rebuilt(expand), count


def _reductions(node: Node) -> Node:
    """A `scan` as scans of blocks; 16-bit floats in f32, as torch computes them."""
    (data,), kind, axis = node.inputs, node.attr("kind"), node.attr("axis")
    data = build.cast(data, "f32") if data.dtype in ("f16", "bf16") else data

    def along(kind: Scan, data: Node) -> Node:
        return _along(kind, data, axis, node.attr("is_reversed"))

    found = along(KINDS[kind], data)
    if kind.endswith("_place"):
        # The last of equals counts, and every NaN.
        is_best = build.equal(data, found)
        if data.type.kind == "float":
            is_best = is_best | build.unary("isnan", data)
        counter = build.cast(build.counter(data.type.rank, axis, data.shape[axis]), "i32")
        places = build.expand(counter, data.shape)
        if node.attr("is_reversed"):
            return along(MINIMUM, build.where(is_best, places, data.shape[axis] - 1))
        return along(MAXIMUM, build.where(is_best, places, 0))
    return build.cast(found, node.dtype)


def _along(kind: Scan, data: Node, axis: int, is_reversed: bool) -> Node:
    """Running results along `axis`."""
    last = data.type.rank - 1
    rows = make("flip", (data,), {"axes": (axis,)}) if is_reversed else data
    found = build.move_axis(_scan(kind, build.move_axis(rows, axis, last)), last, axis)
    return make("flip", (found,), {"axes": (axis,)}) if is_reversed else found


def _scan(kind: Scan, data: Node) -> Node:
    """Running results along the last axis of `[.., n]`, inclusive.

    As many levels as the largest extent needs that memory of kernels' 32 bits holds; where a call's
    is smaller, the outer ones hold one element.
    """
    lead = math.prod(max(1, bounds(each)[0]) for each in data.shape[:-1])
    return _in_levels(kind, data, min(highest_size(data.shape[-1]), NUMEL_LIMIT // lead))


def _in_levels(kind: Scan, data: Node, most: int) -> Node:
    """The scan of at most so many elements, which the ranges alone need not know."""
    lead, extent = data.shape[:-1], data.shape[-1]
    if extent == 0 or most <= FEW:
        return _square(kind, data)
    if most <= BLOCK:
        return _block(kind, data)
    if not isinstance(extent, int):
        return _block(kind, data) if most <= WALKED else _blocks_of_dynamic(kind, data, most)
    count = -(-extent // BLOCK)
    padded = _pad_last(data, 0, count * BLOCK - extent, kind.identity(data.dtype))
    inner = _block(kind, build.reshape(padded, (*lead, count, BLOCK)))
    totals = build.slice_axis(inner, inner.type.rank - 1, BLOCK - 1, BLOCK)
    through = _in_levels(kind, build.reshape(totals, (*lead, count)), -(-most // BLOCK))
    later = _pad_last(through, 1, 0, kind.identity(data.dtype))
    before = build.slice_axis(later, len(lead), 0, count)
    whole = kind.combine(build.reshape(before, (*lead, count, 1)), inner)
    return build.slice_axis(build.reshape(whole, (*lead, count * BLOCK)), len(lead), 0, extent)


def _blocks_of_dynamic(kind: Scan, data: Node, most: int) -> Node:
    """The same of a row whose blocks are read where they lie."""
    axis, extent = data.type.rank - 1, data.shape[-1]
    how = {"kind": kind.name, "axis": axis, "block": BLOCK}
    inner = make("scan_blocks", (data,), how)
    count = (extent + (BLOCK - 1)) // BLOCK
    ends = build.iota((count,), 0) * BLOCK + (BLOCK - 1)
    last = build.minimum(ends, extent - 1)
    totals = make("take", (inner, last), {"axis": axis})
    through = _in_levels(kind, totals, -(-most // BLOCK))
    later = _pad_last(through, 1, 0, kind.identity(data.dtype))
    place = build.cast(build.iota((extent,), 0), "i32")
    block = build.pointwise("shift_right", place, BLOCK.bit_length() - 1)
    before = make("take", (later, block), {"axis": axis})
    return kind.combine(before, inner)


def _pad_last(data: Node, low: Extent, high: Extent, value: Scalar) -> Node:
    rest: list[Extent] = [0] * (data.type.rank - 1)
    return build.pad(data, [*rest, low], [*rest, high], value)


def _block(kind: Scan, data: Node) -> Node:
    how = {"kind": kind.name, "axis": data.type.rank - 1, "is_reversed": False}
    return make("scan", (data,), how)


def _square(kind: Scan, data: Node) -> Node:
    lead, extent = data.shape[:-1], data.shape[-1]
    rank = len(lead) + 2
    corner = (*[1] * len(lead), extent, extent)
    is_seen = build.iota(corner, rank - 1) <= build.iota(corner, rank - 2)
    across = build.reshape(data, (*lead, 1, extent))
    masked = build.where(is_seen, across, kind.identity(data.dtype))
    full = build.expand(masked, (*lead, extent, extent))
    return build.reshape(kind.reduce(full, rank - 1), data.shape)
