"""Layer norm and the linear layer behind it as one product: rows are normalised as they are read.
Of 16 bits on CUDA they are a norm and a product of cuBLAS.

Means and scales of the rows come from a pass of their own over x. The backward pass makes the
normalised rows again, and is layer norm's and the product's.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from aotc.aot.errors import KernelShapeInvalid
from aotc.kernels.library import dropout as drops
from aotc.kernels.library.checks import check_floats, check_shape
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.layouts import rows_of
from aotc.kernels.library.normalization import _NORM, _NORM_BACKWARD
from aotc.kernels.library.pointwise import ACTIVATIONS, activated
from aotc.kernels.library.products import (
    Around,
    _check_linear,
    _is_differentiated,
    flattened,
    is_cublas,
    linear_by_cublas,
    linear_gradients,
    multiply,
)
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import row_tile


@triton.jit
def statistics_kernel(
    x, means, scales, count, length, x_stride, EPS: tl.constexpr, ACC: tl.constexpr,
    WHOLE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Mean, and 1 / sqrt(variance + EPS), of each row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, COLUMNS)[None, :]
    x += row * x_stride
    sums = tl.zeros((ROWS, COLUMNS), ACC)
    for start in range(0, 1 if WHOLE else length, COLUMNS):
        mask = (row < count) & (start + lane < length)
        sums += tl.load(x + start + lane, mask=mask, other=0.0).to(ACC)
    mean = tl.sum(sums, 1, keep_dims=True) / length
    sums = tl.zeros((ROWS, COLUMNS), ACC)
    for start in range(0, 1 if WHOLE else length, COLUMNS):
        mask = (row < count) & (start + lane < length)
        value = tl.load(x + start + lane, mask=mask, other=0.0).to(ACC)
        value = tl.where(mask, value - mean, 0.0)
        sums += value * value
    scale = 1.0 / tl.sqrt(tl.sum(sums, 1, keep_dims=True) / length + tl.full((), EPS, ACC))
    tl.store(means + row, mean, mask=row < count)
    tl.store(scales + row, scale, mask=row < count)


def layer_norm_linear(
    x: Tensor,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    weight: Tensor,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    activation: str = "none",
) -> Tensor:
    """activation(layer_norm(x) @ weightᵀ + bias) with the norm in the product's prologue; of f16
    and bf16 on CUDA by a norm, cuBLAS, and a kernel for the activation.

    x: [..., K]; norm_weight, norm_bias: [K]; weight: [N, K]; bias: [N]; floats of one type, any
    strides; activation as of `linear`. Returns [..., N]. Normalised rows are rounded to x's type
    as they are multiplied, and not kept for the backward pass.
    Raises KernelDtypeUnsupported, KernelShapeInvalid, KernelDeviceInvalid and KernelValueInvalid.
    """
    function = "layer_norm_linear"
    return _checked(
        function, x, norm_weight, norm_bias, weight, bias, eps, activation, 0.0, None
    )  # fmt: skip


def layer_norm_linear_gelu_dropout(
    x: Tensor,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    weight: Tensor,
    bias: Tensor | None = None,
    p: float = 0.5,
    training: bool = True,
    seed: int | Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """dropout(gelu(layer_norm(x) @ weightᵀ + bias)), the norm, gelu and dropout inside the product.

    Tensors as of `layer_norm_linear`; p, training and seed, and the elements that are dropped, as
    of `dropout`. Raises as both.
    """
    function = "layer_norm_linear_gelu_dropout"
    drops.check_share(function, p)
    number = drops.seed_of(function, x, p, seed) if training else None
    return _checked(
        function, x, norm_weight, norm_bias, weight, bias, eps, "gelu", p, number
    )  # fmt: skip


def _checked(
    function: str, x: Tensor, gamma: Tensor | None, beta: Tensor | None, weight: Tensor,
    bias: Tensor | None, eps: float, activation: str, p: float, seed: Tensor | None,
) -> Tensor:  # fmt: skip
    check_floats(function, x=x, norm_weight=gamma, norm_bias=beta, weight=weight, bias=bias)
    _check_linear(function, x, weight, bias, activation)
    if not x.shape[-1]:
        raise KernelShapeInvalid(
            function=function, argument="x", found=list(x.shape), expected="rows of one or more"
        )
    check_shape(function, "norm_weight", gamma, x.shape[-1:])
    check_shape(function, "norm_bias", beta, x.shape[-1:])
    is_kept = activation != "none" and _is_differentiated(x, gamma, beta, weight, bias)
    flat = flattened(x)
    result: Tensor = _NORM_LINEAR(
        flat, gamma, beta, weight, bias, seed, eps, activation, p, is_kept
    )[0]
    return result.reshape(*x.shape[:-1], weight.shape[0])


def _run(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, weight: Tensor, bias: Tensor | None,
    seed: Tensor | None, eps: float, activation: str, p: float, is_kept: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    if is_cublas(x):
        return _run_apart(x, gamma, beta, weight, bias, seed, eps, activation, p, is_kept)
    out, pre, means, scales = _fake(x, gamma, beta, weight, bias, seed, eps, activation, p, is_kept)
    rows = rows_of(x, 1)
    tile = row_tile(x.device, rows, "layer norm")
    launch(
        statistics_kernel, tile.grid(rows), rows.data, means, scales,
        rows.count, rows.length, rows.outer_stride, EPS=eps, ACC=accumulator(x), **tile.constants,
    )  # fmt: skip
    around = Around(bias, activation, pre if is_kept else None, means, scales, gamma, beta, p, seed)
    multiply(x, weight.t(), out, around)
    return out, pre, means, scales


def _run_apart(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, weight: Tensor, bias: Tensor | None,
    seed: Tensor | None, eps: float, activation: str, p: float, is_kept: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The same by a norm, cuBLAS, and kernels for the activation and for what is dropped."""
    rows = x.shape[0]
    normed, means, scales = _NORM.run(x, gamma, beta, rows, 1, 1, eps, True)
    pre = linear_by_cublas(normed, weight, bias)
    out = pre if activation == "none" else activated(pre, activation)
    if seed is not None:
        out = drops.dropped_out(out, p, seed)
    kept = pre if is_kept else x.new_empty((0,))
    return out, kept, means.reshape(rows, 1), scales.reshape(rows, 1)


