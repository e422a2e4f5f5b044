"""Products, convolutions, pooling, resize and attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fuzz.draw import Draw, Known, NoDraw
from fuzz.program import FLOATS, INTEGERS, Dtype
from fuzz.rows.row import Op

Arguments = Mapping[str, Any]
MOST_CHANNELS = 48
MOST_SCORES = 1 << 21  # of attention: eager is run some thirty times for the judge


def _matrix(d: Draw, ranks: Sequence[int], dtypes: Sequence[str] = FLOATS) -> Known:
    return d.pick(dtypes=dtypes, ranks=ranks, may_be_empty=d.chance(0.05))


def _columns(d: Draw) -> int:
    return d.one_of((1, 2, 3, 5, 7, 8, 16, 17, 31, 33))


def _extents(d: Draw, x: Known) -> tuple[int | str, ...]:
    shape = d.shape_of(x)
    if shape is None:
        raise NoDraw
    return shape


def mm(d: Draw) -> Arguments:
    x = _matrix(d, (2,))
    y = d.tensor(x.dtype, (_extents(d, x)[1], _columns(d)))
    return {"x": x.ref, "y": y.ref}


def mm_of_two(d: Draw) -> Arguments:
    """A product of two values of the program, one of them transposed."""
    x = _matrix(d, (2, 3, 4))
    y = d.matching(x, (x.dtype,), may_broadcast=False)
    return {"x": x.ref, "y": y.ref}


def mm_with_batches(d: Draw) -> Arguments:
    x = _matrix(d, (3, 4))
    shape = _extents(d, x)
    batch = shape[:-2] if d.chance(0.6) else (1,) * d.integer(0, x.rank - 2)
    return {"x": x.ref, "y": d.tensor(x.dtype, (*batch, shape[-1], _columns(d))).ref}


def mm_of_integers(d: Draw) -> Arguments:
    x = _matrix(d, (2,), INTEGERS)
    y = d.tensor(x.dtype, (_extents(d, x)[1], _columns(d)), "small")
    return {"x": x.ref, "y": y.ref}


def mm_of_bytes(d: Draw) -> Arguments:
    x = _matrix(d, (2,), ("i8",))
    y = d.tensor("i8", (_extents(d, x)[1], _columns(d)))
    return {"x": x.ref, "y": y.ref, "wide": Dtype(d.one_of(("i32", "i64")))}


def mv(d: Draw) -> Arguments:
    x = _matrix(d, (2,))
    return {"x": x.ref, "y": d.tensor(x.dtype, (_extents(d, x)[1],)).ref}


def linear(d: Draw) -> Arguments:
    x = _matrix(d, (1, 2, 3, 4))
    columns = _columns(d)
    weight = d.tensor(x.dtype, (columns, _extents(d, x)[-1]), "normal")
    bias = d.tensor(x.dtype, (columns,), "normal").ref if d.chance(0.6) else None
    return {"x": x.ref, "weight": weight.ref, "bias": bias}


def addmm(d: Draw) -> Arguments:
    x = _matrix(d, (2,))
    rows, inner = _extents(d, x)
    columns = _columns(d)
    y = d.tensor(x.dtype, (inner, columns), "normal")
    shape = d.one_of(((columns,), (rows, columns), (1, columns)))
    z = d.tensor(x.dtype, shape, "normal")
    return {"x": x.ref, "y": y.ref, "z": z.ref, "beta": d.number(), "alpha": d.number()}


def outer(d: Draw) -> Arguments:
    x = _matrix(d, (1,))
    return {"x": x.ref, "y": d.tensor(x.dtype, (_columns(d),)).ref}


def einsum(d: Draw) -> Arguments:
    """Some equations over a value of rank 2 or 3 and a new one."""
    x = _matrix(d, (2, 3))
    shape = _extents(d, x)
    columns = _columns(d)
    if x.rank == 2:
        equation, own = d.one_of((
            ("ij,jk->ik", (shape[1], columns)),
            ("ij,ik->kj", (shape[0], columns)),
            ("ij,j->i", (shape[1],)),
            ("ij,ij->i", shape),
            ("ij,k->kji", (columns,)),
            ("ij,kj->ki", (columns, shape[1])),
        ))  # fmt: skip
    else:
        equation, own = d.one_of((
            ("bij,bjk->bik", (shape[0], shape[2], columns)),
            ("bij,kj->bki", (columns, shape[2])),
            ("bij,bkj->bk", (shape[0], columns, shape[2])),
            ("bij,bij->b", shape),
            ("bij,j->ib", (shape[2],)),
        ))  # fmt: skip
    return {"x": x.ref, "y": d.tensor(x.dtype, own).ref, "equation": equation}


def _pictures(d: Draw, rank: int, dtypes: Sequence[str] = FLOATS) -> Known:
    """A batch of channels with `rank` axes of space."""

    def fits(k: Known) -> bool:
        return not k.varies(1) and k.shape[1] <= MOST_CHANNELS

    found = [k for k in d.pool.values() if k.dtype in dtypes and k.rank == rank + 2 and fits(k)]
    found = [k for k in found if k.has_elements()]
    if found and d.chance(0.8):
        return d.one_of(found)
    space: list[int | str] = [d.one_of((3, 4, 5, 7, 8, 9, 11, 14, 16)) for _ in range(rank)]
    dims = list(d.profile.dims)
    batch: int | str = d.integer(1, 3)
    if dims:
        place = d.integer(0, rank)
        if place < rank:
            space[place] = dims[0]
        else:
            batch = dims[0]
    return d.tensor(d.dtype(dtypes), (batch, d.one_of((1, 2, 3, 4, 6, 8, 16)), *space), "normal")


def _convolution(rank: int, is_transposed: bool) -> Any:
    def draw(d: Draw) -> Arguments:
        x = _pictures(d, rank)
        channels = x.shape[1]
        groups = d.one_of([n for n in (1, 1, 1, 2, 3, 4, channels) if channels % n == 0])
        results = groups * d.one_of((1, 1, 2, 3, 5))
        stride, dilation = d.one_of((1, 1, 1, 2, 3)), d.one_of((1, 1, 1, 2))
        kernel = [d.one_of((1, 2, 3, 3, 5)) for _ in range(rank)]
        padding = d.integer(0, 2)
        pair = (channels, results // groups) if is_transposed else (results, channels // groups)
        weight = d.tensor(x.dtype, (*pair, *kernel), "normal")
        bias = d.tensor(x.dtype, (results,), "normal").ref if d.chance(0.5) else None
        found = {"x": x.ref, "weight": weight.ref, "bias": bias, "stride": stride,
                 "padding": padding, "dilation": dilation, "groups": groups}  # fmt: skip
        if is_transposed:
            found["output_padding"] = d.integer(0, max(stride, dilation) - 1)
        return found

    return draw


def has_places(
    x: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, dilation: int,
    output_padding: int, **rest: Any,
) -> bool:  # fmt: skip
    """Transposed convolutions without results are empty in some types and refused in others."""
    sizes = zip(x.shape[2:], weight.shape[2:], strict=True)
    ends = ((own - 1) * stride + dilation * (width - 1) + output_padding for own, width in sizes)
    return all(end >= 2 * padding for end in ends)


def _pooling(rank: int, dtypes: Sequence[str] = FLOATS) -> Any:
    def draw(d: Draw) -> Arguments:
        x = _pictures(d, rank, dtypes)
        kernel = d.integer(1, 3)
        return {"x": x.ref, "kernel": kernel, "stride": d.integer(1, 3),
                "padding": d.integer(0, kernel // 2), "ceil": d.chance(0.3),
                "dilation": d.one_of((1, 1, 2)), "counts": d.chance(0.5)}  # fmt: skip

    return draw


def _adaptive(rank: int) -> Any:
    def draw(d: Draw) -> Arguments:
        return {"x": _pictures(d, rank).ref, "size": [d.integer(1, 6) for _ in range(rank)]}

    return draw


def _resize(rank: int, modes: Sequence[str]) -> Any:
    def draw(d: Draw) -> Arguments:
        x = _pictures(d, rank, ("f32", "f64", "bf16", "f16"))
        mode = d.one_of(modes)
        has_corners = mode not in ("nearest", "nearest-exact", "area")
        if d.chance(0.5):
            size, factor = [d.integer(1, 12) for _ in range(rank)], None
        else:
            size, factor = None, d.one_of((2.0, 0.5, 1.5, 3.0))
        return {"x": x.ref, "size": size, "factor": factor, "mode": mode,
                "corners": d.chance(0.4) if has_corners else None}  # fmt: skip

    return draw


def fold(d: Draw) -> Arguments:
    x = _pictures(d, 2)
    return {"x": x.ref, "kernel": d.integer(1, 3), "padding": d.integer(0, 1),
            "stride": d.integer(1, 2), "dilation": 1}  # fmt: skip


def attention(d: Draw) -> Arguments:
    """Queries of the program with keys and values of other lengths, heads, masks."""
    q = d.pick(dtypes=("f32", "f16", "bf16", "f64"), ranks=(3, 4), may_be_empty=False,
               where=lambda k: k.shape[-1] <= 64 and not k.varies(k.rank - 1))  # fmt: skip
    shape = list(_extents(d, q))
    length = d.one_of((1, 2, 3, 7, 16, 17, 33))
    is_causal = d.chance(0.3)
    keys: list[int | str] = [*shape[:-2], length, shape[-1]]
    width = shape[-1] if d.chance(0.7) else d.integer(1, 16)
    k = d.tensor(q.dtype, keys, "normal")
    v = d.tensor(q.dtype, [*keys[:-1], width], "normal")
    mask = None
    if not is_causal and d.chance(0.4):
        own: list[int | str] = [shape[-2], length]
        mask = d.tensor(d.one_of(("bool", q.dtype)), own).ref
    scale = d.one_of((None, None, 0.5, 1.0))
    return {"q": q.ref, "k": k.ref, "v": v.ref, "mask": mask, "causal": is_causal, "scale": scale}


def has_value_of_each_key(k: torch.Tensor, v: torch.Tensor, **rest: Any) -> bool:
    """torch 2.11's gradient of attention writes beside its memory where their numbers differ."""
    return k.shape[:-1] == v.shape[:-1]


