"""Decompositions of elementwise ops that torch's tables leave whole: parts of floats (`frexp` and
the like) and fake quantisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
# Float → whole numbers of its width, bits of the fraction, largest exponent, its bias.
PARTS = {
    torch.float32: (torch.int32, 23, 0xFF, 126),
    torch.float64: (torch.int64, 52, 0x7FF, 1022),
}


def _mantissa_and_exponent(data: Tensor) -> tuple[Tensor, Tensor]:
    """m and e with x = m · 2^e and 0.5 <= |m| < 1, read off the bits; x and 0 of 0, infinities and
    what is no number."""
    wide = data if data.dtype in PARTS else data.float()
    whole, fraction, most, bias = PARTS[wide.dtype]
    scale = fraction + 1
    is_small = wide.abs() < torch.finfo(wide.dtype).smallest_normal
    bits = torch.where(is_small, wide * 2.0**scale, wide).view(whole)
    exponent = ((bits >> fraction) & most) - bias - torch.where(is_small, scale, 0)
    mantissa = ((bits & ~(most << fraction)) | (bias << fraction)).view(wide.dtype)
    stays = (wide == 0) | ~wide.isfinite()
    found = torch.where(stays, wide, mantissa).to(data.dtype)
    return found, torch.where(stays, 0, exponent).to(torch.int32)


def _quantised(
    data: Tensor, scale: Tensor, place_of_zero: Tensor, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """x rounded to whole steps within a range, in wide floats; and whether x is within it."""
    steps = (data * (1.0 / scale)).round() + place_of_zero
    is_within = (steps >= low) & (steps <= high)
    return ((steps.clamp(low, high) - place_of_zero) * scale).to(data.dtype), is_within


def _of_tensor(data: Tensor, scale: float, zero: int, low: int, high: int) -> Any:
    number = torch.full((), scale, dtype=torch.float32, device=data.device)
    return _of_tensors(data, number, torch.full_like(number, zero), None, low, high)


def _of_tensors(
    data: Tensor, scale: Tensor, zero: Tensor, is_on: Tensor | None, low: int, high: int
) -> Any:
    wide = data if data.dtype == torch.float64 else data.float()
    found, is_within = _quantised(wide, scale.to(wide.dtype), zero.to(wide.dtype), low, high)
    if is_on is not None:
        found = torch.where(is_on == 1, found, wide)
        is_within = is_within | (is_on != 1)
    return found.to(data.dtype), is_within


def _of_channels(data: Tensor, scale: Tensor, zero: Tensor, axis: int, low: int, high: int) -> Any:
    shape = [1] * data.dim()
    shape[axis] = -1
    return _of_tensors(data, scale.reshape(shape), zero.reshape(shape), None, low, high)


ELEMENTS: Mapping[Any, Callable[..., Any]] = {
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _of_tensors,
    aten.fake_quantize_per_channel_affine_cachemask.default: _of_channels,
    aten.fake_quantize_per_tensor_affine_cachemask.default: _of_tensor,
    aten.frexp.Tensor: _mantissa_and_exponent,
}
