"""Gradients of piecewise activations, with the values at NaN of eager's vectorised kernels.

For NaN the vectorised loops of torch's CPU kernels give 0 or NaN, depending on how they compare;
their scalar tails and torch's decompositions give something else. Nearly all elements are handled
by the vectorised loops, so these are followed. Where a piece of a function is constant its gradient
is 0, even if the incoming gradient is not finite: it is selected, not multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
MEAN = 1  # of torch's numbers for reductions


def _computed(data: Tensor) -> Tensor:
    """16-bit floats as eager computes with them."""
    return data if data.dtype == torch.float64 else data.float()


def rounded(number: float, dtype: torch.dtype) -> float:
    """A number as a type has it."""
    _, exponent = math.frexp(number)
    step = math.ldexp(torch.finfo(dtype).eps, exponent - 1)
    return round(number / step) * step


def _hardtanh(gradient: Tensor, data: Tensor, low: float, high: float) -> Tensor:
    return torch.where((data > low) & (data < high), gradient, 0.0)


def _shrink(gradient: Tensor, data: Tensor, size: float) -> Tensor:
    return torch.where((data > size) | (data < -size), gradient, 0.0)


def _hardswish(gradient: Tensor, data: Tensor) -> Tensor:
    """g · (x/3 + ½) between -3 and 3, 0 below, g above."""
    own, x = _computed(gradient), _computed(data)
    above = torch.where(x >= 3.0, own, own * (x / 3.0 + 0.5))
    return torch.where(x <= -3.0, 0.0, above).to(data.dtype)


def _elu(
    gradient: Tensor, alpha: float, scale: float, factor: float, is_result: bool, data: Tensor
) -> Tensor:
    """Of s · x above 0, s · a · (exp(f x) - 1) elsewhere; `data` are x, or the result."""
    own, x = _computed(gradient), _computed(data)
    below = x + alpha * scale if is_result else alpha * scale * torch.exp(x * factor)
    return torch.where(x > 0.0, own * scale, own * factor * below).to(data.dtype)


def _logit(gradient: Tensor, data: Tensor, eps: float | None = None) -> Tensor:
    """g / (x (1 - x)) within the ends, which are numbers of the type; beyond them 0, and NaN where
    there are none."""
    own, x = _computed(gradient), _computed(data)
    is_open = eps is None or eps < 0
    low = 0.0 if eps is None or eps < 0 else rounded(eps, data.dtype)
    high = rounded(1.0 - low, data.dtype)
    slope = own / (x * (1.0 - x))
    outside = float("nan") if is_open else 0.0
    return torch.where((x >= low) & (x <= high), slope, outside).to(data.dtype)


def _smooth_l1(
    gradient: Tensor, data: Tensor, target: Tensor, reduction: int, beta: float
) -> Tensor:
    """g · x / β within β, which what is no number is, else g · sign x, for x the difference."""
    x = _computed(data) - _computed(target)
    own = _computed(gradient) * (1.0 / data.numel() if reduction == MEAN else 1.0)
    return torch.where(x.abs() >= beta, own * torch.sign(x), own * x / beta).to(data.dtype)


def _rrelu(
    data: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """Outside of training the slope is the middle; what is drawn is not ours."""
    if training:
        return NotImplemented
    return aten.leaky_relu(data, (lower + upper) / 2), noise.clone()


def _rrelu_backward(
    gradient: Tensor,
    data: Tensor,
    noise: Tensor,
    lower: float,
    upper: float,
    training: bool,
    is_result: bool,
) -> Any:
    if training:
        return NotImplemented
    return aten.leaky_relu_backward(gradient, data, (lower + upper) / 2, is_result)


def _on_host(row: Callable[..., Any]) -> Callable[..., Any]:
    """A row for tensors on the CPU; elsewhere eager's answers for data that are NaN are others."""

    def called(*given: Any, **named: Any) -> Any:
        is_here = all(each.is_cpu for each in given if isinstance(each, Tensor))
        return row(*given, **named) if is_here else NotImplemented

    return called


_ROWS: Mapping[Any, Callable[..., Any]] = {
    aten.hardtanh_backward.default: _hardtanh,
    aten.hardshrink_backward.default: _shrink,
    aten.softshrink_backward.default: _shrink,
    aten.hardswish_backward.default: _hardswish,
    aten.elu_backward.default: _elu,
    aten.logit_backward.default: _logit,
    aten.smooth_l1_loss_backward.default: _smooth_l1,
    aten.rrelu_with_noise_functional.default: _rrelu,
    aten.rrelu_with_noise_backward.default: _rrelu_backward,
}
GRADIENTS = {op: _on_host(row) for op, row in _ROWS.items()}