def self_attention(d: Draw) -> Arguments:
    q = d.pick(dtypes=("f32", "f16", "bf16"), ranks=(3, 4), may_be_empty=False,
               where=lambda k: k.shape[-1] <= 64 and not k.varies(k.rank - 1)
               and math.prod(k.shape[:-1]) * k.shape[-2] <= MOST_SCORES)  # fmt: skip
    return {"q": q.ref, "causal": d.chance(0.5)}


def embedding(d: Draw) -> Arguments:
    x = d.pick(dtypes=INTEGERS, ranks=(1, 2, 3))
    rows, columns = d.integer(1, 20), _columns(d)
    table = d.tensor(d.dtype(("f32", "f16", "bf16")), (rows, columns), "normal")
    return {"x": x.ref, "table": table.ref, "rows": rows}


def one_hot(d: Draw) -> Arguments:
    return {"x": d.pick(dtypes=INTEGERS, ranks=(0, 1, 2)).ref, "count": d.integer(1, 9)}


def cross_entropy(d: Draw) -> Arguments:
    x = d.pick(dtypes=("f32", "f64"), ranks=(2,), may_be_empty=False)
    labels = d.tensor("i64", (_extents(d, x)[0],), "small")
    return {"x": x.ref, "labels": labels.ref, "count": d.extent(x, 1),
            "how": d.one_of(("mean", "sum", "none"))}  # fmt: skip