def _fake(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, weight: Tensor, bias: Tensor | None,
    seed: Tensor | None, eps: float, activation: str, p: float, is_kept: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    shape = (x.shape[0], weight.shape[0])
    means, scales = (x.new_empty((x.shape[0], 1), dtype=wide) for _ in range(2))
    return x.new_empty(shape), x.new_empty(shape if is_kept else (0,)), means, scales


def _meaning(
    x: Tensor, gamma: Tensor | None, beta: Tensor | None, weight: Tensor, bias: Tensor | None,
    seed: Tensor | None, eps: float, activation: str, p: float, is_kept: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    value = widened(x)
    mean = value.mean(1, keepdim=True)
    scale = torch.rsqrt((value - mean).square().mean(1, keepdim=True) + eps)
    value = (value - mean) * scale
    value = value if gamma is None else value * widened(gamma)
    value = value if beta is None else value + widened(beta)
    pre = functional.linear(value.to(x.dtype), weight, bias)
    out = widened(pre)
    out = out if activation == "none" else ACTIVATIONS[activation].meaning(out)
    if seed is not None:
        out = drops._meaning(out, p, seed)
    return out.to(x.dtype), pre.clone() if is_kept else x.new_empty((0,)), mean, scale


_NORM_LINEAR = define(
    "norm_linear(Tensor x, Tensor? gamma, Tensor? beta, Tensor weight, Tensor? bias, "
    "Tensor? seed, float eps, str activation, float p, bool is_kept) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    run=_run,
    fake=_fake,
    meaning=_meaning,
)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    x, gamma, beta, weight, bias, seed, ctx.eps, ctx.activation, ctx.p, _ = inputs
    ctx.has_bias, ctx.size = bias is not None, 0 if beta is None else beta.shape[0]
    ctx.beta_dtype = None if beta is None else beta.dtype
    ctx.save_for_backward(x, gamma, beta, weight, seed, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 10
    x, gamma, beta, weight, seed, pre, means, scales = ctx.saved_tensors
    ops, rows = torch.ops.aotc, x.shape[0]
    if seed is not None:
        gradient = ops.dropout(gradient, ctx.p, seed)
    if ctx.activation != "none":
        gradient = ops.activation_backward(gradient, pre, ctx.activation)
    normed = _NORM(x, gamma, beta, rows, 1, 1, ctx.eps, True)[0]
    of_normed, of_weight, of_bias = linear_gradients(
        _Needed((True, ctx.needs_input_grad[3])), gradient, normed, weight, ctx.has_bias
    )
    of_x, of_gamma, of_beta = _NORM_BACKWARD(
        of_normed,
        x,
        gamma,
        means,
        scales,
        rows,
        1,
        1,
        True,
        ctx.size,
        ctx.beta_dtype == scales.dtype,
    )
    return (
        of_x, None if gamma is None else of_gamma, of_beta if ctx.size else None,
        of_weight, of_bias, *(None,) * 5,
    )  # fmt: skip


class _Needed:
    """Which gradients of a product are needed."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad


differentiate(_NORM_LINEAR, _save, _backward)
