"""Type rules: operand types and attributes → result type. One function a family of ops.

Every rule raises `TypeRuleError` with the bare reason; `make` adds the op and its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from aotc.aot.errors import TypeRuleError
from aotc.aot.ir.size import Extent, Shape, proves_at_most, typical
from aotc.aot.ir.types import DTYPES, TensorType

Types = tuple[TensorType, ...]
AttrMap = Mapping[str, Any]
Infer = Callable[[Types, AttrMap], TensorType]

# What becomes of an element that rows are written to, one after the other.
MERGES = ("replace", "sum", "prod", "max", "min")
ANY_ORDER = frozenset({"sum", "max", "min"})  # of whole numbers, that atomics merge
SCANS = ("sum", "prod", "max", "min", "log_sum", "max_place", "min_place")
PACK_N = 64  # columns of one panel of a packed matmul operand
WORD_ROWS = {"bf16": 2, "i8": 4}  # rows of such a panel that lie side by side, by element type
WORDS_RANK = 4  # of panels whose rows do
EXCHANGE_PROGRAMS = 32  # that share an exchange among ranks, each with a word of its status
MOST_DEPTH_I8 = 1 << 16  # elements of the inner dimension whose products an i32 holds


def require(condition: bool, reason: str) -> None:
    """Raise `TypeRuleError(reason)` unless `condition`."""
    if not condition:
        raise TypeRuleError(reason)


def broadcast_shape(shapes: tuple[Shape, ...]) -> Shape:
    """Common shape of operands of rank 0 or of one rank, whose dims are equal or 1."""
    ranked = [shape for shape in shapes if shape]
    if not ranked:
        return ()
    if len(set(ranked)) == 1:
        return ranked[0]
    rank = len(ranked[0])
    require(all(len(shape) == rank for shape in ranked), f"ranks differ: {ranked}")
    result = []
    for dims in zip(*ranked, strict=True):
        extents = {dim for dim in dims if dim != 1}
        require(len(extents) <= 1, f"dims {sorted(extents, key=typical)} differ")
        result.append(extents.pop() if extents else 1)
    return tuple(result)


def _same_dtype(types: Types) -> str:
    names = sorted({item.dtype for item in types})
    require(len(names) == 1, f"element types differ: {', '.join(names)}")
    return names[0]


def pointwise(*kinds: str, result: str = "") -> Infer:
    """Operands of one element type of the given kinds; `result` names another result type."""

    def infer(types: Types, attrs: AttrMap) -> TensorType:
        dtype = _same_dtype(types)
        kind = DTYPES[dtype].kind
        require(kind in kinds, f"`{dtype}` is not {' or '.join(kinds)}")
        shape = broadcast_shape(tuple(item.shape for item in types))
        return TensorType(result or dtype, shape)

    return infer


def round_tf32(types: Types, attrs: AttrMap) -> TensorType:
    """f32 as it is."""
    (data,) = types
    require(data.dtype == "f32", f"`{data.dtype}` is not `f32`")
    return data


def where(types: Types, attrs: AttrMap) -> TensorType:
    """`where(bool, T, T) → T`."""
    require(types[0].dtype == "bool", f"condition is `{types[0].dtype}`, expected `bool`")
    dtype = _same_dtype(types[1:])
    return TensorType(dtype, broadcast_shape(tuple(item.shape for item in types)))


def philox(types: Types, attrs: AttrMap) -> TensorType:
    """Seeds, offsets and elements, all i64 → i32."""
    require(_same_dtype(types) == "i64", f"operands are `{types[0].dtype}`, expected `i64`")
    require(attrs["word"] in range(4), f"word is {attrs['word']}, expected 0 to 3")
    return TensorType("i32", broadcast_shape(tuple(item.shape for item in types)))


def bitcast(types: Types, attrs: AttrMap) -> TensorType:
    """Same shape, element type `dtype` of as many bytes; no bool."""
    (data,), dtype = types, _dtype(attrs)
    sizes = DTYPES[data.dtype].itemsize_bytes, DTYPES[dtype].itemsize_bytes
    require(sizes[0] == sizes[1], f"elements of `{data.dtype}` do not have the size of `{dtype}`")
    require("bool" not in (data.kind, DTYPES[dtype].kind), "bits of a bool are not all of a byte")
    return data.with_dtype(dtype)


def cast(types: Types, attrs: AttrMap) -> TensorType:
    """Same shape, element type `dtype`."""
    return types[0].with_dtype(_dtype(attrs))


def check(types: Types, attrs: AttrMap) -> TensorType:
    """Integers of any type → an i64 for each."""
    require(DTYPES[types[0].dtype].kind in ("int", "bool"), f"`{types[0].dtype}` is not an integer")
    return types[0].with_dtype("i64")


def _dtype(attrs: AttrMap) -> str:
    dtype = attrs["dtype"]
    require(dtype in DTYPES, f"there is no element type `{dtype}`")
    return str(dtype)


def declared(types: Types, attrs: AttrMap) -> TensorType:
    """Inputs and constants: the type is the attributes `dtype` and `shape`."""
    require(all(dim >= 0 for dim in attrs["shape"]), f"shape {attrs['shape']} is negative")
    return TensorType(_dtype(attrs), attrs["shape"])


def scalar(types: Types, attrs: AttrMap) -> TensorType:
    """A rank-0 literal."""
    return TensorType(_dtype(attrs), ())


def extent(types: Types, attrs: AttrMap) -> TensorType:
    """The number `extent` as a rank-0 i64: a dynamic size."""
    return TensorType("i64", ())


def iota(types: Types, attrs: AttrMap) -> TensorType:
    """i64 of `shape`, counting along `axis`."""
    require(0 <= attrs["axis"] < len(attrs["shape"]), f"axis {attrs['axis']} is out of range")
    return TensorType("i64", attrs["shape"])


def reduce(*kinds: str, result: str = "") -> Infer:
    """Dims in `axes` become 1."""

    def infer(types: Types, attrs: AttrMap) -> TensorType:
        (data,), axes = types, attrs["axes"]
        require(data.kind in kinds, f"`{data.dtype}` is not {' or '.join(kinds)}")
        require(tuple(sorted(set(axes))) == axes, f"axes {axes} are not sorted and distinct")
        require(all(0 <= axis < data.rank for axis in axes), f"axes {axes} exceed the rank")
        shape = tuple(1 if axis in axes else dim for axis, dim in enumerate(data.shape))
        return TensorType(result or data.dtype, shape)

    return infer


def reshape(types: Types, attrs: AttrMap) -> TensorType:
    """Same elements in row-major order under another shape."""
    result = types[0].with_shape(attrs["shape"])
    require(result.numel == types[0].numel, f"{types[0].numel} elements do not fit {result}")
    return result


def permute(types: Types, attrs: AttrMap) -> TensorType:
    """Result dim i is operand dim `dims[i]`."""
    dims = attrs["dims"]
    require(sorted(dims) == list(range(types[0].rank)), f"{dims} is not a permutation")
    return types[0].with_shape(tuple(types[0].shape[dim] for dim in dims))


def expand(types: Types, attrs: AttrMap) -> TensorType:
    """Dims of extent 1 are repeated; rank stays."""
    shape = attrs["shape"]
    require(len(shape) == types[0].rank, f"rank {types[0].rank} differs from {shape}")
    legal = all(old in (1, new) for old, new in zip(types[0].shape, shape, strict=True))
    require(legal, f"{types[0].shape} does not expand to {shape}")
    return types[0].with_shape(shape)


def slice_(types: Types, attrs: AttrMap) -> TensorType:
    """Elements start, start + step … below stop along `axis`; step ≥ 1."""
    axis, start, stop, step = (attrs[name] for name in ("axis", "start", "stop", "step"))
    require(0 <= axis < types[0].rank, f"axis {axis} is out of range")
    legal = 0 <= start <= stop <= types[0].shape[axis] and step >= 1
    require(legal, f"slice {start}:{stop}:{step} leaves an extent of {types[0].shape[axis]}")
    return _replace(types[0], axis, (-(-(stop - start) // step),))


def _replace(data: TensorType, axis: int, dims: Shape) -> TensorType:
    return data.with_shape(data.shape[:axis] + dims + data.shape[axis + 1 :])


def shard(types: Types, attrs: AttrMap) -> TensorType:
    """One of `ranks` equal parts along `axis`."""
    (data,), axis, ranks = types, attrs["axis"], attrs["ranks"]
    require(0 <= axis < data.rank, f"axis {axis} is out of range")
    extent = data.shape[axis]
    require(0 <= attrs["rank"] < ranks, f"rank {attrs['rank']} of {ranks}")
    require(isinstance(extent, int) and extent % ranks == 0, f"{extent} in {ranks} parts")
    return _replace(data, axis, (extent // ranks,))


def flip(types: Types, attrs: AttrMap) -> TensorType:
    """Reversed along `axes`."""
    require(all(0 <= axis < types[0].rank for axis in attrs["axes"]), "axes exceed the rank")
    return types[0]


def pad(types: Types, attrs: AttrMap) -> TensorType:
    """`low[i]` elements of `value` before and `high[i]` after dim i."""
    low, high = attrs["low"], attrs["high"]
    require(len(low) == len(high) == types[0].rank, "low and high need one entry a dim")
    require(all(width >= 0 for width in low + high), "padding is negative")
    padded = zip(low, types[0].shape, high, strict=True)
    return types[0].with_shape(tuple(below + dim + above for below, dim, above in padded))


def window(types: Types, attrs: AttrMap) -> TensorType:
    """Extent of each of `axes` becomes the number of positions; a dim of the size is appended."""
    shape = list(types[0].shape)
    axes = attrs["axes"]
    rows = [attrs[name] for name in ("sizes", "strides", "dilations")]
    require(all(len(row) == len(axes) for row in rows), "one size, stride and dilation an axis")
    require(len(set(axes)) == len(axes), f"axes {axes} repeat")
    for axis, size, stride, dilation in zip(axes, *rows, strict=True):
        require(0 <= axis < types[0].rank, f"axis {axis} is out of range")
        reach = (size - 1) * dilation + 1
        # One by one: which of two sizes of a call is smaller, it alone may know.
        is_right = all(each >= 1 for each in (size, stride, dilation))
        require(is_right, "sizes, strides, dilations start at 1")
        require(reach <= shape[axis], f"window reaches {reach} of {shape[axis]}")
        shape[axis] = (shape[axis] - reach) // stride + 1
    return types[0].with_shape((*shape, *attrs["sizes"]))


def concat(types: Types, attrs: AttrMap) -> TensorType:
    """Joined along `axis`; all else equal."""
    dtype, axis = _same_dtype(types), attrs["axis"]
    require(0 <= axis < types[0].rank, f"axis {axis} is out of range")
    rest = {item.shape[:axis] + item.shape[axis + 1 :] for item in types}
    require(len(rest) == 1 and len({item.rank for item in types}) == 1, "other dims differ")
    return _replace(types[0].with_dtype(dtype), axis, (sum(item.shape[axis] for item in types),))


def take(types: Types, attrs: AttrMap) -> TensorType:
    """`data` with `axis` replaced by the dims of `indices`."""
    data, indices = types
    require(indices.kind == "int", f"indices are `{indices.dtype}`, expected an integer")
    require(0 <= attrs["axis"] < data.rank, f"axis {attrs['axis']} is out of range")
    return _replace(data, attrs["axis"], indices.shape)


def gather(types: Types, attrs: AttrMap) -> TensorType:
    """Result has the shape of the index; dims other than `axis` may not exceed the data's."""
    data, index = types
    require(index.kind == "int", f"index is `{index.dtype}`, expected an integer")
    require(data.rank == index.rank, f"ranks differ: {data.rank} and {index.rank}")
    require(0 <= attrs["axis"] < data.rank, f"axis {attrs['axis']} is out of range")
    return data.with_shape(index.shape)