def loss(d: Draw) -> Arguments:
    x = d.pick(dtypes=("f32", "f64", "bf16"), ranks=(1, 2, 3), may_be_empty=False)
    y = d.matching(x, (x.dtype,), may_broadcast=False)
    return {"x": x.ref, "y": y.ref, "how": d.one_of(("mean", "sum", "none"))}


def distances(d: Draw) -> Arguments:
    x = d.pick(dtypes=("f32", "f64"), ranks=(2, 3), may_be_empty=False)
    y = d.tensor(x.dtype, (*_extents(d, x)[:-2], _columns(d), _extents(d, x)[-1]), "normal")
    return {"x": x.ref, "y": y.ref}


def additions(d: Draw) -> Arguments:
    """Rows added at places that may repeat."""
    x = d.pick(dtypes=("f32", "f64", *INTEGERS), ranks=(1, 2, 3), may_be_empty=False)
    axis = d.axis(x, 1)
    count = d.integer(1, 7)
    shape = list(_extents(d, x))
    shape[axis] = count
    y = d.tensor(x.dtype, shape)
    at = d.tensor("i64", (count,), "small")
    return {"x": x.ref, "axis": axis, "at": at.ref, "y": y.ref, "bound": d.extent(x, axis)}


def scatter_additions(d: Draw) -> Arguments:
    x = d.pick(dtypes=("f32", "f64", *INTEGERS), ranks=(1, 2, 3), may_be_empty=False)
    axis = d.axis(x, 1)
    y = d.matching(x, (x.dtype,), may_broadcast=False)
    at = d.matching(x, ("i64",), may_broadcast=False)
    how = d.one_of(("sum", "amax", "amin", "mean"))
    return {"x": x.ref, "axis": axis, "at": at.ref, "y": y.ref, "bound": d.extent(x, axis),
            "how": how, "self": d.chance(0.5)}  # fmt: skip


