"""What each op means, in numpy: the definition that rewrites, folding and kernels are held to.

Arrays are in computing form (`storage.widen`); sums and products of f32 accumulate in f64. The
interpreter runs a graph node by node, and rounds each result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy

from aotc.aot.ir import checks
from aotc.aot.ir.graph import Constant, Graph, Node, walk
from aotc.aot.ir.infer import PACK_N, packed_columns
from aotc.aot.ir.ops import OPS, OpDef
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.storage import Array, narrow, widen
from aotc.aot.ir.types import DTYPES

Reference = Callable[..., Any]

_fma = numpy.frompyfunc(lambda *values: _fused(*map(float, values)), 3, 1)
_erf, _erfc = (numpy.frompyfunc(function, 1, 1) for function in (math.erf, math.erfc))


def _wide(array: Array) -> Array:
    return array.astype(numpy.float64) if array.dtype.kind == "f" else array


def erf(x: Array) -> Array:
    """Error function."""
    return numpy.asarray(_erf(x)).astype(numpy.asarray(x).dtype)


def erfc(x: Array) -> Array:
    """1 - erf(x), precise where that vanishes."""
    return numpy.asarray(_erfc(x)).astype(numpy.asarray(x).dtype)


def _fused(a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact) if exact else a * b + c  # which has the sign of a zero
    except OverflowError:
        return math.copysign(math.inf, exact)


def fma(a: Array, b: Array, c: Array) -> Array:
    """a·b + c, rounded once."""
    wide = (_wide(numpy.asarray(each)) for each in (a, b, c))
    return numpy.asarray(_fma(*wide)).astype(numpy.asarray(a).dtype)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), computed in f64 so that it neither overflows nor cancels."""
    return numpy.asarray(1 / (1 + numpy.exp(-_wide(x)))).astype(x.dtype)


def gelu(x: Array) -> Array:
    """x · Φ(x)."""
    wide = _wide(x)
    return numpy.asarray(0.5 * wide * (1 + erf(wide * math.sqrt(0.5)))).astype(x.dtype)


def gelu_tanh(x: Array) -> Array:
    """The tanh form of GELU."""
    wide = _wide(x)
    inner = math.sqrt(2 / math.pi) * wide * (1 + 0.044715 * wide * wide)
    return numpy.asarray(0.5 * wide * (1 + numpy.tanh(inner))).astype(x.dtype)


def round_tf32(x: Array) -> Array:
    """The nearest number of 11 significant bits, of two equally near ones the larger in size."""
    bits = numpy.asarray(x, numpy.float32).view(numpy.int32)
    with numpy.errstate(over="ignore"):  # of NaN, which stays as it is
        found = ((bits + numpy.int32(4096)) & numpy.int32(-8192)).view(numpy.float32)
    return numpy.asarray(numpy.where(numpy.isnan(x), x, found))


def sign(x: Array) -> Array:
    """-1, 0 or 1; 0 for NaN as in torch."""
    return numpy.asarray(numpy.subtract((x > 0).astype(x.dtype), (x < 0).astype(x.dtype)))


PHILOX_ROUNDS = 10
PHILOX_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
PHILOX_KEY_STEPS = 0x9E3779B9, 0xBB67AE85


def philox(seed: Array, offset: Array, element: Array, site: int, word: int) -> Array:
    """Word `word` of Philox 4x32-10 as i32: Salmon and others, "Parallel random numbers: as easy as
    1, 2, 3", 2011. i64 operands: the seed is the key, the counter is (element, offset, site)."""
    low, half = numpy.uint64(0xFFFFFFFF), numpy.uint64(32)
    key, count, place = (
        numpy.asarray(each, numpy.int64).astype(numpy.uint64) for each in (seed, offset, element)
    )
    keys = [key & low, key >> half]
    counter = [place & low, count >> half, count & low, numpy.asarray(site, numpy.uint64)]
    counter = list(numpy.broadcast_arrays(*counter))
    first, second = map(numpy.uint64, PHILOX_MULTIPLIERS)
    for _ in range(PHILOX_ROUNDS):
        left, right = counter[0] * first, counter[2] * second
        counter = [
            (right >> half) ^ counter[1] ^ keys[0],
            right & low,
            (left >> half) ^ counter[3] ^ keys[1],
            left & low,
        ]
        keys = [
            (each + numpy.uint64(step)) & low
            for each, step in zip(keys, PHILOX_KEY_STEPS, strict=True)
        ]
    return numpy.asarray(counter[word].astype(numpy.uint32)).view(numpy.int32)


