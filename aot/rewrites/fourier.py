"""Discrete Fourier transforms: by FFT kernels, or as matrix products, elementwise products and
views.

There are FFT kernels for lengths that are products of 2, 3, 5 and 7. Others are decomposed (Cooley
and Tukey, 1965) into those and into transforms of at most `DENSE_LIMIT`, each one product with a
matrix of roots of unity. A length with a large prime factor becomes a convolution of a length that
is a power of two (Bluestein, 1970). Tables are computed in f64 from exact integer exponents.
Products take more operations than an FFT, and their longer sums are less exact.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence

import numpy

from aotc.aot.ir import build
from aotc.aot.ir.butterflies import BESIDE, factors, form_of, passes
from aotc.aot.ir.complex_pairs import Pair, multiplied, roots, transformed
from aotc.aot.ir.graph import Constant, Graph, Node, made_for, make
from aotc.aot.ir.size import fixed, is_static
from aotc.aot.ir.storage import Array, narrow
from aotc.aot.ir.types import TensorType
from aotc.aot.ir.viewed import Placed, dense, in_place, on_memory, runs

DENSE_LIMIT = 64  # lengths up to this are one product where there is no kernel
PRIME_LIMIT = 512  # so are lengths up to this that have no small factor
LONGEST = 4096  # of those that a program of a GPU transforms
# Of columns of a GPU, of which a program of 1,024 numbers has at least four beside each other.
LONGEST_ON_GPU_OF_COLUMNS, FEWEST_BESIDE = 256, 4
LONGEST_ON_CPU = 1 << 17  # whose passes are each one tensor of Triton
# Of rows that are transformed beside each other: they fit into the nearest cache.
LONGEST_OF_SHORT, FEWEST_SHORT = 128, 2 * BESIDE
LONGEST_COLUMN, FEWEST_COLUMNS = 1 << 13, 16  # of those that it transforms beside each other
# Of those that a processor's kernel transforms, by the numbers that are given and wanted: of 500 to
# 1,000 shorter rows products take less time (AMD EPYC with AVX-512, 1 thread, 2026-11-28).
SHORTEST = {"complex": 9, "to reals": 16, "of reals": 50}
Table = Callable[[Array, str], Node]
Serves = Callable[[int, str, str], bool]
"""Whether there is a kernel for a length, an element type and one of `SHORTEST`."""


def expand_unserved(graph: Graph) -> tuple[Graph, int]:
    """`graph` without those `fourier` that GPUs have no kernel for, and how many there were."""
    return _expanded(graph, _is_served)


def expand_on_cpu(graph: Graph) -> tuple[Graph, int]:
    """`graph` without `fourier`, those that processors have a kernel for as its `placed` calls, and
    how many others there were."""
    found, count = _expanded(graph, _is_served_on_cpu)
    return _on_memory(found), count


def _is_served(length: int, dtype: str, _: str) -> bool:
    return dtype in ("f32", "f64") and length <= LONGEST and factors(length) is not None


def _is_served_on_cpu(length: int, dtype: str, numbers: str) -> bool:
    is_fit = dtype in ("f32", "f64") and factors(length) is not None
    return is_fit and SHORTEST[numbers] <= length <= LONGEST_ON_CPU


def _numbers(has_im: bool, is_real: bool) -> str:
    return ("to reals" if is_real else "complex") if has_im else "of reals"


def _tables(made: dict[str, Constant]) -> Table:
    """What gives a table as a constant, and keeps it in `made`."""

    def table(values: Array, dtype: str) -> Node:
        kind, array = TensorType(dtype, values.shape), narrow(values, dtype)
        digest = hashlib.sha256(str(kind).encode() + array.tobytes()).hexdigest()
        name = f"table.{digest[:16]}"
        made.setdefault(name, Constant(name, kind, numpy.ascontiguousarray(array)))
        return build.constant(name, kind)

    return table


def _on_memory(graph: Graph) -> Graph:
    """Every `fourier` placed, with the roots of its passes."""
    made: dict[str, Constant] = {}
    table = _tables(made)

    def on_rows(old: Node, node: Node) -> Node:
        if old.op == "fourier":
            with made_for(old.source):
                return _on_rows(node, table)
        return node.inputs[0].inputs[0] if only_clears_ends(old) else node

    return graph.rebuilt(on_rows, made)


def pass_roots(sign: int, length: int, form: str, *, are_beside: bool = False) -> Array:
    """f64 `[2, length]`, cosines and sines. For each pass the roots of each k from 1 on, beside
    each other those of all p // G: `(radix - 1) * done` numbers. Behind the passes of half a length
    the length's own roots, from 0 to half a turn, and for `reals` halves of them."""
    count = length if form == "whole" else length // 2
    parts = []
    for radix, done in passes(count, are_beside=are_beside):
        exponents = numpy.outer(numpy.arange(1, radix), numpy.arange(done))
        parts.append(numpy.stack(roots(sign, exponents.reshape(-1), radix * done)))
    if form == "whole":
        parts.append(numpy.zeros((2, 1)))
    else:
        own = numpy.stack(roots(sign, numpy.arange(count + 1), length))
        parts.append(0.5 * own if form == "reals" else own)
    return numpy.concatenate(parts, 1)


