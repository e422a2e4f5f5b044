"""Other traces for ops that torch decomposes by functions of its own before a trace sees them.

This is apart from `decompositions.py` because a process that finds its programs in the cache never
imports that file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch._decomp.decompositions as torch_decompositions
from torch import Tensor
from torch._C import DispatchKey

from aotc.aot.capture.decompositions.composites import COMPOSITES
from aotc.aot.capture.decompositions.replacing import CORRECTED, Replaced, replaced

aten = torch.ops.aten
_torchs_linear = torch_decompositions._upsample_linear
CHANNELS_LAST_PAYS = 16  # channels, of a resize on a GPU, as torch's function has it


def _cumprod_backward(gradient: Tensor, data: Tensor, dim: int, products: Tensor) -> Tensor:
    """Of products y of all elements up to each, with gradients g of them.

    Before a row's first 0: Σ g ∘ y over what follows, divided by the element. Of the first 0: the
    product before it times Σ g ∘ (the product of what follows it), up to the second 0. 0 behind it.
    torch 2.11 traces a loop over the elements instead, some ten ops for each.
    """
    if data.is_complex():
        op = aten.cumprod_backward.default
        key = DispatchKey.CompositeImplicitAutograd
        return op._op_dk(key, gradient, data, dim, products)  # type: ignore[no-any-return]
    if not data.dim():
        return gradient
    zero = data == 0
    zeros = zero.cumsum(dim)
    before, between = zeros == 0, zeros == 1
    first = between & zero
    weighed = torch.where(before, gradient * products, 0.0)
    ahead = weighed.flip(dim).cumsum(dim).flip(dim) / torch.where(before, data, 1.0)
    behind = torch.where(between & ~zero, data, 1.0).cumprod(dim)
    sums = (torch.where(between, behind, 0.0) * gradient).sum(dim, keepdim=True)
    leading = torch.where(before, data, 1.0).prod(dim, keepdim=True)
    found = torch.where(first, sums * leading, 0.0)
    return torch.where(before, ahead, found).to(data.dtype)


def _resized_linearly(
    data: Tensor, output_size: Sequence[Any], align_corners: bool, scales: Sequence[float | None]
) -> Tensor:
    """x₀(1 - a) + x₁a along each of the last axes, x₁ at the place after x₀, as eager computes it.

    torch's function adds a(x₁ - x₀) to x₀: no number where both are the same infinity.
    """
    if not data.is_floating_point():
        return _torchs_linear(data, output_size, align_corners, scales)
    values = data.float() if data.dtype in (torch.float16, torch.bfloat16) else data
    count = len(output_size)
    for axis, (size, scale) in enumerate(zip(output_size, scales, strict=True), data.dim() - count):
        extent = data.shape[axis]
        is_known = isinstance(extent, int) and isinstance(size, int)
        if is_known and extent == size and scale in (None, 1.0):
            values = values + values * 0.0  # both of eager's places are the element's own
            continue
        places = torch.arange(size, device=data.device).to(values.dtype)
        if align_corners:
            places = places * ((extent - 1.0) / (size - 1.0) if size > 1 else 0.0)
        else:
            step = 1.0 / scale if scale is not None and scale > 0 else extent / size
            places = (step * (places + 0.5) - 0.5).clamp(min=0.0)
        first = places.to(torch.int64)
        weight = (places - first).clamp(0.0, 1.0)
        weight = weight.reshape(-1, *[1] * (data.dim() - 1 - axis))
        at: list[Tensor | None] = [None] * axis
        left = aten._unsafe_index(values, [*at, first])
        right = aten._unsafe_index(values, [*at, (first + 1).clamp(max=extent - 1)])
        values = left * (1.0 - weight) + right * weight
    layout = torch._prims_common.suggest_memory_format(data)
    if data.is_cuda and data.shape[1] < CHANNELS_LAST_PAYS:
        layout = torch.contiguous_format
    return values.to(data.dtype).contiguous(memory_format=layout)


def _spectrum(data: Tensor, dims: Sequence[int], normalization: int, is_onesided: bool) -> Tensor:
    """torch's transform, which no gradient goes through."""
    with torch._C._AutoDispatchBelowAutograd():
        return aten._fft_r2c.default(data, dims, normalization, is_onesided)  # type: ignore[no-any-return]


class _OfReals(torch.autograd.Function):
    """A transform of reals whose gradient, where half of the spectrum is given, is one back to
    reals.

    torch's own fills the missing half with zeros, transforms all of it, and takes the real part.
    That of g_k and of its conjugate at the mirrored place are one, so that half of g is enough; the
    ends have no mirrored place.
    """

    @staticmethod
    def forward(
        context: Any, data: Tensor, dims: Sequence[int], normalization: int, is_onesided: bool
    ) -> Tensor:
        context.how = tuple(dims), normalization, data.shape[dims[-1]] if is_onesided else None
        return _spectrum(data, dims, normalization, is_onesided)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        (gradient,) = gradients
        dims, normalization, length = context.how
        if length is None:
            found = aten._fft_c2c.default(gradient, dims, normalization, False).real
            return found, None, None, None
        places = torch.arange(gradient.shape[dims[-1]], device=gradient.device)
        is_end = (places == 0) | (places * 2 == length)
        shape = [1] * gradient.dim()
        shape[dims[-1]] = -1
        share = torch.where(is_end, 1.0, 0.5).to(gradient.dtype.to_real()).reshape(shape)
        found = aten._fft_c2r.default(gradient * share, dims, normalization, length)
        return found, None, None, None


def _of_reals(data: Tensor, dims: Sequence[int], normalization: int, is_onesided: bool) -> Tensor:
    if not data.requires_grad or not dims:
        return _spectrum(data, dims, normalization, is_onesided)
    return _OfReals.apply(data, dims, normalization, is_onesided)  # type: ignore[no-any-return]


# Op → dispatch key, and what stands there while a graph is traced in place of torch's own function.
TRACED_OTHERWISE: Replaced = {
    # Whole: torch's Python functions differentiate them by parts, by products with 0.
    aten.hardshrink.default: (DispatchKey.Autograd, None),
    aten.softshrink.default: (DispatchKey.Autograd, None),
    aten.cumprod_backward.default: (DispatchKey.CompositeImplicitAutograd, _cumprod_backward),
    aten._fft_r2c.default: (DispatchKey.Autograd, _of_reals),
    **CORRECTED,
    **COMPOSITES,
}


@contextmanager
def traced_otherwise() -> Iterator[None]:
    """Inside, ops of `TRACED_OTHERWISE` are traced as their rows say, linear resizes as eager
    computes them."""
    torch_decompositions._upsample_linear = _resized_linearly
    try:
        with replaced(TRACED_OTHERWISE):
            yield
    finally:
        torch_decompositions._upsample_linear = _torchs_linear