def _reduce(function: Callable[..., Any]) -> Reference:
    def reduce(x: Array, axes: tuple[int, ...]) -> Array:
        return numpy.asarray(function(_wide(x), axis=axes, keepdims=True))

    return reduce


def _index_of(function: Callable[..., Any]) -> Reference:
    def index_of(x: Array, axes: tuple[int, ...]) -> Array:
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        order = (*kept, *axes)
        rows = x.transpose(order).reshape(*(x.shape[axis] for axis in kept), -1)
        shape = tuple(1 if axis in axes else dim for axis, dim in enumerate(x.shape))
        return numpy.asarray(function(rows, axis=-1)).reshape(shape)

    return index_of


def extent(extent: int) -> Array:
    """A size, once it is known."""
    return numpy.asarray(extent)


def iota(shape: tuple[int, ...], axis: int) -> Array:
    """Counts along `axis`."""
    column = [1] * len(shape)
    column[axis] = shape[axis]
    return numpy.broadcast_to(numpy.arange(shape[axis]).reshape(column), shape)


def scalar(value: bool | float, dtype: str) -> Array:
    """A rank-0 literal; 16-bit floats are computed with as f32."""
    name = "float32" if dtype in ("f16", "bf16") else DTYPES[dtype].numpy
    return numpy.array(value, dtype=name)


def slice_(x: Array, axis: int, start: int, stop: int, step: int) -> Array:
    """Elements start:stop:step along `axis`."""
    index = [slice(None)] * x.ndim
    index[axis] = slice(start, stop, step)
    return x[tuple(index)]


def shard(x: Array, axis: int, ranks: int, rank: int) -> Array:
    """Part `rank` of `ranks` equal ones along `axis`."""
    part: Array = numpy.split(x, ranks, axis)[rank]
    return part


def exchange(*_: Array, **__: Any) -> Array:
    """Has no meaning for one rank alone."""
    raise ValueError("`exchange` is of several ranks: run them together")


def pad(x: Array, low: tuple[int, ...], high: tuple[int, ...], value: float) -> Array:
    """Constant padding."""
    return numpy.pad(x, list(zip(low, high, strict=True)), constant_values=value)


