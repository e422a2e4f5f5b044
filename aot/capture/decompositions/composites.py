"""Composite ops whose C++ implementation reads tensor values (`item()`), as arithmetic that does
not.

A trace uses these instead (`replacing.py`): covariances, segment reductions, and `bincount` of
integers below a known bound.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey

from aotc.aot.capture.decompositions.alignments import ALIGNED, ALIGNMENTS
from aotc.aot.capture.decompositions.replacing import CORRECTED, Replaced

aten = torch.ops.aten
COUNTED = "a number given to `bincount` is not below `minlength`"
REPEATED = "the numbers given to `repeat_interleave` are not those of `output_size` elements"
MANY_CLASSES = "how many classes `one_hot` has depends on data"
SEGMENTED = "the lengths given to `segment_reduce` are not those of parts of the whole dim"
# Reduction of segments → the same of `scatter_reduce`, and what an empty one gives.
REDUCTIONS = {
    "sum": ("sum", 0.0), "mean": ("sum", 0.0), "prod": ("prod", 1.0),
    "max": ("amax", -math.inf), "min": ("amin", math.inf),
}  # fmt: skip


def _covariance(
    data: Tensor, correction: int = 1, fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Σ w (x - m)(y - m)ᴴ / n of rows x and y with means m, over columns with weights w.

    n is Σ w less what is corrected for: of weights that are no counts the share Σ w a / Σ w.
    """
    rows = data.reshape(1, -1) if data.dim() < 2 else data
    rows = rows if rows.is_floating_point() or rows.is_complex() else rows.float()
    weights = fweights
    if aweights is not None:
        weights = aweights if weights is None else weights * aweights
    if weights is None:
        total: Any = rows.shape[1]
        away = rows - rows.mean(1, keepdim=True)
        weighed = away
    else:
        weights = weights.to(rows.dtype)
        total = weights.sum()
        away = rows - (rows * weights).sum(1, keepdim=True) / total
        weighed = away * weights
    counted = total
    if aweights is not None and correction:
        assert weights is not None
        counted = total - correction * (weights * aweights).sum() / total
    elif correction:
        counted = total - correction
    if isinstance(counted, Tensor):
        counted = counted.real.clamp(min=0)
    elif isinstance(counted, int):
        counted = max(counted, 0)
    found = weighed @ away.mH
    return (found / counted).squeeze() if data.dim() < 2 else found / counted


def _correlation(data: Tensor) -> Tensor:
    """Covariances by the roots of both variances, whose parts are within -1 and 1."""
    found = _covariance(data)
    if not found.dim():
        return found / found
    roots = found.diagonal().real.sqrt()
    found = found / roots.unsqueeze(1) / roots.unsqueeze(0)
    if found.is_complex():
        return torch.complex(found.real.clamp(-1, 1), found.imag.clamp(-1, 1))
    return found.clamp(-1, 1)


def _of_segments(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: Any = None,
) -> Tensor:  # fmt: skip
    """One reduction of each of the segments that a dim is cut into; those before the first one's
    begin and beyond the last one's end are in none. Lengths may have dims before the axis, as the
    data have."""
    kind, empty = REDUCTIONS[reduce]
    if offsets is None:
        torch._check(lengths is not None, lambda: "segments need lengths or offsets")
        assert lengths is not None
        if not unsafe:
            is_whole = lengths.sum(-1) == data.shape[axis]
            aten._assert_async.msg(((lengths >= 0).all(-1) & is_whole).all(), SEGMENTED)
        offsets = torch.nn.functional.pad(lengths.cumsum(-1), (1, 0))
    sizes = offsets.diff(dim=-1)
    axis = axis % data.dim()
    count, extent = sizes.shape[-1], data.shape[axis]
    places = torch.arange(extent, device=data.device, dtype=offsets.dtype)
    places = places.expand(*data.shape[:axis], extent).contiguous()
    of_place = torch.searchsorted(offsets.narrow(-1, 1, count).contiguous(), places, right=True)
    of_place = torch.where(places < offsets.narrow(-1, 0, 1), count, of_place)
    rest = (1,) * (data.dim() - 1 - axis)
    whole = list(data.shape)
    whole[axis] = count + 1
    start = data.new_full(whole, empty if initial is None else initial)
    at = of_place.reshape(*of_place.shape, *rest).expand(data.shape)
    found = start.scatter_reduce(axis, at, data, kind).narrow(axis, 0, count).contiguous()
    if reduce != "mean":
        return found
    sizes = sizes.reshape(*sizes.shape, *rest)
    mean = found / sizes.clamp(min=1).to(data.dtype)
    return torch.where(sizes > 0, mean, math.nan if initial is None else initial)


def _counts(data: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number below `minlength` stands in the data; a larger one is an error of the
    call, where torch gives a longer result."""
    if not minlength:
        # It has no kernel of all devices to be asked for.
        with torch._C._AutoDispatchBelowAutograd():
            return aten.bincount.default(data, weights, minlength)
    aten._assert_async.msg((data < minlength).all(), COUNTED)
    places = data.long()
    if weights is None:
        return places.new_zeros(minlength).scatter_add(0, places, torch.ones_like(places))
    kept = weights if weights.dtype == torch.float32 else weights.double()
    return kept.new_zeros(minlength).scatter_add(0, places, kept)


def _classes(data: Tensor, count: int = -1) -> Tensor:
    if isinstance(count, int) and count < 0:
        raise RuntimeError(MANY_CLASSES)
    key = DispatchKey.CompositeImplicitAutograd
    return aten.one_hot.default._op_dk(key, data, count)  # type: ignore[no-any-return]


def _repeated(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    """The places of elements of which each comes as often as its number says."""
    if output_size is None:
        return NotImplemented  # its shape depends on data
    ends = repeats.cumsum(0)
    is_whole = (repeats >= 0).all() & (repeats.sum() == output_size)
    aten._assert_async.msg(is_whole, REPEATED)
    places = torch.arange(output_size, device=repeats.device)
    return torch.searchsorted(ends, places, right=True).to(repeats.dtype)


COMPOSITES: Replaced = {
    aten.corrcoef.default: (DispatchKey.CompositeImplicitAutograd, _correlation),
    aten.cov.default: (DispatchKey.CompositeImplicitAutograd, _covariance),
    aten.segment_reduce.default: (DispatchKey.Autograd, _of_segments),
}
# What an exported program has besides: torch.compile cuts its graphs where a size depends on data.
OF_EXPORT: Replaced = {
    **CORRECTED,
    **COMPOSITES,
    **ALIGNED,
    aten.bincount.default: (DispatchKey.Autograd, _counts),
    aten.one_hot.default: (DispatchKey.CompositeImplicitAutograd, _classes),
}
# Of an exported program, which keeps them whole until it is taken apart.
TAKEN_APART = {**ALIGNMENTS, aten.repeat_interleave.Tensor: _repeated}
