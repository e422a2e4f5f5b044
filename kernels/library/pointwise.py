"""Functions of elements that do not depend on each other: sums, activations, gated activations.

An activation is one row of `ACTIVATIONS`; the ops take its name. Papers: Hendrycks and Gimpel,
"Gaussian error linear units", 2016; Elfwing and others, "Sigmoid-weighted linear units", 2017;
Shazeer, "GLU variants improve transformer", 2020; So and others, "Primer", 2021 (squared ReLU).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional
from triton.runtime.jit import JITFunction

from aotc.aot.errors import KernelValueInvalid
from aotc.kernels.library.checks import check_floats
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.layouts import Rows, contiguous_like, rows_of
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import POINTWISE


@triton.jit
def place(at, length, stride, FLAT: tl.constexpr):
    """Where element number `at` lies, in rows of `length` that begin `stride` apart."""
    if FLAT:
        return at
    return (at // length) * stride + at % length


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def silu_value(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def silu_slope(x):
    share = sigmoid(x)
    return share * (1.0 + x * (1.0 - share))


@triton.jit
def normal_cdf(x):
    """Φ(x) in f32 for results of 16 bits, to 2⁻¹⁹ of it, also far below 0, in two thirds of the
    instructions of `tl.erf`, which short of bandwidth take the time of gelu. Φ(-|x|) is half of the
    Chebyshev fit of erfc of Press and others, "Numerical recipes", 6.2, here in powers of 2."""
    size = tl.abs(x)
    root = tl.rsqrt(1.0 + 0.3535533905932738 * size)  # one instruction, unlike a quotient
    t = root * root
    power = 0.246517298 * t + -1.186114945
    power = power * t + 2.147474464
    power = power * t + -1.637753152
    power = power * t + 0.402321582
    power = power * t + -0.268756860
    power = power * t + 0.139630057
    power = power * t + 0.539700616
    power = power * t + 1.442729204
    power = power * t + -2.825748218
    tail = t * tl.exp2(power - size * (size * 0.7213475204444817))
    return tl.where(x < 0.0, tail, 1.0 - tail)


@triton.jit
def short_gelu_value(x):
    return x * normal_cdf(x)


@triton.jit
def short_gelu_slope(x):
    return normal_cdf(x) + x * (tl.exp(-0.5 * x * x) * 0.3989422804014327)


@triton.jit
def gelu_value(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_slope(x):
    density = tl.exp(-0.5 * x * x) * 0.3989422804014327
    return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476)) + x * density


@triton.jit
def gelu_tanh_value(x):
    """½ (1 + tanh u) is the sigmoid of 2 u."""
    return x * sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


@triton.jit
def gelu_tanh_slope(x):
    share = sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    inner = 1.5957691216057308 * (1.0 + 0.134145 * x * x)
    return share + x * share * (1.0 - share) * inner


@triton.jit
def relu_squared_value(x):
    kept = tl.where(x <= 0.0, 0.0, x)  # NaN stays
    return kept * kept


@triton.jit
def relu_squared_slope(x):
    return 2.0 * tl.where(x <= 0.0, 0.0, x)


@triton.jit
def relu_value(x):
    return tl.where(x <= 0.0, 0.0, x)  # NaN stays


@triton.jit
def relu_slope(x):
    return tl.where(x > 0.0, 1.0, 0.0)


@triton.jit
def add_kernel(
    x, y, out, count, length, x_stride, y_stride, FLAT: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    left = tl.load(x + place(at, length, x_stride, FLAT), mask=mask)
    right = tl.load(y + place(at, length, y_stride, FLAT), mask=mask)
    tl.store(out + at, left + right, mask=mask)


@triton.jit
def activation_kernel(
    x, out, count, length, x_stride,
    VALUE: tl.constexpr, ACC: tl.constexpr, FLAT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    value = tl.load(x + place(at, length, x_stride, FLAT), mask=mask).to(ACC)
    tl.store(out + at, VALUE(value), mask=mask)


@triton.jit
def activation_backward_kernel(
    gradient, x, out, count, length, gradient_stride, x_stride,
    SLOPE: tl.constexpr, ACC: tl.constexpr, FLAT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    g = tl.load(gradient + place(at, length, gradient_stride, FLAT), mask=mask).to(ACC)
    value = tl.load(x + place(at, length, x_stride, FLAT), mask=mask).to(ACC)
    tl.store(out + at, g * SLOPE(value), mask=mask)


@triton.jit
def gate_kernel(
    x, gate, out, count, length, x_stride, gate_stride,
    VALUE: tl.constexpr, ACC: tl.constexpr, FLAT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    value = tl.load(x + place(at, length, x_stride, FLAT), mask=mask).to(ACC)
    factor = tl.load(gate + place(at, length, gate_stride, FLAT), mask=mask).to(ACC)
    tl.store(out + at, VALUE(value) * factor, mask=mask)


@triton.jit
def gate_backward_kernel(
    gradient, x, gate, of_x, of_gate, count, length, gradient_stride, x_stride, gate_stride,
    VALUE: tl.constexpr, SLOPE: tl.constexpr, ACC: tl.constexpr,
    FLAT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    g = tl.load(gradient + place(at, length, gradient_stride, FLAT), mask=mask).to(ACC)
    value = tl.load(x + place(at, length, x_stride, FLAT), mask=mask).to(ACC)
    factor = tl.load(gate + place(at, length, gate_stride, FLAT), mask=mask).to(ACC)
    tl.store(of_x + at, g * factor * SLOPE(value), mask=mask)
    tl.store(of_gate + at, g * VALUE(value), mask=mask)


class Activation(NamedTuple):
    """value, slope: of an element, in Triton's language; the same of tensors in torch's ops.

    short: the two for results of 16 bits, where these may be computed in fewer instructions.
    """

    value: JITFunction
    slope: JITFunction
    meaning: Callable[[Tensor], Tensor]
    slope_meaning: Callable[[Tensor], Tensor]
    short: tuple[JITFunction, JITFunction] | None = None

    def of(self, x: Tensor) -> tuple[JITFunction, JITFunction]:
        """The value and the slope for a tensor like `x`."""
        return self.short if self.short and x.itemsize == 2 else (self.value, self.slope)


def _silu_slope(x: Tensor) -> Tensor:
    share = torch.sigmoid(x)
    return share * (1.0 + x * (1.0 - share))


def _gelu_slope(x: Tensor) -> Tensor:
    density = torch.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return 0.5 * (1.0 + torch.erf(x * math.sqrt(0.5))) + x * density


def _gelu_tanh_slope(x: Tensor) -> Tensor:
    root = math.sqrt(8 / math.pi)
    share = torch.sigmoid(root * (x + 0.044715 * x * x * x))
    return share + x * share * (1.0 - share) * (root * (1.0 + 3 * 0.044715 * x * x))


ACTIVATIONS = {
    "relu": Activation(relu_value, relu_slope, torch.relu, lambda x: (x > 0.0).to(x.dtype)),
    "silu": Activation(silu_value, silu_slope, functional.silu, _silu_slope),
    "gelu": Activation(
        gelu_value, gelu_slope, functional.gelu, _gelu_slope, (short_gelu_value, short_gelu_slope)
    ),
    "gelu_tanh": Activation(
        gelu_tanh_value,
        gelu_tanh_slope,
        lambda x: functional.gelu(x, approximate="tanh"),
        _gelu_tanh_slope,
    ),
    "relu_squared": Activation(
        relu_squared_value,
        relu_squared_slope,
        lambda x: torch.relu(x).square(),
        lambda x: 2.0 * torch.relu(x),
    ),
}


# -- public functions ------------------------------------------------------------------------------


def vector_add(x: Tensor, y: Tensor) -> Tensor:
    """x + y, element by element.

    x, y: floats of one type, of shapes that broadcast. Returns a contiguous tensor.
    Raises KernelDtypeUnsupported and KernelDeviceInvalid, and RuntimeError for shapes that do not
    broadcast.
    """
    check_floats("vector_add", x=x, y=y)
    left, right = torch.broadcast_tensors(x, y)
    result: Tensor = _ADD(left, right)
    return result


def silu(x: Tensor) -> Tensor:
    """x · sigmoid(x).

    x: floats of any shape and strides. Returns a contiguous tensor of its shape and type; f16 and
    bf16 are computed in f32. Raises KernelDtypeUnsupported.
    """
    return _activated("silu", x, "silu")


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x · Φ(x) of the normal distribution; with `approximate="tanh"` torch's approximation of it.

    Otherwise as `silu`. Raises KernelDtypeUnsupported and KernelValueInvalid.
    """
    return _activated("gelu", x, _gelu_kind("gelu", approximate))