def _on_rows(node: Node, table: Table) -> Node:
    """The kernel of all parts that are wanted, of which the node is one."""
    turns, *data = whole_or_half(node)
    length, keep = fixed(turns.shape[-1]), node.attr("keep")
    form = form_of(length, fixed(data[0].shape[-1]), keep, len(data) == 1)
    columns = _columns_of(data) if keep == length == fixed(data[0].shape[-1]) else None
    columns = columns if form == "whole" else None
    rows = rows_of(data)
    are_pairs = form == "whole" and not node.attr("is_real") and _are_short(rows)
    are_beside = columns is not None or are_pairs
    roots_of = pass_roots(node.attr("sign"), length, form, are_beside=are_beside)
    turns = table(roots_of, node.dtype)
    how = {**dict(node.attrs), "result": 0}
    first = make("fourier", (turns, *data), how)
    parts = [first.result(at) for at in range(1 if node.attr("is_real") else 2)]
    if columns is not None:
        strides = columns[0].strides
        order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
        return on_memory(parts, [dense(turns), *columns], order)[node.attr("result")]
    return on_memory(parts, [dense(turns), *rows], are_pairs=are_pairs)[node.attr("result")]


def _are_short(rows: Sequence[Placed]) -> bool:
    """Whether a processor's program transforms several rows at once, whose results are complex
    numbers: both parts, or all pairs of a row are a vector or more."""
    if len(rows) != 2 or rows[0].memory.dtype != "f32" or not is_static(rows[0].shape):
        return False
    (*_, length), (*_, step) = rows[0].shape, rows[0].strides
    are_in_turn = (rows[0].memory, rows[0].start + 1) == (rows[1].memory, rows[1].start)
    is_fit = are_in_turn if step == 2 else length >= BESIDE
    are_many = fixed(math.prod(rows[0].shape[:-1])) >= FEWEST_SHORT
    return is_fit and are_many and fixed(length) <= LONGEST_OF_SHORT


def whole_or_half(node: Node) -> list[Node]:
    """The operands of a `fourier`, of a spectrum of reals the half that it was made of."""
    turns, *data = node.inputs
    is_whole = node.attr("is_real") and node.attr("keep") == fixed(turns.shape[-1])
    return [turns, *((_half_of_spectrum(data) if is_whole else None) or data)]


def rows_of(data: Sequence[Node]) -> list[Placed]:
    """Where rows that are transformed lie: in memory of both parts in turn too; else in copies."""
    found = [in_place(part) for part in data]
    first = found[0]
    if first is not None and first.strides[-1] in (1, 2):
        is_steady = len(runs(first.shape[:-1], first.strides[:-1])) <= 1
        if is_steady and all(each and each.strides == first.strides for each in found):
            return [each for each in found if each is not None]
    return [dense(part) for part in data]


def vectors_of(data: Sequence[Node]) -> tuple[list[Placed], Sequence[int]]:
    """Where numbers lie that a GPU transforms, and the order of dims in which results lie as they
    do: rows, or columns of which enough beside each other are one program's."""
    found = [each for each in map(in_place, data) if each is not None]
    if len(found) == len(data) and found[0].strides[-1] not in (1, 2):
        strides = found[0].strides
        order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
        steps = runs(found[0].shape[:-1], strides[:-1])
        beside, step = steps[-1] if steps else (0, 0)
        is_near = isinstance(beside, int) and beside >= FEWEST_BESIDE and step in (1, 2)
        is_short = fixed(data[0].shape[-1]) <= LONGEST_ON_GPU_OF_COLUMNS
        are_alike = all(each.strides == strides for each in found)
        if is_near and is_short and are_alike and len(steps) <= 2 and 0 not in strides:
            return found, order
    return rows_of(data), ()