def matmul(types: Types, attrs: AttrMap) -> TensorType:
    """`[.., M, K] · [.., K, N] → [.., M, N]`, batch dims equal or 1."""
    require(types[0].kind == "float", f"`{_same_dtype(types)}` is not float")
    return _product(*types)


def _product(left: TensorType, right: TensorType) -> TensorType:
    dtype = _same_dtype((left, right))
    require(left.rank == right.rank >= 2, f"ranks are {left.rank} and {right.rank}")
    require(left.shape[-1] == right.shape[-2], f"K is {left.shape[-1]} and {right.shape[-2]}")
    batch = broadcast_shape((left.shape[:-2], right.shape[:-2])) if left.rank > 2 else ()
    return TensorType(dtype, (*batch, left.shape[-2], right.shape[-1]))


def matmul_tf32(types: Types, attrs: AttrMap) -> TensorType:
    """As `matmul`, of f32."""
    require(types[0].dtype == "f32", f"operands are `{types[0].dtype}`, expected `f32`")
    return matmul(types, attrs)


def matmul_i8(types: Types, attrs: AttrMap) -> TensorType:
    """As `matmul`, of i8 with sums of i32."""
    require({each.dtype for each in types} == {"i8"}, "operands are not `i8`")
    left, right = types
    is_exact = proves_at_most(left.shape[-1], MOST_DEPTH_I8)
    require(is_exact, f"K is {left.shape[-1]}, expected at most {MOST_DEPTH_I8}")
    return replace(_product(left, right), dtype="i32")