def relu_squared(x: Tensor) -> Tensor:
    """max(x, 0)²; otherwise as `silu`."""
    return _activated("relu_squared", x, "relu_squared")


def swiglu(x: Tensor, gate: Tensor) -> Tensor:
    """silu(x) · gate.

    x, gate: floats of one type and shape; halves of one tensor, as `chunk` gives them, are read
    where they lie. Returns a contiguous tensor; f16 and bf16 are computed in f32 and rounded once.
    Raises KernelDtypeUnsupported, KernelDeviceInvalid, and RuntimeError for shapes that do not
    broadcast.
    """
    return _gated("swiglu", x, gate, "silu")


def geglu(x: Tensor, gate: Tensor, approximate: str = "none") -> Tensor:
    """gelu(x) · gate; otherwise as `swiglu`."""
    return _gated("geglu", x, gate, _gelu_kind("geglu", approximate))


def _gelu_kind(function: str, approximate: str) -> str:
    if approximate not in ("none", "tanh"):
        raise KernelValueInvalid(
            function=function, argument="approximate", found=repr(approximate),
            expected="'none' or 'tanh'",
        )  # fmt: skip
    return "gelu" if approximate == "none" else "gelu_tanh"


def _activated(function: str, x: Tensor, kind: str) -> Tensor:
    check_floats(function, x=x)
    result: Tensor = _ACTIVATION(x, kind)
    return result


