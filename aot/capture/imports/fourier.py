"""Discrete Fourier transforms as matrix products, elementwise products and views.

A length of small factors is taken apart (Cooley and Tukey, 1965) into transforms of at most
`DENSE_LIMIT`, each one product with a matrix of roots of unity; a length with a large prime factor
becomes a convolution of a length that is a power of two (Bluestein, 1970). Tables are computed in
f64 from exact whole exponents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy

from aotc.aot.capture.imports.complex_pairs import Pair, multiplied
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make, number
from aotc.aot.ir.size import Extent, fixed
from aotc.aot.ir.storage import Array

DENSE_LIMIT = 64  # lengths up to this are one product
PRIME_LIMIT = 512  # so are lengths up to this that have no small factor
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
        transform = _Transform(sign, data[0].dtype, table)
        length = data[0].shape[axis]
        if length == 1:
            continue
        last = data[0].type.rank - 1
        kept = length if keep is None else keep
        rows = _moved(data, axis, last)
        if isinstance(length, int):
            found = transform.along_rows(rows, length, fixed(kept), is_real)
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
    `_roots` has them, computed in f64 from whole exponents j · k mod n."""
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


class _Transform:
    """Transforms along the last axis, of one direction and element type."""

    def __init__(self, sign: int, dtype: str, table: Table) -> None:
        self.sign, self.dtype, self.table = sign, dtype, table

    def along_rows(self, data: Pair, length: int, keep: int, is_real: bool = False) -> Pair:
        """The first `keep` elements of the transform, or their real part alone."""
        first = _factor(length)
        if length <= DENSE_LIMIT or (first == 1 and length <= PRIME_LIMIT):
            return self._dense(data, length, keep, is_real)
        if first == 1:
            found = self._by_convolution(data, length)
        else:
            found = self._by_factors(data, first, length // first)
        return _first(found[0], keep), None if is_real else _first(found[1], keep)

    def _dense(self, data: Pair, length: int, keep: int, is_real: bool) -> Pair:
        """[re im] · [[C S] [-S C]], with the rows and columns that are wanted."""
        re, im = data
        cosine, sine = _roots(
            self.sign, numpy.outer(numpy.arange(length), numpy.arange(keep)), length
        )
        # Where reals turn not at all or by half turns, the imaginary part is 0.
        turning = range(keep) if im is not None else _between(sine.any(0))
        columns = [cosine] if is_real else [cosine, sine[:, turning.start : turning.stop]]
        rows = [numpy.concatenate(columns, 1)]
        operand = re
        if im is not None:
            lower = [-sine] if is_real else [-sine, cosine]
            rows.append(numpy.concatenate(lower, 1))
            operand = build.concat([re, im], re.type.rank - 1)
        matrix = self.table(numpy.concatenate(rows, 0), self.dtype)
        found = _product(operand, matrix)
        axis = found.type.rank - 1
        real = build.slice_axis(found, axis, 0, keep)
        if is_real or not turning:
            return real, None
        imaginary = build.slice_axis(found, axis, keep, keep + len(turning))
        margin = [0] * axis
        low, high = [*margin, turning.start], [*margin, keep - turning.stop]
        return real, build.pad(imaginary, low, high, 0.0)

    def _by_factors(self, data: Pair, first: int, second: int) -> Pair:
        """n = n1·n2, j = n2·j1 + j2, k = k1 + n1·k2: transforms of n1, roots, transforms of n2."""
        outer = data[0].shape[:-1]
        rank = len(outer)
        order = (*range(rank), rank + 1, rank)

        def split(part: Node | None) -> Node | None:
            if part is None:
                return None
            return build.permute(build.reshape(part, (*outer, first, second)), order)

        # Of real elements, the results at -k1 are those at k1, conjugated.
        kept = first if data[1] is not None else first // 2 + 1
        inner = self.along_rows((split(data[0]), split(data[1])), first, kept)  # type: ignore[arg-type]
        exponents = numpy.outer(numpy.arange(second), numpy.arange(kept))
        rotated = self._times(inner, *_roots(self.sign, exponents, first * second))
        rows = tuple(build.permute(part, order) for part in rotated)
        found = self.along_rows((rows[0], rows[1]), second, second)
        joined = (
            build.reshape(
                _mirrored(build.permute(part, order), first - kept, is_odd),
                (*outer, first * second),
            )
            for part, is_odd in zip(found, (False, True), strict=True)
            if part is not None
        )
        re, im = joined
        return re, im

    def _by_convolution(self, data: Pair, length: int) -> Pair:
        """j·k = (j² + k² - (k-j)²) / 2: chirp · (chirp · x convolved with the chirp's inverse)."""
        places = numpy.arange(length)
        chirp = _roots(self.sign, places * places, 2 * length)
        whole = 1 << (2 * length - 1).bit_length()
        inverse = chirp[0] - 1j * chirp[1]
        kernel = numpy.zeros(whole, numpy.complex128)
        kernel[:length] = inverse
        kernel[whole - length + 1 :] = inverse[1:][::-1]
        spectrum = numpy.fft.fft(kernel) / whole
        started = self._times(data, *chirp)
        margin = [0] * len(data[0].shape)
        high = [*margin[:-1], whole - length]
        padded = tuple(build.pad(part, margin, high, 0.0) for part in started)
        forward, back = (
            _Transform(-1, self.dtype, self.table),
            _Transform(1, self.dtype, self.table),
        )
        found = forward.along_rows((padded[0], padded[1]), whole, whole)
        product = self._times(found, spectrum.real, spectrum.imag)
        convolved = back.along_rows(product, whole, length)
        return self._times(convolved, *chirp)

    def _times(self, data: Pair, re: Array, im: Array) -> Pair:
        """The product with a table along the last axes."""
        rank = data[0].type.rank
        return multiplied(data, (self._aligned(re, rank), self._aligned(im, rank)))

    def _aligned(self, values: Array, rank: int) -> Node:
        return build.align(self.table(values, self.dtype), rank)


def _roots(sign: int, exponents: Array, order: int) -> tuple[Array, Array]:
    """Cosine and sine of sign · 2 π e / order, exactly 0, 1 and -1 at quarters of a turn.

    Whole quarters are taken off as integers, and the rest is measured from the nearer quarter.
    """
    quarters, rest = numpy.divmod(4 * (exponents % order), order)
    is_late = 2 * rest > order
    angle = numpy.where(is_late, order - rest, rest) * (math.pi / 2 / order)
    near, far = numpy.cos(angle), numpy.sin(angle)
    cosine, sine = numpy.where(is_late, far, near), numpy.where(is_late, near, far)
    choices = [cosine, -sine, -cosine, sine], [sine, cosine, -sine, -cosine]
    found = [numpy.choose(quarters, choice) for choice in choices]
    return found[0] + 0.0, sign * found[1] + 0.0


def _factor(length: int) -> int:
    """The divisor up to `DENSE_LIMIT` that is nearest to the root of `length`; 1 for none."""
    divisors = (each for each in range(2, min(DENSE_LIMIT, length - 1) + 1) if length % each == 0)
    root = math.sqrt(length)
    return min(divisors, key=lambda each: abs(math.log(each / root)), default=1)


def _between(flags: Array) -> range:
    """From the first that is true to the last one; empty for none."""
    places = numpy.flatnonzero(flags)
    return range(int(places[0]), int(places[-1]) + 1) if len(places) else range(0)


def _mirrored(part: Node, count: int, is_odd: bool) -> Node:
    """`[.., k2, k1]` with k1 = -count..-1 behind what is given: X(k1 + n1·k2) of real elements is
    the conjugate of X(-k1 + n1·(n2 - 1 - k2))."""
    if not count:
        return part
    axis = part.type.rank - 1
    seen = build.slice_axis(part, axis, 1, count + 1)
    mirrored = make("flip", (seen,), {"axes": (axis - 1, axis)})
    return build.concat([part, -mirrored if is_odd else mirrored], axis)


def _first(part: Node | None, keep: int) -> Node | None:
    return None if part is None else build.slice_axis(part, part.type.rank - 1, 0, keep)


def _product(rows: Node, matrix: Node) -> Node:
    """Rows of any rank times a matrix."""
    outer = rows.shape[:-1]
    flat = build.reshape(rows, (math.prod(outer), rows.shape[-1]))
    return build.reshape(build.matmul(flat, matrix), (*outer, matrix.shape[-1]))