def matmul_packed(types: Types, attrs: AttrMap) -> TensorType:
    """`[M, K] · packed [ceil(n / PACK_N), K, PACK_N] → [M, n]`, the panels of bf16 and i8 also
    `[ceil(n / PACK_N), K / r, PACK_N, r]`: r = WORD_ROWS rows of which elements take turns. Sums of
    i8 are i32. Several products, `[Z, M, K] → [Z, M, n]`, have their columns beside each other in
    the panels, `packed_columns(n)` each."""
    rows, packed = types
    dtype, columns = _same_dtype(types), attrs["n"]
    is_legal = rows.rank in (2, 3) and packed.rank in (3, WORDS_RANK)
    require(is_legal, f"ranks are {rows.rank} and {packed.rank}")
    whole, inner = columns, rows.shape[-1]
    if rows.rank == 3:
        whole = rows.shape[0] * packed_columns(columns)
    panels = -(-whole // PACK_N)
    expected: Shape = (panels, inner, PACK_N)
    if packed.rank == WORDS_RANK:
        beside = WORD_ROWS.get(dtype, 1)
        require(inner % beside == 0, f"K is {inner}, expected a multiple of {beside}")
        expected = (panels, inner // beside, PACK_N, beside)
    require(packed.shape == expected, f"panels are {packed.shape}, expected {expected}")
    return TensorType("i32" if dtype == "i8" else dtype, (*rows.shape[:-1], columns))


def packed_columns(columns: int) -> int:
    """Columns that panels hold for one of several products, zeros included: so many that its first
    one begins a panel, or an equal part of one."""
    if columns > PACK_N:
        return math.ceil(columns / PACK_N) * PACK_N
    return 1 << (columns - 1).bit_length()


def convolution(types: Types, attrs: AttrMap) -> TensorType:
    """`[N, C, *spatial]` · `[Co, C / groups, *kernel]` → `[N, Co, *positions]`, 1 to 3 dims."""
    data, weight = types
    dtype, groups, spatial_rank = _same_dtype(types), attrs["groups"], data.rank - 2
    require(1 <= spatial_rank <= 3 and weight.rank == data.rank, "rank is not 3, 4 or 5")
    require(data.shape[1] == weight.shape[1] * groups, "channels do not fit the weight")
    require(weight.shape[0] % groups == 0, f"{weight.shape[0]} does not divide by {groups}")
    positions: list[Extent] = []
    rows = [attrs[name] for name in ("stride", "padding", "dilation")]
    require(all(len(row) == spatial_rank for row in rows), "one entry a spatial dim")
    for dim, size, stride, padding, dilation in zip(
        data.shape[2:], weight.shape[2:], *rows, strict=True
    ):
        positions.append((dim + 2 * padding - dilation * (size - 1) - 1) // stride + 1)
        require(positions[-1] >= 1, f"kernel exceeds the extent {dim}")
    return TensorType(dtype, (data.shape[0], weight.shape[0], *positions))


def convolution_weights(types: Types, attrs: AttrMap) -> TensorType:
    """`[N, C, *spatial]`, `[N, Co, *positions]` → `[Co, C / groups, *kernel]`, 1 to 3 dims."""
    data, gradient = types
    groups, kernel = attrs["groups"], attrs["kernel"]
    require(data.shape[0] == gradient.shape[0], "batches differ")
    require(data.shape[1] % groups == 0, f"{data.shape[1]} does not divide by {groups}")
    require(gradient.shape[1] % groups == 0, f"{gradient.shape[1]} does not divide by {groups}")
    rows = [attrs[name] for name in ("stride", "padding", "dilation", "kernel")]
    require(all(len(row) == data.rank - 2 for row in rows), "one entry a spatial dim")
    shape = (gradient.shape[1], data.shape[1] // groups, *kernel)
    return TensorType(_same_dtype(types), shape)


def attention(types: Types, attrs: AttrMap) -> TensorType:
    """q `[B, Hq, T, D]`, k `[B, H, S, D]`, v `[B, H, S, E]`, perhaps a mask, ends and sinks
    → `[B, Hq, T, E]`.

    H divides Hq: query heads share key heads in order. The mask is bool (what is seen) or float
    (what is added to the scores), of rank 4, its dims those of the scores or 1. Ends are integers,
    `[B, Hq, T, 1]` or 1 in place of a dim: how many keys a row sees, counted from the first. Sinks
    are floats of such a shape, the last operand.
    """
    has_sinks = bool(attrs.get("has_sinks"))
    types, sinks = (types[:-1], types[-1:]) if has_sinks else (types, ())
    require(3 <= len(types) <= 5, f"{len(types)} operands, expected q, k, v, a mask and ends")
    query, key, value = types[:3]
    dtype = _same_dtype(types[:3])
    require(query.kind == "float", f"`{dtype}` is not float")
    require(all(item.rank == 4 for item in (*types, *sinks)), "ranks are not 4")
    batch, heads, rows, size = query.shape
    require(key.shape[0] == value.shape[0] == batch, "batches differ")
    require(key.shape[1:3] == value.shape[1:3], f"keys {key.shape} and values {value.shape} differ")
    require(key.shape[3] == size, f"head sizes are {size} and {key.shape[3]}")
    require(heads % max(1, key.shape[1]) == 0, f"{key.shape[1]} key heads for {heads}")
    require(0 < attrs["scale"] < math.inf, f"scale is {attrs['scale']}, expected one above zero")
    softcap = attrs.get("softcap", 0.0)
    require(0 <= softcap < math.inf, f"softcap is {softcap}, expected 0 or one above")
    ends = [each for each in types[3:] if each.kind == "int"]
    require(len(types[3:]) - len(ends) <= 1 >= len(ends), "more than one mask, or ends")
    require(not (ends and attrs["causal"]), "both ends and causal rows")
    require(bool(ends) or attrs["causal"] or attrs["window"] == 0, "a window without an end")
    require(all(each.kind == "float" for each in sinks), f"sinks are {sinks}, expected floats")
    for each in (*types[3:], *sinks):
        scores = (batch, heads, rows, 1 if each in (*ends, *sinks) else key.shape[2])
        fits = all(dim in (1, full) for dim, full in zip(each.shape, scores, strict=True))
        require(fits, f"mask {each.shape} does not fit {scores}")
        require(each.kind in ("bool", "float", "int"), f"mask is `{each.dtype}`")
    return TensorType(dtype, (batch, heads, rows, value.shape[3]))


def attention_log_sum_exp(types: Types, attrs: AttrMap) -> TensorType:
    """Operands of `attention` → f32 `[B, Hq, T]`."""
    return TensorType("f32", attention(types, attrs).shape[:3])


def attention_backward(types: Types, attrs: AttrMap) -> TensorType:
    """q, k, v, gradient and result `[B, Hq, T, E]`, log-sum-exp `[B, Hq, T]`, mask or none → the
    type of q, k or v."""
    require(len(types) in (6, 7), f"{len(types)} operands, expected 6 and perhaps a mask")
    result = attention((*types[:3], *types[6:]), attrs)
    for item, shape in zip(types[3:6], (result.shape, result.shape, result.shape[:3]), strict=True):
        require(item.kind == "float" and item.shape == shape, f"{item} has not the shape {shape}")
    require(types[5].dtype == "f32", f"log-sum-exp is `{types[5].dtype}`, expected `f32`")
    require(attrs["result"] in range(3), f"there is no result {attrs['result']}")
    return types[attrs["result"]]


def scatter_rows(types: Types, attrs: AttrMap) -> TensorType:
    """data `[.., n, ..]`, index and source `[.., m, ..]` → as data; dims of the index may be 1."""
    data, index, source = types
    _same_dtype((data, source))
    axis = attrs["axis"]
    require(index.kind == "int", f"index is `{index.dtype}`, expected an integer")
    require(0 <= axis < data.rank, f"axis {axis} is out of range")
    rest = _replace(data, axis, source.shape[axis : axis + 1])
    require(rest.shape == source.shape, f"source {source.shape} does not fit {data.shape}")
    require(broadcast_shape((index.shape, source.shape)) == source.shape, "index does not fit")
    require(attrs["merge"] in MERGES, f"{attrs['merge']} is none of {', '.join(MERGES)}")
    require(attrs["merge"] == "replace" or data.kind != "bool", "arithmetic of bools")
    rows, distinct = source.shape[axis], attrs["distinct"]
    if isinstance(rows, int) and isinstance(distinct, int):
        require(distinct > 0 and rows % distinct == 0, f"{rows} rows in parts of {distinct}")
    return data


def grouped_matmul(types: Types, attrs: AttrMap) -> TensorType:
    """`[S, K] · [G, K, N] → [S, N]`, or `[M, S] · [S, N] → [G, M, N]`; ends `[G]`, i32 or i64."""
    left, right, ends = types
    dtype = _same_dtype((left, right))
    require(left.kind == "float", f"`{dtype}` is not float")
    require(ends.kind == "int" and ends.rank == 1, f"ends are {ends}")
    require((left.rank, right.rank) in ((2, 3), (2, 2)), f"ranks are {left.rank}, {right.rank}")
    require(left.shape[1] == right.shape[-2], f"K is {left.shape[1]} and {right.shape[-2]}")
    if right.rank == 2:
        return TensorType(dtype, (*ends.shape, left.shape[0], right.shape[1]))
    require(right.shape[:1] == ends.shape, f"{right.shape[0]} matrices, {ends.shape[0]} groups")
    return TensorType(dtype, (left.shape[0], right.shape[2]))


def exchange(types: Types, attrs: AttrMap) -> TensorType:
    """`[1 or ranks, ..]` and i32 `[EXCHANGE_PROGRAMS]` → `[ranks, ..]`, or as the second."""
    data, status = types
    ranks, result = attrs["ranks"], attrs["result"]
    require(ranks > 1, f"{ranks} ranks")
    require(data.rank > 0 and data.shape[0] in (1, ranks), f"{data} has not 1 or {ranks} rows")
    require(status == TensorType("i32", (EXCHANGE_PROGRAMS,)), f"status is {status}")
    require(result in (0, 1), f"there is no result {result}")
    return status if result else data.with_shape((ranks, *data.shape[1:]))


def scan(types: Types, attrs: AttrMap) -> TensorType:
    """Numbers → the same type; i32 where places are wanted."""
    (data,) = types
    kind, axis = attrs["kind"], attrs["axis"]
    require(kind in SCANS, f"{kind} is none of {', '.join(SCANS)}")
    require(0 <= axis < data.rank and data.kind != "bool", f"{data} has no numbers along {axis}")
    return TensorType("i32", data.shape) if kind.endswith("_place") else data


def order_rows(types: Types, attrs: AttrMap) -> TensorType:
    """Numbers `[.., n]` → i32 `[.., wanted]`."""
    (data,) = types
    require(data.rank > 0 and data.kind != "bool", f"{data} has no rows of numbers")
    wanted, extent = attrs["wanted"], data.shape[-1]
    if isinstance(wanted, int) and isinstance(extent, int):
        require(0 <= wanted <= extent, f"{wanted} of {extent} elements")
    return TensorType("i32", (*data.shape[:-1], wanted))


def nth_places(types: Types, attrs: AttrMap) -> TensorType:
    """Numbers `[.., n]`, perhaps ranks i64 `[.., 1]` → i32 `[.., 1]`."""
    require(len(types) in (1, 2), f"{len(types)} operands, expected 1 or 2")
    data, *ranks = types
    order_rows((data,), attrs)
    found = TensorType("i64", (*data.shape[:-1], 1))
    require(ranks in ([], [found]), f"{ranks} are no ranks of the rows of {data}")
    return TensorType("i32", found.shape)


def fourier(types: Types, attrs: AttrMap) -> TensorType:
    """Floats `[2, n]`, real parts `[.., n]` and perhaps imaginary ones, or of a spectrum of reals
    the first `n // 2 + 1` of both → `[.., keep]`."""
    require(len(types) in (2, 3), f"{len(types)} operands, expected 2 or 3")
    turns, re, *im = types
    extent = re.shape[-1] if re.rank else 0
    require(re.kind == "float" and isinstance(extent, int), f"{re} has no rows of a fixed length")
    whole = turns.shape[-1] if turns.rank else 0
    is_half = bool(im) and attrs["is_real"] and isinstance(whole, int) and extent == whole // 2 + 1
    extent = whole if is_half else extent
    require(turns == TensorType(re.dtype, (2, extent)), f"{turns} are not the turns of {re}")
    require(not im or im[0] == re, "the parts differ in type")
    require(attrs["sign"] in (-1, 1) and 0 <= attrs["keep"] <= extent, "no such direction or end")
    require(attrs["result"] in range(2 - attrs["is_real"]), f"no result {attrs['result']}")
    return TensorType(re.dtype, (*re.shape[:-1], attrs["keep"]))


def count_digits(types: Types, attrs: AttrMap) -> TensorType:
    """i64 `[rows, n]` → i32 `[rows, parts, 256]`."""
    (words,) = types
    require(words.rank == 2 and words.dtype == "i64", f"{words} has no rows of words")
    require(0 <= attrs["shift"] < 64 and attrs["length"] > 0, "no digit or no part")
    return TensorType("i32", (words.shape[0], -(-words.shape[1] // attrs["length"]), 256))


def sort_runs(types: Types, attrs: AttrMap) -> TensorType:
    """Words i64 `[rows, n]` → the same type."""
    (words,) = types
    require(words.rank == 2 and words.dtype == "i64", f"{words} has no rows of words")
    require(attrs["length"] > 0 and attrs.get("ways", 2) > 1, "no runs to put in order")
    return words


def sum_digits(types: Types, attrs: AttrMap) -> TensorType:
    """What `count_digits` gives → the same type."""
    (counts,) = types
    require(counts.dtype == "i32" and counts.rank == 3, f"{counts} are not counts of digits")
    require(counts.shape[2] == 256, f"{counts} are not counts of 256 digits")
    return counts


def order_by_digit(types: Types, attrs: AttrMap) -> TensorType:
    """As `count_digits`, and what `sum_digits` gives of that → words as they were given."""
    words, sums = types
    require(sums == count_digits((words,), attrs), f"{sums} are not sums of counts of digits")
    return words


def count_places(types: Types, attrs: AttrMap) -> TensorType:
    """i32 `[outer, n]` and i32 `[outer, m]` → the first."""
    counts, index = types
    fits = counts.rank == index.rank == 2 and counts.shape[0] == index.shape[0]
    require(fits, f"{index} does not fit {counts}")
    require(counts.dtype == index.dtype == "i32", "counts or places are not i32")
    return counts


def sum_runs(types: Types, attrs: AttrMap) -> TensorType:
    """i32 `[rows]`, i32 `[n + 1]` and `[outer, m, inner]` → `[outer, n, inner]`."""
    rows, starts, source = types
    fits = rows.rank == starts.rank == 1 and source.rank == 3
    require(fits, f"rows {rows}, starts {starts}, source {source}")
    require(rows.dtype == starts.dtype == "i32", "rows or starts are not i32")
    return TensorType(source.dtype, (source.shape[0], starts.shape[0] - 1, source.shape[2]))