def _op(name: str, family: str, text: str, draw: Any, **more: Any) -> Op:
    return Op(name, family, text, draw, **{"accumulates": True, **more})


CONVOLUTION = ("F.conv{n}d({{x}}, {{weight}}, {{bias}}, {{stride}}, {{padding}}, {{dilation}}, "
               "{{groups}})")  # fmt: skip
TRANSPOSED = ("F.conv_transpose{n}d({{x}}, {{weight}}, {{bias}}, {{stride}}, {{padding}}, "
              "{{output_padding}}, {{groups}}, {{dilation}})")  # fmt: skip
LARGEST = "F.max_pool{n}d({{x}}, {{kernel}}, {{stride}}, {{padding}}, {{dilation}}, {{ceil}})"
AVERAGE = "F.avg_pool{n}d({{x}}, {{kernel}}, {{stride}}, {{padding}}, {{ceil}}, {{counts}})"
RESIZE = ("F.interpolate({x}, size={size}, scale_factor={factor}, mode={mode}, "
          "align_corners={corners})")  # fmt: skip
ATTENTION = ("F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={mask}, "
             "is_causal={causal}, scale={scale})")  # fmt: skip
MODES = {1: ("nearest", "linear", "area"), 2: ("nearest", "nearest-exact", "bilinear", "bicubic"),
         3: ("nearest", "trilinear")}  # fmt: skip