def _gated(function: str, x: Tensor, gate: Tensor, kind: str) -> Tensor:
    check_floats(function, x=x, gate=gate)
    x, gate = torch.broadcast_tensors(x, gate)
    result: Tensor = _GATE(x, gate, kind)
    return result


# -- launches --------------------------------------------------------------------------------------


def _elements(*tensors: Tensor) -> tuple[list[Rows], dict[str, Any]]:
    """The tensors as rows of their last dim, and the constants of a kernel over their elements."""
    rows = [rows_of(each if each.dim() else each.reshape(1), max(0, each.dim() - 1))
            for each in tensors]  # fmt: skip
    block, num_warps = POINTWISE[tensors[0].device.type]
    is_flat = all(each.outer_stride == each.length for each in rows)
    return rows, {"FLAT": is_flat, "BLOCK": block, "num_warps": num_warps}


def _over_elements(
    kernel: JITFunction, given: tuple[Tensor, ...], made: tuple[Tensor, ...], **constants: Any
) -> None:
    """Launch a kernel whose arguments are inputs, results, sizes, and the inputs' strides."""
    rows, options = _elements(*given)
    count = given[0].numel()
    launch(
        kernel, (-(-count // options["BLOCK"]),), *(each.data for each in rows), *made,
        count, max(1, rows[0].length), *(each.outer_stride for each in rows),
        **options, **constants,
    )  # fmt: skip


def _run_add(x: Tensor, y: Tensor) -> Tensor:
    out = contiguous_like(x)
    _over_elements(add_kernel, (x, y), (out,))
    return out


def activated(x: Tensor, kind: str) -> Tensor:
    """Launch an activation, by its name in `ACTIVATIONS`."""
    out = contiguous_like(x)
    value, _ = ACTIVATIONS[kind].of(x)
    _over_elements(activation_kernel, (x,), (out,), VALUE=value, ACC=accumulator(x))
    return out


def _run_backward(gradient: Tensor, x: Tensor, kind: str) -> Tensor:
    out, given = contiguous_like(x), (gradient, x)
    _, slope = ACTIVATIONS[kind].of(x)
    _over_elements(activation_backward_kernel, given, (out,), SLOPE=slope, ACC=accumulator(x))
    return out


def _run_gate(x: Tensor, gate: Tensor, kind: str) -> Tensor:
    out, (value, _) = contiguous_like(x), ACTIVATIONS[kind].of(x)
    _over_elements(gate_kernel, (x, gate), (out,), VALUE=value, ACC=accumulator(x))
    return out


def _run_gate_backward(
    gradient: Tensor, x: Tensor, gate: Tensor, kind: str
) -> tuple[Tensor, Tensor]:
    made, (value, slope) = (contiguous_like(x), contiguous_like(x)), ACTIVATIONS[kind].of(x)
    _over_elements(
        gate_backward_kernel, (gradient, x, gate), made,
        VALUE=value, SLOPE=slope, ACC=accumulator(x),
    )  # fmt: skip
    return made


# -- ops -------------------------------------------------------------------------------------------


def _gate_backward_meaning(
    gradient: Tensor, x: Tensor, gate: Tensor, kind: str
) -> tuple[Tensor, Tensor]:
    row, g, value = ACTIVATIONS[kind], widened(gradient), widened(x)
    of_x = g * widened(gate) * row.slope_meaning(value)
    return of_x.to(x.dtype), (g * row.meaning(value)).to(x.dtype)


_ADD = define(
    "vector_add(Tensor x, Tensor y) -> Tensor",
    run=_run_add,
    fake=contiguous_like,
    meaning=torch.add,
)
_ACTIVATION = define(
    "activation(Tensor x, str kind) -> Tensor",
    run=activated,
    fake=contiguous_like,
    meaning=lambda x, kind: ACTIVATIONS[kind].meaning(widened(x)).to(x.dtype),
)
_ACTIVATION_BACKWARD = define(
    "activation_backward(Tensor gradient, Tensor x, str kind) -> Tensor",
    run=_run_backward,
    fake=contiguous_like,
    meaning=lambda gradient, x, kind: (
        widened(gradient) * ACTIVATIONS[kind].slope_meaning(widened(x))
    ).to(x.dtype),
)
_GATE = define(
    "gate(Tensor x, Tensor gate, str kind) -> Tensor",
    run=_run_gate,
    fake=contiguous_like,
    meaning=lambda x, gate, kind: (
        ACTIVATIONS[kind].meaning(widened(x)) * widened(gate)
    ).to(x.dtype),
)  # fmt: skip
_GATE_BACKWARD = define(
    "gate_backward(Tensor gradient, Tensor x, Tensor gate, str kind) -> (Tensor, Tensor)",
    run=_run_gate_backward,
    fake=lambda gradient, x, gate, kind: (contiguous_like(x), contiguous_like(x)),
    meaning=_gate_backward_meaning,
)


def _save(ctx: Any, inputs: Any, output: Tensor) -> None:
    *tensors, ctx.kind = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    return _ACTIVATION_BACKWARD(gradient, *ctx.saved_tensors, ctx.kind), None


def _gate_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    return *_GATE_BACKWARD(gradient, *ctx.saved_tensors, ctx.kind), None


differentiate(_ADD, lambda ctx, inputs, output: None, lambda ctx, gradient: (gradient, gradient))
differentiate(_ACTIVATION, _save, _backward)
differentiate(_GATE, _save, _gate_backward)
