"""Discrete Fourier transforms without a kernel of their own, as matrix products, elementwise
products and views.

A length of small factors is taken apart (Cooley and Tukey, 1965) into transforms of at most
`DENSE_LIMIT`, each one product with a matrix of roots of unity; a length with a large prime factor
becomes a convolution of a length that is a power of two (Bluestein, 1970). Tables are computed in
f64 from exact whole exponents.

GPUs have a kernel for lengths that are powers of two: products have each number of a sum read and
multiplied, and their sums are less exact than those of butterflies.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy

from aotc.aot.ir import build
from aotc.aot.ir.complex_pairs import Pair, multiplied, roots, transformed
from aotc.aot.ir.graph import Constant, Graph, Node, made_for, make
from aotc.aot.ir.size import fixed
from aotc.aot.ir.storage import Array, narrow
from aotc.aot.ir.types import TensorType

DENSE_LIMIT = 64  # lengths up to this are one product
PRIME_LIMIT = 512  # so are lengths up to this that have no small factor
LONGEST = 4096  # of those that a program of a GPU transforms in registers
Table = Callable[[Array, str], Node]
Serves = Callable[[int, str], bool]  # whether there is a kernel for a length and an element type


def expand(graph: Graph) -> tuple[Graph, int]:
    """`graph` without `fourier`, and how many there were."""
    return _expanded(graph, lambda length, dtype: False)


def expand_unserved(graph: Graph) -> tuple[Graph, int]:
    """The same but for those that GPUs have a kernel for."""
    return _expanded(graph, _is_served)


def _is_served(length: int, dtype: str) -> bool:
    return dtype == "f32" and DENSE_LIMIT < length <= LONGEST and length & (length - 1) == 0


def _expanded(graph: Graph, serves: Serves) -> tuple[Graph, int]:
    made: dict[str, Constant] = {}
    found: dict[tuple[object, ...], Pair] = {}
    nodes = (node for node in graph.nodes() if node.op == "fourier")
    wanted = {node for node in nodes if not serves(fixed(node.inputs[1].shape[-1]), node.dtype)}

    def table(values: Array, dtype: str) -> Node:
        kind, array = TensorType(dtype, values.shape), narrow(values, dtype)
        digest = hashlib.sha256(str(kind).encode() + array.tobytes()).hexdigest()
        name = f"table.{digest[:16]}"
        made.setdefault(name, Constant(name, kind, numpy.ascontiguousarray(array)))
        return build.constant(name, kind)

    def expanded(old: Node, node: Node) -> Node:
        if old not in wanted:
            return node
        key = (node.inputs, node.attr("sign"), node.attr("keep"), node.attr("is_real"))
        if key not in found:
            with made_for(old.source):
                transform = _Transform(node.attr("sign"), node.dtype, table, serves)
                found[key] = transform.of(node)
        part = found[key][node.attr("result")]
        return build.expand(build.scalar(0.0, node.dtype), node.shape) if part is None else part

    return graph.rebuilt(expanded, made), len(wanted)


class _Transform:
    """Transforms along the last axis, of one direction and element type."""

    def __init__(self, sign: int, dtype: str, table: Table, serves: Serves) -> None:
        self.sign, self.dtype, self.table, self.serves = sign, dtype, table, serves

    def of(self, node: Node) -> Pair:
        """Both parts of what an op `fourier` computes."""
        _, re, *im = node.inputs
        data = (re, im[0] if im else None)
        return self.along_rows(data, fixed(re.shape[-1]), node.attr("keep"), node.attr("is_real"))

    def along_rows(self, data: Pair, length: int, keep: int, is_real: bool = False) -> Pair:
        """The first `keep` elements of the transform, or their real part alone."""
        if self.serves(length, self.dtype):
            return self._by_op(data, length, keep, is_real)
        first = _factor(length)
        if length <= DENSE_LIMIT or (first == 1 and length <= PRIME_LIMIT):
            return self._dense(data, length, keep, is_real)
        if first == 1:
            found = self._by_convolution(data, length)
        else:
            found = self._by_factors(data, first, length // first)
        re, im = found
        return _first(re, keep), None if is_real or im is None else _first(im, keep)

    def _by_op(self, data: Pair, length: int, keep: int, is_real: bool) -> Pair:
        """The op again, which has a kernel."""
        turns = self.table(numpy.stack(roots(self.sign, numpy.arange(length), length)), self.dtype)
        return transformed(data, turns, keep, self.sign, is_real)

    def _dense(self, data: Pair, length: int, keep: int, is_real: bool) -> Pair:
        """[re im] · [[C S] [-S C]], with the rows and columns that are wanted."""
        re, im = data
        cosine, sine = roots(
            self.sign, numpy.outer(numpy.arange(length), numpy.arange(keep)), length
        )
        # Where reals turn not at all or by half turns, the imaginary part is 0.
        turning = range(keep) if im is not None else _between(numpy.any(sine, 0))
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

        def split(part: Node) -> Node:
            return build.permute(build.reshape(part, (*outer, first, second)), order)

        # Of real elements, the results at -k1 are those at k1, conjugated.
        re, im = data
        kept = first if im is not None else first // 2 + 1
        parts = (split(re), None if im is None else split(im))
        inner = self.along_rows(parts, first, kept)
        exponents = numpy.outer(numpy.arange(second), numpy.arange(kept))
        rotated = self._times(inner, *roots(self.sign, exponents, first * second))
        rows = [build.permute(part, order) for part in rotated if part is not None]
        found = self.along_rows((rows[0], rows[1]), second, second)
        joined = (
            build.reshape(
                _mirrored(build.permute(part, order), first - kept, is_odd),
                (*outer, first * second),
            )
            for part, is_odd in zip(found, (False, True), strict=True)
            if part is not None
        )
        real, imaginary = joined
        return real, imaginary

    def _by_convolution(self, data: Pair, length: int) -> Pair:
        """j·k = (j² + k² - (k-j)²) / 2: chirp · (chirp · x convolved with the chirp's inverse)."""
        places = numpy.arange(length)
        chirp = roots(self.sign, places * places, 2 * length)
        whole = 1 << (2 * length - 1).bit_length()
        inverse = chirp[0] - 1j * chirp[1]
        kernel = numpy.zeros(whole, numpy.complex128)
        kernel[:length] = inverse
        kernel[whole - length + 1 :] = inverse[1:][::-1]
        spectrum = numpy.fft.fft(kernel) / whole
        started = self._times(data, *chirp)
        margin = [0] * len(data[0].shape)
        high = [*margin[:-1], whole - length]
        padded = [build.pad(part, margin, high, 0.0) for part in started if part is not None]
        forward, back = (
            _Transform(-1, self.dtype, self.table, self.serves),
            _Transform(1, self.dtype, self.table, self.serves),
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


def _first(part: Node, keep: int) -> Node:
    return build.slice_axis(part, part.type.rank - 1, 0, keep)


def _product(rows: Node, matrix: Node) -> Node:
    """Rows of any rank times a matrix."""
    outer = rows.shape[:-1]
    flat = build.reshape(rows, (math.prod(outer), rows.shape[-1]))
    return build.reshape(build.matmul(flat, matrix), (*outer, matrix.shape[-1]))