def _columns_of(data: Sequence[Node]) -> list[Placed] | None:
    """Where numbers lie that are columns of a tensor, beside each other; None where they do not."""
    length = fixed(data[0].shape[-1])
    found = [each for each in map(in_place, data) if each is not None]
    if len(found) != len(data) or length > LONGEST_COLUMN:
        return None
    first, *others = found
    *outer, (inner, step) = runs(first.shape[:-1], first.strides[:-1]) or [(1, 0)]
    pitch = first.strides[-1]
    is_fit = isinstance(inner, int) and inner >= FEWEST_COLUMNS and step in (1, 2)
    is_apart = len(outer) <= 1 and all(far >= length * pitch for _, far in outer)
    is_whole = is_fit and is_apart and pitch == inner * step
    return found if is_whole and all(e.strides == first.strides for e in others) else None


def _half_of_spectrum(data: Sequence[Node]) -> tuple[Node, Node] | None:
    """Both parts of the half that a spectrum of an even number of reals was made of: its other
    elements are their conjugates in reverse, as `capture/imports/fourier.py` makes them."""
    halves = []
    for part, is_odd in zip(data, (False, True), strict=False):
        axis, count = part.type.rank - 1, fixed(part.shape[-1])
        if part.op != "concat" or part.attr("axis") != axis or count % 2:
            return None
        half, rest = part.inputs[0], part.inputs[-1]
        mirrored = make("flip", (build.slice_axis(half, axis, 1, count // 2),), {"axes": (axis,)})
        if len(part.inputs) != 2 or rest is not (-mirrored if is_odd else mirrored):
            return None
        halves.append(half)
    return (halves[0], halves[1]) if len(halves) == 2 else None


def only_clears_ends(node: Node) -> bool:
    """Whether it sets to 0 what the op gives as 0: imaginary parts of spectra of reals at no turn
    and at half a turn."""
    if node.op != "pad" or node.attr("value") != 0 or node.inputs[0].op != "slice":
        return False
    part = node.inputs[0].inputs[0]
    if part.op != "fourier" or part.attr("result") != 1 or part.type != node.type:
        return False
    length, keep = fixed(part.inputs[1].shape[-1]), part.attr("keep")
    axis = node.type.rank - 1
    ends = keep - 1 if keep > length // 2 else keep
    only = build.slice_axis(part, axis, 1, ends)
    is_reals = form_of(length, length, keep, len(part.inputs) == 2) == "reals"
    return is_reals and node.inputs[0] is only


def _expanded(graph: Graph, serves: Serves) -> tuple[Graph, int]:
    made: dict[str, Constant] = {}
    found: dict[tuple[object, ...], Pair] = {}

    def is_served(node: Node) -> bool:
        numbers = _numbers(len(node.inputs) == 3, node.attr("is_real"))
        return serves(fixed(node.inputs[1].shape[-1]), node.dtype, numbers)

    nodes = (node for node in graph.nodes() if node.op == "fourier")
    wanted = {node for node in nodes if not is_served(node)}

    table = _tables(made)

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
        numbers = _numbers(data[1] is not None, is_real)
        if self.serves(length, self.dtype, numbers):
            return self._by_op(data, length, keep, is_real)
        first = self._factor(length, numbers)
        if length <= DENSE_LIMIT or (first == 1 and length <= PRIME_LIMIT):
            return self._dense(data, length, keep, is_real)
        if first == 1:
            found = self._by_convolution(data, length)
        else:
            found = self._by_factors(data, first, length // first)
        re, im = found
        return _first(re, keep), None if is_real or im is None else _first(im, keep)

    def _factor(self, length: int, numbers: str) -> int:
        """The divisor up to `DENSE_LIMIT`, or that there is a kernel for, which is nearest to the
        root of `length`; 1 for none."""
        divisors = (each for each in range(2, min(LONGEST, length - 1) + 1) if length % each == 0)
        fit = (
            each
            for each in divisors
            if each <= DENSE_LIMIT or self.serves(each, self.dtype, numbers)
        )
        root = math.sqrt(length)
        return min(fit, key=lambda each: abs(math.log(each / root)), default=1)

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