ROWS = (
    _op("mm", "products", "{x} @ {y}", mm, weight=2),
    _op("matmul of two", "products", "{x} @ {y}.transpose(-1, -2)", mm_of_two, weight=2),
    _op("matmul with batches", "products", "torch.matmul({x}, {y})", mm_with_batches, weight=2),
    _op("mm of integers", "products", "{x} @ {y}", mm_of_integers, weight=0.3, level="integers"),
    _op("mm of bytes", "products", "{x}.to({wide}) @ {y}.to({wide})", mm_of_bytes,
        weight=1, level="integers"),
    _op("mv", "products", "torch.mv({x}, {y})", mv),
    _op("linear", "products", "F.linear({x}, {weight}, {bias})", linear, weight=3),
    _op("addmm", "products", "torch.addmm({z}, {x}, {y}, beta={beta}, alpha={alpha})", addmm),
    _op("outer", "products", "torch.outer({x}, {y})", outer, weight=0.5, accumulates=False),
    _op("einsum", "products", "torch.einsum({equation}, {x}, {y})", einsum, weight=3),
    _op("cdist", "products", "torch.cdist({x}, {y})", distances, weight=0.5, degree=2.0),
    *(
        _op(f"conv{n}d", "convolutions", CONVOLUTION.format(n=n), _convolution(n, False),
            weight=(2, 4, 0.5)[n - 1])
        for n in (1, 2, 3)
    ),
    *(
        _op(f"conv_transpose{n}d", "convolutions", TRANSPOSED.format(n=n), _convolution(n, True),
            weight=(1, 2)[n - 1], is_legal=has_places)
        for n in (1, 2)
    ),
    *(
        _op(f"max_pool{n}d", "pooling", LARGEST.format(n=n), _pooling(n), level="values",
            accumulates=False)
        for n in (1, 2, 3)
    ),
    *(_op(f"avg_pool{n}d", "pooling", AVERAGE.format(n=n), _pooling(n)) for n in (1, 2, 3)),
    *(
        _op(f"adaptive_avg_pool{n}d", "pooling", f"F.adaptive_avg_pool{n}d({{x}}, {{size}})",
            _adaptive(n))
        for n in (1, 2)
    ),
    *(
        _op(f"adaptive_max_pool{n}d", "pooling", f"F.adaptive_max_pool{n}d({{x}}, {{size}})",
            _adaptive(n), level="values", accumulates=False)
        for n in (1, 2)
    ),
    *(
        # A place between two elements rounds too: by as much as they differ, not as the result.
        _op(f"resize of {n} axes", "pooling", RESIZE, _resize(n, modes), weight=(1, 3, 0.5)[n - 1],
            is_of_norm=True)
        for n, modes in MODES.items()
    ),
    _op("im2col", "pooling",
        "F.unfold({x}, {kernel}, {dilation}, {padding}, {stride})", fold, level="bits",
        accumulates=False),
    _op("attention", "attention", ATTENTION, attention, weight=3, is_legal=has_value_of_each_key),
    _op("attention to itself", "attention",
        "F.scaled_dot_product_attention({q}, {q}, {q}, is_causal={causal})", self_attention,
        degree=2.0),
    _op("embedding", "lookups", "F.embedding({x}.long().remainder({rows}), {table})", embedding,
        level="bits", accumulates=False),
    _op("one_hot", "lookups", "F.one_hot({x}.long().remainder({count}), {count})", one_hot,
        level="bits", accumulates=False),
    _op("cross_entropy", "lookups",
        "F.cross_entropy({x}, {labels}.remainder({count}), reduction={how})", cross_entropy,
        degree=0.0, cancels=True),
    _op("mse_loss", "lookups", "F.mse_loss({x}, {y}, reduction={how})", loss, weight=0.5,
        degree=2.0),
    _op("smooth_l1_loss", "lookups", "F.smooth_l1_loss({x}, {y}, reduction={how})", loss,
        weight=0.5),
    _op("index_add", "lookups", "torch.index_add({x}, {axis}, {at}.remainder({bound}), {y})",
        additions, level="integers"),
    _op("scatter_add", "lookups",
        "torch.scatter_add({x}, {axis}, {at}.remainder({bound}), {y})", scatter_additions,
        level="integers"),
    _op("scatter_reduce", "lookups",
        "torch.scatter_reduce({x}, {axis}, {at}.remainder({bound}), {y}, {how}, "
        "include_self={self})", scatter_additions, level="integers", weight=0.5),
)  # fmt: skip
