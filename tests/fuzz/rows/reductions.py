"""Reductions, norms, scans, sorts and top-k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fuzz.draw import Draw, Known
from fuzz.program import ANY, FLOATS, INTEGERS, NUMBERS, Ref
from fuzz.rows.row import Op

Arguments = Mapping[str, Any]


def _reduction(name: str, text: str, dtypes: Sequence[str], **more: Any) -> Op:
    """Over some axes."""

    def draw(d: Draw) -> Arguments:
        x = d.pick(dtypes=dtypes, ranks=range(1, 6), may_be_empty=False)
        axes = d.some_of(range(x.rank), 1, 3)
        return {"x": x.ref, "axes": axes, "keep": d.chance(0.4)}

    return Op(name, more.pop("family", "reductions"), text, draw, **more)


def _along(name: str, text: str, dtypes: Sequence[str], **more: Any) -> Op:
    """Along one axis."""

    def draw(d: Draw) -> Arguments:
        x = d.pick(dtypes=dtypes, ranks=range(1, 6), may_be_empty=False)
        return {"x": x.ref, "axis": d.axis(x, 1), "keep": d.chance(0.4), "flag": d.chance(0.5)}

    return Op(name, more.pop("family", "reductions"), text, draw, **more)


def _whole(name: str, text: str, dtypes: Sequence[str], **more: Any) -> Op:
    def draw(d: Draw) -> Arguments:
        return {"x": d.pick(dtypes=dtypes, may_be_empty=False).ref}

    return Op(name, more.pop("family", "reductions"), text, draw, **more)


def _spread(d: Draw) -> Arguments:
    """A variance of at least two elements."""
    x = d.pick(dtypes=("f64", "f32", "f16", "bf16"), ranks=range(1, 5), may_be_empty=False)
    return {"x": x.ref, "axis": d.axis(x, 2), "keep": d.chance(0.5), "correction": d.integer(0, 1)}


def _top_k(d: Draw) -> Arguments:
    x = d.pick(dtypes=NUMBERS, ranks=range(1, 5), may_be_empty=False)
    axis = d.axis(x, 1)
    return {"x": x.ref, "axis": axis, "k": d.integer(1, min(6, d.least(x, axis))),
            "flag": d.chance(0.7)}  # fmt: skip


def _weights(d: Draw, x: Known, extent: int) -> list[Ref]:
    return [d.tensor(x.dtype, (extent,), "normal").ref for _ in range(2)]


def _layer_norm(d: Draw) -> Arguments:
    x = d.pick(dtypes=FLOATS, ranks=range(1, 5), may_be_empty=False,
               where=lambda k: not k.varies(k.rank - 1) and k.shape[-1] > 1)  # fmt: skip
    extent = x.shape[-1]
    weight, bias = _weights(d, x, extent) if d.chance(0.5) else (None, None)
    return {"x": x.ref, "shape": (extent,), "weight": weight, "bias": bias}


def _group_norm(d: Draw) -> Arguments:
    def fits(k: Known) -> bool:
        return not k.varies(1) and min(map(_per_channel, k.shapes)) > 1

    x = d.pick(dtypes=FLOATS, ranks=(3, 4), may_be_empty=False, where=fits)
    groups = d.one_of([n for n in range(1, x.shape[1] + 1) if x.shape[1] % n == 0])
    weight, bias = _weights(d, x, x.shape[1]) if d.chance(0.5) else (None, None)
    return {"x": x.ref, "groups": groups, "weight": weight, "bias": bias}


def _per_channel(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape[2:]:
        count *= extent
    return count


def _batch_norm(d: Draw) -> Arguments:
    x = d.pick(dtypes=("f64", "f32"), ranks=(2, 3, 4), may_be_empty=False,
               where=lambda k: not k.varies(1))  # fmt: skip
    mean = d.tensor(x.dtype, (x.shape[1],), "normal")
    variance = d.tensor(x.dtype, (x.shape[1],), "unit")
    return {"x": x.ref, "mean": mean.ref, "variance": variance.ref}


REDUCTIONS = (
    _reduction("sum", "{x}.sum({axes}, keepdim={keep})", ANY, level="integers", accumulates=True,
               weight=3),
    _reduction("mean", "{x}.mean({axes}, keepdim={keep})", FLOATS, accumulates=True, weight=2,
               sum_text="{x}.sum({axes}, keepdim={keep})"),
    _reduction("amax", "{x}.amax({axes}, keepdim={keep})", ANY, level="values", weight=2),
    _reduction("amin", "{x}.amin({axes}, keepdim={keep})", ANY, level="values"),
    _reduction("logsumexp", "torch.logsumexp({x}, {axes}, keepdim={keep})", FLOATS,
               accumulates=True, degree=0.0),
    _along("prod", "{x}.prod({axis}, keepdim={keep})", NUMBERS, level="integers",
           accumulates=True, degree=float("inf"), weight=0.5),
    _along("argmax", "{x}.argmax({axis}, keepdim={keep})", NUMBERS, level="values"),
    _along("argmin", "{x}.argmin({axis}, keepdim={keep})", NUMBERS, level="values", weight=0.5),
    _along("max along", "{x}.max({axis}, keepdim={keep}).values", ANY, level="values"),
    _along("places of min", "{x}.min({axis}, keepdim={keep}).indices", NUMBERS, level="values",
           weight=0.5),
    _along("any", "{x}.any({axis}, keepdim={keep})", ANY, level="bits"),
    _along("all", "{x}.all({axis}, keepdim={keep})", ANY, level="bits"),
    _whole("sum of all", "{x}.sum()", ANY, level="integers", accumulates=True),
    _whole("mean of all", "{x}.mean()", FLOATS, accumulates=True),
    _whole("max of all", "{x}.max()", ANY, level="values"),
    _whole("count_nonzero", "torch.count_nonzero({x})", ANY, level="bits", weight=0.5),
    Op("var", "reductions", "{x}.var({axis}, correction={correction}, keepdim={keep})", _spread,
       accumulates=True, degree=2.0),
    Op("std", "reductions", "{x}.std({axis}, correction={correction}, keepdim={keep})", _spread,
       accumulates=True, degree=2.0, weight=0.5),
    _along("norm", "torch.linalg.vector_norm({x}, 2, {axis}, keepdim={keep})", FLOATS,
           accumulates=True, degree=2.0),
    _along("sum of sums", "{x}.sum({axis}, dtype=torch.float32)", (*FLOATS, *INTEGERS),
           accumulates=True, weight=0.5),
)  # fmt: skip

NORMS = (
    _along("softmax", "F.softmax({x}, {axis})", FLOATS, family="norms", accumulates=True,
           degree=0.0, weight=3),
    _along("log_softmax", "F.log_softmax({x}, {axis})", FLOATS, family="norms", accumulates=True,
           degree=0.0, cancels=True, slope_cancels=True),
    _along("softmin", "F.softmin({x}, {axis})", FLOATS, family="norms", accumulates=True,
           degree=0.0, weight=0.3),
    _along("normalize", "F.normalize({x}, dim={axis})", FLOATS, family="norms", accumulates=True,
           degree=2.0),
    _along("centred", "{x} - {x}.mean({axis}, keepdim=True)", FLOATS, family="norms",
           accumulates=True, sum_text="{x}.sum({axis}, keepdim=True).expand_as({x})"),
    _along("scaled by its largest", "{x} / ({x}.abs().amax({axis}, keepdim=True) + 0.1)", FLOATS,
           family="norms"),
    _along("glu", "F.glu(torch.cat([{x}, {x}], {axis}), {axis})", FLOATS, family="norms",
           weight=0.5),
    Op("layer_norm", "norms", "F.layer_norm({x}, {shape}, {weight}, {bias})", _layer_norm,
       accumulates=True, degree=2.0, weight=2),
    Op("rms_norm", "norms", "F.rms_norm({x}, {shape}, {weight})", _layer_norm, accumulates=True,
       degree=2.0),
    Op("group_norm", "norms", "F.group_norm({x}, {groups}, {weight}, {bias})", _group_norm,
       accumulates=True, degree=2.0),
    Op("batch_norm", "norms", "F.batch_norm({x}, {mean}.detach(), {variance}.detach() + 0.5)",
       _batch_norm),
)  # fmt: skip

SCANS = (
    _along("cumsum", "{x}.cumsum({axis})", ANY, family="scans", level="integers",
           accumulates=True, weight=3),
    _along("cumprod", "{x}.cumprod({axis})", NUMBERS, family="scans", level="integers",
           accumulates=True, degree=float("inf")),
    _along("cummax", "{x}.cummax({axis}).values", NUMBERS, family="scans", level="values"),
    _along("places of cummax", "{x}.cummax({axis}).indices", NUMBERS, family="scans",
           level="values", weight=0.5),
    _along("cummin", "{x}.cummin({axis}).values", NUMBERS, family="scans", level="values",
           weight=0.5),
    _along("logcumsumexp", "torch.logcumsumexp({x}, {axis})", FLOATS, family="scans",
           accumulates=True, degree=0.0, weight=0.5),
    _along("diff", "torch.diff({x}, dim={axis})", NUMBERS, family="scans", level="integers"),
)  # fmt: skip

SORTS = (
    _along("sort", "torch.sort({x}, dim={axis}, descending={flag}, stable=True).values", NUMBERS,
           family="sorts", level="values", weight=2),
    _along("places of sort",
           "torch.sort({x}, dim={axis}, descending={flag}, stable=True).indices", NUMBERS,
           family="sorts", level="values"),
    _along("argsort", "torch.argsort({x}, dim={axis}, descending={flag}, stable=True)", NUMBERS,
           family="sorts", level="values"),
    Op("topk", "sorts", "torch.topk({x}, {k}, {axis}, largest={flag}).values", _top_k,
       level="values", breaks_ties=True, weight=2),
    Op("kthvalue", "sorts", "torch.kthvalue({x}, {k}, {axis}).values", _top_k, level="values",
       breaks_ties=True, weight=0.5),
    _along("median", "torch.median({x}, {axis}).values", NUMBERS, family="sorts", level="values",
           breaks_ties=True, weight=0.5),
    _along("msort", "torch.sort({x}, {axis}).values.flip({axis})", NUMBERS, family="sorts",
           level="values", breaks_ties=True, weight=0.5),
)  # fmt: skip

ROWS = (*REDUCTIONS, *NORMS, *SCANS, *SORTS)