def window(
    x: Array,
    axes: tuple[int, ...],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> Array:
    """Sliding windows; one trailing dim for each of `axes`."""
    shape, steps, inner = list(x.shape), list(x.strides), []
    for axis, size, stride, dilation in zip(axes, sizes, strides, dilations, strict=True):
        shape[axis] = (shape[axis] - (size - 1) * dilation - 1) // stride + 1
        inner.append(x.strides[axis] * dilation)
        steps[axis] = x.strides[axis] * stride
    return numpy.lib.stride_tricks.as_strided(
        x, (*shape, *sizes), (*steps, *inner), writeable=False
    )


def take(data: Array, indices: Array, axis: int) -> Array:
    """Rows of `data` along `axis`; raises `IndexError` outside of it."""
    return numpy.take(data, indices, axis=axis)


def gather(data: Array, index: Array, axis: int) -> Array:
    """`result[i, j] = data[i, index[i, j]]` for axis 1; the data's other dims may be larger."""
    region = tuple(
        slice(None) if dim == axis else slice(extent) for dim, extent in enumerate(index.shape)
    )
    return numpy.take_along_axis(data[region], index.astype(numpy.int64), axis)


def matmul(left: Array, right: Array) -> Array:
    """Batched product."""
    return numpy.asarray(numpy.matmul(_wide(left), _wide(right)))


def matmul_i8(left: Array, right: Array) -> Array:
    """Batched product of i8, exact in i32."""
    return numpy.asarray(numpy.matmul(left.astype(numpy.int32), right.astype(numpy.int32)))


def matmul_packed(rows: Array, packed: Array, n: int) -> Array:
    """Product with panels `[panels, K, PACK_N]`, or `[panels, K / r, PACK_N, r]`; of several that
    have their columns there."""
    if packed.ndim == 4:
        packed = packed.transpose(0, 1, 3, 2).reshape(len(packed), -1, PACK_N)
    panels, inner, _ = packed.shape
    dense = packed.transpose(1, 0, 2).reshape(inner, panels * PACK_N)
    if rows.ndim == 2:
        dense = dense[:, :n]
    else:
        starts = range(0, len(rows) * packed_columns(n), packed_columns(n))
        dense = numpy.stack([dense[:, start : start + n] for start in starts])
    return matmul_i8(rows, dense) if rows.dtype == numpy.int8 else matmul(rows, dense)


def convolution(
    data: Array,
    weight: Array,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
) -> Array:
    """Cross-correlation, channels first."""
    rank = len(stride)
    margins = (0, 0, *padding)
    padded = pad(data, margins, margins, 0)
    axes = tuple(range(2, 2 + rank))
    windows = window(padded, axes, weight.shape[2:], stride, dilation)
    channels = weight.shape[1]
    parts = []
    for group, filters in enumerate(numpy.split(_wide(weight), groups)):
        part = _wide(windows[:, group * channels : (group + 1) * channels])
        kernel_dims = tuple(range(2 + rank, 2 + 2 * rank))
        dims = ((1, *kernel_dims), (1, *range(2, 2 + rank)))
        parts.append(numpy.moveaxis(numpy.tensordot(part, filters, axes=dims), -1, 1))
    return numpy.concatenate(parts, axis=1)


def convolution_weights(
    data: Array,
    gradient: Array,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    kernel: tuple[int, ...],
) -> Array:
    """dW[o, c, k] = Σ of gradient[o, p] · data[c, p · stride + k · dilation], all samples and p."""
    margins = (0, 0, *padding)
    padded, rank = _wide(pad(data, margins, margins, 0)), len(kernel)
    parts = []
    grouped = zip(
        numpy.split(padded, groups, 1), numpy.split(_wide(gradient), groups, 1), strict=True
    )
    for seen, own in grouped:
        part = numpy.zeros((own.shape[1], seen.shape[1], *kernel), own.dtype)
        for place in numpy.ndindex(*kernel):
            rows = zip(place, dilation, stride, own.shape[2:], strict=True)
            steps = [
                slice(at * gap, at * gap + (count - 1) * step + 1, step)
                for at, gap, step, count in rows
            ]
            axes = (0, *range(2, 2 + rank))
            window = seen[(slice(None), slice(None), *steps)]
            part[(..., *place)] = numpy.tensordot(own, window, axes=(axes, axes))
        parts.append(part)
    return numpy.concatenate(parts)


def attention(*operands: Array, is_safe: bool, has_sinks: bool, **how: Any) -> Array:
    """softmax(cap(q·kᵀ·scale) + mask)·v over `[B, H, T, D]`, fewer key heads repeated."""
    operands, sinks = (operands[:-1], operands[-1:]) if has_sinks else (operands, ())
    query, key, value, *mask = operands
    _, powers, total = _softmax(_scores(query, key, *mask, **how), is_safe, *sinks)
    return matmul(powers / total, _repeated(value, query))


def attention_log_sum_exp(*operands: Array, is_safe: bool, has_sinks: bool, **how: Any) -> Array:
    """ln Σ e^score of each row; of one that sees nothing the least f32 if `is_safe`, else -inf."""
    operands, sinks = (operands[:-1], operands[-1:]) if has_sinks else (operands, ())
    query, key, _, *mask = operands
    peak, _, total = _softmax(_scores(query, key, *mask, **how), is_safe, *sinks)
    return numpy.asarray((peak + numpy.log(total))[..., 0])


def attention_backward(*operands: Array, result: int, **how: Any) -> Array:
    """With P the weights and s the scale: dV = Pᵀ dO, dS = P ∘ (dO Vᵀ - rowsum(dO ∘ O)),
    dQ = s dS K, dK = s dSᵀ Q."""
    query, key, value, gradient, out, sums, *mask = map(_wide, operands)
    weights = numpy.exp(_scores(query, key, *mask, **how) - sums[..., None])
    products = matmul(gradient, _repeated(value, query).swapaxes(-1, -2))
    inner = weights * (products - (gradient * out).sum(-1, keepdims=True)) * how["scale"]
    if result == 0:
        return matmul(inner, _repeated(key, query))
    left, right = (inner, query) if result == 1 else (weights, gradient)
    found = matmul(left.swapaxes(-1, -2), right)
    batch, heads, rows, _ = key.shape
    return numpy.asarray(found.reshape(batch, heads, -1, rows, found.shape[3]).sum(2))


def _repeated(heads: Array, query: Array) -> Array:
    return numpy.repeat(heads, query.shape[1] // heads.shape[1], axis=1)


def _scores(
    query: Array,
    key: Array,
    *masks: Array,
    scale: float,
    causal: bool,
    offset: int,
    window: int,
    softcap: float = 0.0,
) -> Array:
    """q·kᵀ·scale, capped, + mask, -inf where a key is hidden."""
    scores = (matmul(query, _repeated(key, query).swapaxes(-1, -2)) * scale).astype(query.dtype)
    if softcap:
        scores = (softcap * numpy.tanh(scores / softcap)).astype(query.dtype)
    row, column = (iota(scores.shape, axis) for axis in (2, 3))
    last = row + offset if causal else None
    for mask in masks:
        if mask.dtype.kind == "i":
            last = mask - 1
        else:
            scores = numpy.where(mask, scores, -numpy.inf) if mask.dtype == bool else scores + mask
    if last is not None:
        is_seen = column <= last
        if window:
            is_seen &= column > last - window
        scores = numpy.where(is_seen, scores, -numpy.inf)
    return scores


def _softmax(scores: Array, is_safe: bool, *sinks: Array) -> tuple[Array, Array, Array]:
    """The largest score of each row, all powers above it, and their sum, with that of its sink."""
    peak = numpy.max(_wide(scores), -1, keepdims=True, initial=numpy.finfo(numpy.float32).min)
    for sink in sinks:
        peak = numpy.maximum(peak, _wide(sink))
    powers = numpy.exp(_wide(scores) - peak)
    total = powers.sum(-1, keepdims=True) + sum(numpy.exp(_wide(sink) - peak) for sink in sinks)
    return peak, powers, numpy.where(total == 0, 1, total) if is_safe else total


_MERGES: Mapping[str, Callable[[Array, Array], Array]] = {
    "replace": lambda old, new: new,
    "sum": numpy.add,
    "prod": numpy.multiply,
    "max": numpy.maximum,
    "min": numpy.minimum,
}


def scatter_rows(
    data: Array, index: Array, source: Array, axis: int, merge: str, distinct: int
) -> Array:
    """`data` with the rows of `source`, which may lie in several dims, merged or written one after
    the other."""
    source = source.reshape((*data.shape[:axis], -1, *data.shape[axis + 1 :]))
    found = numpy.moveaxis(data.copy(), axis, 0)
    places = numpy.moveaxis(numpy.broadcast_to(index, source.shape), axis, 0)
    for place, row in zip(places, numpy.moveaxis(source, axis, 0), strict=True):
        if not place.ndim:
            place, row = place[None], row[None]
        inside = numpy.nonzero((place >= 0) & (place < len(found)))
        target = (place[inside], *(inside if found.ndim > 1 else ()))
        found[target] = _MERGES[merge](found[target], row[inside])
    return numpy.moveaxis(found, 0, axis)


def grouped_matmul(left: Array, right: Array, ends: Array) -> Array:
    """Products over the runs of rows that `ends` names."""
    starts = [0, *ends[:-1]]
    if right.ndim == 2:
        runs = zip(starts, ends, strict=True)
        return numpy.stack([matmul(left[:, low:high], right[low:high]) for low, high in runs])
    found = numpy.zeros((len(left), right.shape[2]))
    for low, high, matrix in zip(starts, ends, right, strict=True):
        found[low:high] = matmul(left[low:high], matrix)
    return found


def scan(data: Array, kind: str, axis: int, is_reversed: bool) -> Array:
    """Running results along an axis; floats are added and multiplied in f64."""
    rows = numpy.flip(data, axis) if is_reversed else data
    found = _running(kind, rows, axis)
    if is_reversed:
        found = numpy.flip(found, axis)
        return data.shape[axis] - 1 - found if kind.endswith("_place") else found
    return found


def scan_blocks(data: Array, kind: str, axis: int, block: int) -> Array:
    """The same of each block of so many elements along the axis."""
    starts = range(block, data.shape[axis], block)
    parts = numpy.split(data, list(starts), axis)
    return numpy.concatenate([scan(part, kind, axis, False) for part in parts], axis)


def _running(kind: str, data: Array, axis: int) -> Array:
    is_float = data.dtype.kind not in "iub"
    dtype = numpy.float64 if is_float else data.dtype
    if kind in ("sum", "prod"):
        function = numpy.cumsum if kind == "sum" else numpy.cumprod
        return function(data, axis, dtype=dtype)
    if kind == "log_sum":
        return numpy.logaddexp.accumulate(data.astype(numpy.float64), axis)
    extreme = numpy.maximum if kind.startswith("max") else numpy.minimum
    best: Array = extreme.accumulate(data, axis)
    if not kind.endswith("_place"):
        return best
    counted = [1] * data.ndim
    counted[axis] = data.shape[axis]
    places = numpy.arange(data.shape[axis], dtype=numpy.int32).reshape(counted)
    is_best = (data == best) | (data != data)
    return numpy.maximum.accumulate(numpy.where(is_best, places, 0), axis)


def order_rows(data: Array, wanted: int, descending: bool) -> Array:
    """Places of the first elements in order; NaN counts as greatest."""
    if not descending:
        order: Array = numpy.argsort(data, -1, kind="stable")
    else:  # equal elements of a row from its end stand the other way round
        behind = numpy.argsort(data[..., ::-1], -1, kind="stable")[..., ::-1]
        order = data.shape[-1] - 1 - behind
    return order[..., :wanted]


def select_rows(data: Array, wanted: int, descending: bool) -> Array:
    """Places of the same elements, in the order in which they are."""
    return numpy.sort(order_rows(data, wanted, descending), -1)


def nth_places(data: Array, *ranks: Array, wanted: int) -> Array:
    """Places at ranks of the rows' order, the last one where none are given."""
    order = order_rows(data, wanted, descending=False)
    places: Array = numpy.take_along_axis(order, ranks[0], -1) if ranks else order[..., -1:]
    return places.astype(numpy.int32)


def fourier(
    turns: Array, re: Array, *im: Array, sign: int, keep: int, is_real: bool, result: int
) -> Array:
    """Transforms of rows, in f64."""
    data, length = _wide(re) + 1j * _wide(im[0]) if im else _wide(re), turns.shape[-1]
    if is_real and data.shape[-1] != length:
        data = numpy.concatenate([data, data[..., length - data.shape[-1] : 0 : -1].conj()], -1)
    with numpy.errstate(invalid="ignore", over="ignore"):
        whole = numpy.fft.fft(data) if sign < 0 else numpy.fft.ifft(data, norm="forward")
        part = whole.imag.copy() if result else whole.real
        if result and not im:
            part[..., 0] = 0
            part[..., (length + 1) // 2 : length // 2 + 1] = 0
        found: Array = part[..., :keep].astype(re.dtype)
    return found


def _digits(words: Array, shift: int) -> Array:
    """Eight bits of words."""
    found: Array = (words >> words.dtype.type(shift)) & words.dtype.type(255)
    return found


def count_digits(words: Array, length: int, shift: int) -> Array:
    """How often each digit is in each part of each row."""
    digits = _digits(words, shift)
    starts = range(0, words.shape[1], length)
    parts = [digits[:, start : start + length, None] == numpy.arange(256) for start in starts]
    return numpy.stack([part.sum(1, dtype=numpy.int32) for part in parts], 1)


def sum_digits(counts: Array) -> Array:
    """Counts of digits up to the end of each part."""
    return numpy.cumsum(counts, 1, dtype=counts.dtype)


def order_by_digit(words: Array, sums: Array, length: int, shift: int) -> Array:
    """Words stably in the order of their digits."""
    del sums, length  # which only say where each part's elements go
    order = numpy.argsort(_digits(words, shift), -1, kind="stable")
    return numpy.take_along_axis(words, order, -1)


def sort_runs(words: Array, length: int) -> Array:
    """Each run in order."""
    starts = range(0, words.shape[-1], length)
    runs = [numpy.sort(words[..., at : at + length], -1) for at in starts]
    return numpy.concatenate([words[..., :0], *runs], -1)


def merge_runs(words: Array, length: int, ways: int) -> Array:
    """Runs that are in order, as many together as there are ways."""
    return sort_runs(words, length * ways)


def count_places(counts: Array, index: Array) -> Array:
    """`counts` and how many places of a row are each number below its length."""
    found = counts.copy()
    for row, places in zip(found, index, strict=True):
        inside = places[(places >= 0) & (places < len(row))]
        row += numpy.bincount(inside, minlength=len(row)).astype(row.dtype)
    return found


def sum_runs(rows: Array, starts: Array, source: Array) -> Array:
    """Sums over runs of rows."""
    runs = pairwise(starts)
    sums = [_wide(source[:, rows[low:high]]).sum(1) for low, high in runs]
    return numpy.stack(sums, 1) if sums else source[:, :0]


_OWN: Mapping[str, Reference] = {
    **{function.__name__: function for function in (
        attention, attention_backward, attention_log_sum_exp, convolution, convolution_weights,
        count_digits, count_places, erf, erfc, extent, fma, fourier, gather, gelu, gelu_tanh,
        grouped_matmul, iota, matmul, matmul_i8, matmul_packed, merge_runs, nth_places,
        order_by_digit, order_rows, pad, philox, round_tf32, scalar, scan, scan_blocks,
        scatter_rows, select_rows, sigmoid, sign, sort_runs, sum_digits, sum_runs, take, window,
    )},
    "matmul_in_order": matmul,
    "matmul_tf32": matmul,
    "rsqrt": lambda x: (1 / numpy.sqrt(_wide(x))).astype(x.dtype),
    "reciprocal": lambda x: (1 / x).astype(x.dtype),
    "relu": lambda x: numpy.where(x < 0, x.dtype.type(0), x),
    "silu": lambda x: (_wide(x) * sigmoid(_wide(x))).astype(x.dtype),
    "bitcast": lambda x, dtype: x.view(DTYPES[dtype].numpy),  # of stored elements
    "cast": lambda x, dtype: x,  # the interpreter rounds every result to its type
    "reshape": lambda x, shape: x.reshape(shape),
    "permute": lambda x, dims: x.transpose(dims),
    "expand": lambda x, shape: numpy.broadcast_to(x, shape),
    "slice": slice_,
    "flip": lambda x, axes: numpy.flip(x, axes),
    "shard": shard,
    "exchange": exchange,
    "concat": lambda *parts, axis: numpy.concatenate(parts, axis),
    "copy": lambda x, tag: x,
    "check": checks.reference,
}  # fmt: skip
# Kinds that mean what is given or called.
_WITHOUT = ("input", "constant", "call", "torch", "control")


def _meaning(row: OpDef) -> Reference:
    if row.name in _OWN:
        return _OWN[row.name]
    if callable(row.numpy):
        return partial(row.numpy, numpy)
    function: Reference = attrgetter(row.numpy or row.name)(numpy)
    if row.kind != "reduce":
        return function
    return (_index_of if REDUCTIONS[row.name].is_search else _reduce)(function)


REFERENCE: Mapping[str, Reference] = {
    row.name: _meaning(row) for row in OPS.values() if row.kind not in _WITHOUT
}


# -- the interpreter -------------------------------------------------------------------------------


def evaluate(node: Node, operands: Sequence[Array]) -> Array:
    """Result of one op on stored arrays (bf16 as uint16), as a stored array of `node.type`.

    Raises `ValueError` for a kernel of the user's, whose meaning is its text, and for torch's ops.
    """
    if node.op == "placed":
        return _placed(node, operands)
    if node.kind == "call":
        raise ValueError(f"`{node.attr('function')}` has no meaning in numpy: run its kernel")
    if node.kind == "control":
        return _control(node, operands)
    if node.kind == "torch":
        raise ValueError(f"`{node.attr('operator')}` has no meaning in numpy: torch runs it")
    moves_only = OPS[node.op].cost == 0.0 and node.kind not in ("scalar", "extent", "iota", "pad")
    if moves_only:
        return numpy.asarray(REFERENCE[node.op](*operands, **dict(node.attrs)))
    is_exact = OPS[node.op].is_discontinuous
    wide = [_operand(*pair, is_exact) for pair in zip(node.inputs, operands, strict=True)]
    with numpy.errstate(all="ignore"):
        result = REFERENCE[node.op](*wide, **dict(node.attrs))
    return narrow(numpy.asarray(result), node.dtype)


def _placed(node: Node, operands: Sequence[Array]) -> Array:
    """The result of ops on tensors that lie within `operands`."""
    wide = [
        widen(_view(operands[number], *where), node.inputs[number].dtype)
        for number, *where in node.attr("operands")
    ]
    result = numpy.zeros(node.shape, narrow(numpy.zeros(0), node.dtype).dtype)
    with numpy.errstate(all="ignore"):
        for op, attrs, numbers, (number, *where) in node.attr("stored"):
            if number == node.attr("result"):
                found = numpy.asarray(REFERENCE[op](*(wide[at] for at in numbers), **dict(attrs)))
                _view(result, *where)[...] = narrow(found, node.dtype)
    return result


def _control(node: Node, operands: Sequence[Array]) -> Array:
    """The result of graphs that run as data decides."""
    graphs = [body.graph for body in node.attr("bodies")]
    form, given = node.attr("form"), list(operands)

    def run(graph: Graph, values: Sequence[Array]) -> list[Array]:
        shapes = (each.shape for each in graph.inputs)
        return interpret(graph, [each.reshape(s) for each, s in zip(values, shapes, strict=True)])

    if form == "branch":
        condition, *given = given
        return run(graphs[0 if condition.any() else 1], given)[node.attr("result")]
    first = len(given) - len(node.attr("updates"))
    turns = 0
    while run(graphs[0], given)[0].any() if form == "while" else turns < node.attr("count"):
        given[first:] = run(graphs[-1], given)
        turns += 1
    found: Array = given[first + node.attr("result")].reshape(node.shape)
    return found


def _view(memory: Array, start: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
    flat = numpy.ascontiguousarray(memory).reshape(-1)[start:]
    steps = [stride * flat.itemsize for stride in strides]
    return numpy.lib.stride_tricks.as_strided(flat, shape, steps)


def _operand(node: Node, stored: Array, is_exact: bool) -> Array:
    # A literal is never stored: 16-bit arithmetic reads it with f32's precision.
    if node.op == "scalar" and not is_exact:
        return numpy.asarray(REFERENCE["scalar"](**dict(node.attrs)))
    return widen(stored, node.dtype)


def evaluate_all(
    outputs: tuple[Node, ...], given: Mapping[Node, Array], constants: Mapping[str, Constant]
) -> list[Array]:
    """Results of `outputs`, given those of the inputs. Others live until their last reader is
    done: the steps that make one large weight would fill the memory together."""
    nodes = list(walk(outputs, given))
    last_reader = {operand: node for node in nodes for operand in node.inputs}
    values = dict(given)
    for node in nodes:
        if node.op == "constant":
            values[node] = constants[node.attr("name")].array
        else:
            values[node] = evaluate(node, [values[operand] for operand in node.inputs])
        for operand in set(node.inputs).difference(outputs):
            if last_reader[operand] is node:
                del values[operand]
    return [values[node] for node in outputs]


def interpret(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """Outputs of `graph`, without its checks, for stored arrays in the order of its inputs.

    Raises `ValueError` when an array's shape or storage type differs from its input's.
    """
    values: dict[Node, Array] = {}
    for node, array in zip(graph.inputs, inputs, strict=True):
        stored = narrow(numpy.zeros(0), node.dtype).dtype
        if array.shape != node.shape or array.dtype != stored:
            raise ValueError(f"input is {array.dtype}{list(array.shape)}, expected {node.type}")
        values[node] = array
    return evaluate_all((*graph.returned, *graph.new_states), values, graph.constants)
