"""Discrete Fourier transforms along axes, as ops `fourier` along the last one.

A dynamic length is a matrix product. Roots of unity are computed in f64 from exact whole exponents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy

from aotc.aot.ir import build
from aotc.aot.ir.complex_pairs import Pair, roots, transformed
from aotc.aot.ir.graph import Node, make, number
from aotc.aot.ir.size import Extent, fixed
from aotc.aot.ir.storage import Array

Table = Callable[[Array, str], Node]


def fourier(
    data: Pair,
    axes: Sequence[int],
    sign: int,
    table: Table,
    keep: Extent | None = None,
    is_real: bool = False,
) -> tuple[Node, Node]:
    """sum over j of x_j · e^(sign · 2 π i j k / n) along each of `axes`, not normalised.

    keep: how many of the first results along the axis are wanted; is_real: only the real part is.
    A dynamic length is one product with a matrix that each call computes.
    """
    for axis in axes:
        length = data[0].shape[axis]
        if length == 1:
            continue
        last = data[0].type.rank - 1
        kept = length if keep is None else keep
        rows = _moved(data, axis, last)
        if isinstance(length, int):
            turns = table(numpy.stack(roots(sign, numpy.arange(length), length)), rows[0].dtype)
            found = transformed(rows, turns, fixed(kept), sign, is_real)
        else:
            found = _along_rows_of_any_length(rows, sign, kept)
        data = _moved(found, last, axis)
    re, im = data
    return re, build.expand(build.scalar(0.0, re.dtype), re.shape) if im is None else im


def real_ends(im: Node, axis: int, length: Extent) -> Node:
    """The imaginary half of a spectrum of reals: 0 at no turn and at half a turn, whatever the
    data, infinities too."""
    if not isinstance(length, int):
        place = build.counter(im.type.rank, axis, im.shape[axis])
        is_end = build.equal(place, 0) | build.equal(place * 2, number(length, "i64"))
        return build.where(build.expand(is_end, im.shape), 0.0, im)
    stop = im.shape[axis] - (fixed(length) % 2 == 0 and fixed(length) > 1)
    low, high = [0] * im.type.rank, [0] * im.type.rank
    low[axis], high[axis] = 1, im.shape[axis] - stop
    if stop <= 1:
        return build.expand(build.scalar(0.0, im.dtype), im.shape)
    return build.pad(build.slice_axis(im, axis, 1, stop), low, high, 0.0)


def hermitian(data: Pair, axis: int, length: Extent) -> Pair:
    """All `length` elements along `axis` of a spectrum of reals, of which the first half is given:
    x_k = conj(x_(n-k))."""
    half = length // 2 + 1
    if not isinstance(length, int):
        place = build.iota((length,), 0)
        is_given = place < number(half, "i64")
        source = build.where(is_given, place, number(length, "i64") - place)
        re, im = (
            None if part is None else make("take", (part, source), {"axis": axis}) for part in data
        )
        assert re is not None
        side = build.reshape(is_given, build.column(re.type.rank, axis, length))
        return re, None if im is None else build.where(build.expand(side, im.shape), im, -im)

    def whole(part: Node, is_odd: bool) -> Node:
        mirrored = build.slice_axis(part, axis, 1, length - half + 1)
        if not mirrored.shape[axis]:
            return part
        mirrored = build.make("flip", (mirrored,), {"axes": (axis,)})
        return build.concat([part, -mirrored if is_odd else mirrored], axis)

    re, im = data
    return whole(re, False), None if im is None else whole(im, True)


def _moved(data: Pair, source: int, target: int) -> Pair:
    re, im = data
    moved = None if im is None else build.move_axis(im, source, target)
    return build.move_axis(re, source, target), moved


def _along_rows_of_any_length(data: Pair, sign: int, keep: Extent) -> Pair:
    """The first `keep` elements of the transform along the last axis, by a matrix of roots as
    `roots` has them, computed in f64 from whole exponents j · k mod n."""
    re, im = data
    extent = re.shape[-1]
    square, count = (extent, keep), number(extent, "i64")
    turns = build.iota(square, 0) * build.iota(square, 1)
    quarters = (turns - (turns // count) * count) * 4
    which = quarters // count
    rest = quarters - which * count
    is_late = rest * 2 > count
    part = build.cast(build.where(is_late, count - rest, rest), "f64")
    angle = part * (math.pi / 2 / number(extent, "f64"))
    near, far = build.unary("cos", angle), build.unary("sin", angle)
    cosine, sine = build.where(is_late, far, near), build.where(is_late, near, far)

    def chosen(first: Node, second: Node, third: Node, fourth: Node) -> Node:
        later = build.where(build.equal(which, 2), third, fourth)
        later = build.where(build.equal(which, 1), second, later)
        return build.cast(build.where(build.equal(which, 0), first, later), re.dtype)

    cosines = chosen(cosine, -sine, -cosine, sine)
    sines = chosen(sine, cosine, -sine, -cosine) * float(sign)
    own = _product(re, cosines), _product(re, sines)
    if im is None:
        return own
    return own[0] - _product(im, sines), own[1] + _product(im, cosines)


def _product(rows: Node, matrix: Node) -> Node:
    """Rows of any rank times a matrix."""
    outer = rows.shape[:-1]
    flat = build.reshape(rows, (math.prod(outer), rows.shape[-1]))
    return build.reshape(build.matmul(flat, matrix), (*outer, matrix.shape[-1]))
