"""Products of matrices with what comes before and after them: bias, activation, norm, dropout.

One kernel: a program has a tile of the result in f32. Its prologue may normalise the left operand's
rows (`layer_norm_linear`), its epilogue adds a bias, activates and drops. Programs go over the
tiles in groups of rows of tiles, as in Triton's tutorial on products. Strides are arguments, so no
operand is copied. f32 on CUDA is computed as `torch.set_float32_matmul_precision` says.

Products of 16 bits on CUDA are cuBLAS's (torch's), and what comes before and after them is done by
kernels of its own: this kernel has 0.71 of cuBLAS's speed there, and a product that nothing is
fused with is the larger part of all.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from aotc.aot.errors import KernelShapeInvalid, KernelValueInvalid
from aotc.kernels.library import dropout as drops
from aotc.kernels.library.checks import check_floats, check_shape
from aotc.kernels.library.devices import CPU, GPU, has_fast_tf32, is_gpu
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.pointwise import ACTIVATIONS, activated
from aotc.kernels.library.registration import define, differentiate, widened
from aotc.kernels.library.tiles import power_of_two


@triton.jit
def identity_value(x):
    return x


@triton.jit
def tile_product(
    a, b, row, column, rows, columns, depth, am, ak, bk, bn, mean, scale, gamma, beta,
    NORM: tl.constexpr, HAS_GAMMA: tl.constexpr, HAS_BETA: tl.constexpr, ACC: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The product of rows `row` of `a` and columns `column` of `b`, [BM, BN] in ACC."""
    acc = tl.zeros((BM, BN), ACC)
    a += row.to(tl.int64)[:, None] * am
    b += column.to(tl.int64)[None, :] * bn
    is_row = (row < rows)[:, None]
    is_column = (column < columns)[None, :]
    for start in range(0, depth, BK):
        k = start + tl.arange(0, BK)
        is_left = is_row & (k < depth)[None, :]
        is_right = is_column & (k < depth)[:, None]
        at = k.to(tl.int64)
        left = tl.load(a + at[None, :] * ak, mask=is_left, other=0.0)
        right = tl.load(b + at[:, None] * bk, mask=is_right, other=0.0)
        if NORM:
            value = (left.to(ACC) - mean[:, None]) * scale[:, None]
            if HAS_GAMMA:
                value *= tl.load(gamma + k, mask=k < depth, other=0.0).to(ACC)[None, :]
            if HAS_BETA:
                value += tl.load(beta + k, mask=k < depth, other=0.0).to(ACC)[None, :]
            left = tl.where(is_left, value, 0.0).to(left.dtype)
        acc = tl.dot(left, right, acc, input_precision=PRECISION, out_dtype=ACC)
    return acc


@triton.jit
def tile_place(rows, columns, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Rows and columns of this program's tile, [BM] and [BN]."""
    tile = tl.program_id(0)
    width = GROUP * tl.cdiv(columns, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(rows, BM) - first, GROUP)
    row = (first + tile % width % height) * BM + tl.arange(0, BM)
    column = tile % width // height * BN + tl.arange(0, BN)
    return row, column


@triton.jit
def dropped(value, element, seed, limit, SCALE: tl.constexpr):
    """What `aotc.kernels.dropout` makes of these elements: word w of counter 512 g + i is that of
    element 2048 g + 512 w + i."""
    counter = element // 2048 * 512 + element % 512
    low = counter.to(tl.uint32)
    high = (counter >> 32).to(tl.uint32)
    first, second, third, fourth = tl.philox(tl.load(seed), low, low * 0, high, low * 0)
    word = element // 512 % 4
    bits = tl.where(word < 2, tl.where(word == 0, first, second),
                    tl.where(word == 2, third, fourth))  # fmt: skip
    return tl.where((bits >> 8).to(tl.int32) >= limit, value * SCALE, 0.0)


@triton.jit
def product_kernel(
    a, b, out, pre, bias, means, scales, gamma, beta, seed, rows, columns, depth, limit,
    az, am, ak, bz, bk, bn,
    NORM: tl.constexpr, HAS_GAMMA: tl.constexpr, HAS_BETA: tl.constexpr, HAS_BIAS: tl.constexpr,
    VALUE: tl.constexpr, KEEPS: tl.constexpr, DROPS: tl.constexpr, ADDS: tl.constexpr,
    SCALE: tl.constexpr, ACC: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """ADDS: onto what `out` holds. KEEPS: `pre` gets what is activated."""
    z = tl.program_id(1).to(tl.int64)
    row, column = tile_place(rows, columns, BM, BN, GROUP)
    mean = tl.zeros((BM,), ACC)
    scale = mean
    if NORM:
        mean = tl.load(means + row, mask=row < rows, other=0.0)
        scale = tl.load(scales + row, mask=row < rows, other=0.0)
    acc = tile_product(
        a + z * az, b + z * bz, row, column, rows, columns, depth, am, ak, bk, bn,
        mean, scale, gamma, beta, NORM, HAS_GAMMA, HAS_BETA, ACC, PRECISION, BM, BN, BK,
    )  # fmt: skip
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    element = (z * rows + row[:, None]) * columns + column[None, :]
    if HAS_BIAS:
        acc += tl.load(bias + column, mask=column < columns, other=0.0).to(ACC)[None, :]
    if KEEPS:
        tl.store(pre + element, acc, mask=mask)
    acc = VALUE(acc)
    if DROPS:
        acc = dropped(acc, element, seed, limit, SCALE)
    if ADDS:
        acc += tl.load(out + element, mask=mask, other=0.0)
    tl.store(out + element, acc, mask=mask)


# -- launches --------------------------------------------------------------------------------------


class Tile(NamedTuple):
    """rows, columns, depth: of a program's step; group: rows of tiles that go together."""

    rows: int
    columns: int
    depth: int
    group: int
    num_warps: int
    num_stages: int

    @property
    def constants(self) -> dict[str, int]:
        """What kernels over tiles of a product take of it."""
        return {
            "BM": self.rows, "BN": self.columns, "BK": self.depth, "GROUP": self.group,
            "num_warps": self.num_warps, "num_stages": self.num_stages,
        }  # fmt: skip


# By device and bytes of an element. At most 96 KiB of shared memory: all GPUs since sm_80 have it.
TILES = {
    GPU: {
        2: Tile(128, 128, 64, 8, 8, 3),
        4: Tile(64, 64, 32, 8, 4, 3),
        8: Tile(32, 32, 16, 8, 4, 2),
    },
    CPU: {
        2: Tile(32, 64, 64, 8, 1, 1),
        4: Tile(32, 64, 64, 8, 1, 1),
        8: Tile(16, 32, 32, 8, 1, 1),
    },
}
_LEAST = 16  # rows, columns and depth that a GPU's units for products take


def product_tile(x: Tensor, rows: int, columns: int, depth: int) -> Tile:
    """The tile of a product of tensors like `x`: that of the table, smaller for small results."""
    tile = TILES[x.device.type][x.element_size()]
    return tile._replace(
        rows=min(tile.rows, max(_LEAST, power_of_two(rows))),
        columns=min(tile.columns, max(_LEAST, power_of_two(columns))),
        depth=min(tile.depth, max(_LEAST, power_of_two(depth))),
    )


def precision_of(x: Tensor) -> str:
    """How the f32 products of kernels are computed: as exactly as torch's on this device."""
    if x.dtype != torch.float32 or not x.is_cuda:
        return "ieee"
    if torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return "tf32x3" if has_fast_tf32(x.device) else "ieee"


WIDE_PRODUCT = getattr(torch.ops.aten.addmm, "dtype_out", None)
"""(added, a, b, type, beta=…, out=…): added · beta + a @ b, of 16 bits, in a wider type; where
torch has it."""


def is_cublas(x: Tensor) -> bool:
    """Whether products of such tensors are torch's."""
    return is_gpu(x.device) and x.element_size() == 2


def is_by_torch(x: Tensor) -> bool:
    """Whether a product alone is a call of torch's, whose gradients then are too."""
    return is_cublas(x) and not torch.compiler.is_compiling()


def in_given_types(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Where torch's products take the types that they are given, under autocast too."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return contextlib.nullcontext()


def has_wide_products(x: Tensor) -> bool:
    """Whether torch has products of such tensors that are not rounded to their type."""
    return is_cublas(x) and WIDE_PRODUCT is not None


def wide_product(a: Tensor, b: Tensor, out: Tensor, is_added: bool = False) -> None:
    """out = a @ b, or that added to it, by torch: [M, K] by [K, N] of 16 bits, `out` f32."""
    with torch.no_grad(), in_given_types(a):
        WIDE_PRODUCT(out, a, b, out.dtype, beta=int(is_added), out=out)


def add_product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """out += a @ b, [M, K] by [K, N], `out` contiguous and of the type that is computed in."""
    if has_wide_products(a):
        wide_product(a, b, out, is_added=True)
    else:
        multiply(a, b, out, Around(is_added=True))


def product_into(a: Tensor, b: Tensor, out: Tensor) -> None:
    """out = a @ b, [M, K] by [K, N], `out` contiguous."""
    if is_cublas(a):
        with torch.no_grad(), in_given_types(a):
            torch.mm(a, b, out=out)
    else:
        multiply(a, b, out)


def linear_by_cublas(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x @ weightᵀ + bias, rounded to their type."""
    with in_given_types(x):
        if bias is None:
            return torch.mm(x, weight.t())
        return torch.addmm(bias, x, weight.t())


class Around(NamedTuple):
    """What a product has before and after it."""

    bias: Tensor | None = None
    activation: str = "none"
    pre: Tensor | None = None
    means: Tensor | None = None
    scales: Tensor | None = None
    gamma: Tensor | None = None
    beta: Tensor | None = None
    p: float = 0.0
    seed: Tensor | None = None
    is_added: bool = False


def multiply(a: Tensor, b: Tensor, out: Tensor, around: Around = Around()) -> Tensor:  # noqa: B008
    """out = a @ b, [Z, M, K] by [Z, K, N] or without Z, into a contiguous tensor."""
    batch = a.shape[0] if a.dim() == 3 else 1
    rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    tile = product_tile(a, rows, columns, depth)
    grid = (triton.cdiv(rows, tile.rows) * triton.cdiv(columns, tile.columns), batch)
    bias, gamma, beta = (
        None if each is None else each.contiguous()
        for each in (around.bias, around.gamma, around.beta)
    )
    launch(
        product_kernel, grid, a, b, out, around.pre, bias, around.means, around.scales,
        gamma, beta, around.seed, rows, columns, depth, drops._limit(around.p),
        a.stride(0) if a.dim() == 3 else 0, a.stride(-2), a.stride(-1),
        b.stride(0) if b.dim() == 3 else 0, b.stride(-2), b.stride(-1),
        NORM=around.means is not None, HAS_GAMMA=gamma is not None, HAS_BETA=beta is not None,
        HAS_BIAS=bias is not None, VALUE=_value(around.activation), KEEPS=around.pre is not None,
        DROPS=around.seed is not None, ADDS=around.is_added, SCALE=drops._scale(around.p),
        ACC=accumulator(a), PRECISION=precision_of(a), **tile.constants,
    )  # fmt: skip
    return out


def _value(activation: str) -> Any:
    return identity_value if activation == "none" else ACTIVATIONS[activation].value


# -- public functions ------------------------------------------------------------------------------


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, as `torch.matmul`, summed in f32 (f64 of f64) and rounded once; of f16 and bf16 on
    CUDA by cuBLAS, as torch's settings say.

    a: [..., M, K] or [K]; b: [..., K, N] or [K]; floats of one type, any strides (none is copied
    for its strides); dims before the last two broadcast. Returns a contiguous tensor of their type.
    Raises KernelDtypeUnsupported, KernelShapeInvalid and KernelDeviceInvalid, and RuntimeError for
    dims that do not broadcast.
    """
    check_floats("matmul", a=a, b=b)
    if not a.dim() or not b.dim():
        name, x = ("b", b) if a.dim() else ("a", a)
        raise KernelShapeInvalid(
            function="matmul", argument=name, found=list(x.shape), expected="one dim or more"
        )
    left = a if a.dim() > 1 else a.unsqueeze(0)
    right = b if b.dim() > 1 else b.unsqueeze(1)
    if left.shape[-1] != right.shape[-2]:
        expected = f"one with {left.shape[-1]} rows, as `a` has columns"
        raise KernelShapeInvalid(
            function="matmul", argument="b", found=list(b.shape), expected=expected
        )
    if is_by_torch(a):
        with in_given_types(a):
            return torch.matmul(a, b).contiguous()
    if right.dim() == 2:
        shape = (*left.shape[:-1], right.shape[1])
        result = _PRODUCT(flattened(left), right).reshape(shape)
    else:
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        left, right = (each.expand(*batch, *each.shape[-2:]) for each in (left, right))
        shape = (*batch, left.shape[-2], right.shape[-1])
        result = _PRODUCT(left.flatten(0, -3), right.flatten(0, -3)).reshape(shape)
    result = result if a.dim() > 1 else result.squeeze(-2)
    made: Tensor = result if b.dim() > 1 else result.squeeze(-1)
    return made


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none"
) -> Tensor:
    """activation(x @ weightᵀ + bias): by one kernel, of f16 and bf16 on CUDA by cuBLAS and one for
    the activation.

    x: [..., K]; weight: [N, K]; bias: [N]; floats of one type, any strides. activation: "none",
    "relu", "gelu", "gelu_tanh", "silu" or "relu_squared". Returns [..., N]. Sums, bias and
    activation are in f32; where there are two kernels, what is activated is rounded, as eager's is.
    Raises KernelDtypeUnsupported, KernelShapeInvalid, KernelDeviceInvalid and KernelValueInvalid.
    """
    check_floats("linear", x=x, weight=weight, bias=bias)
    _check_linear("linear", x, weight, bias, activation)
    if activation == "none" and is_by_torch(x):
        with in_given_types(x):
            return functional.linear(x, weight, bias)
    is_kept = activation != "none" and _is_differentiated(x, weight, bias)
    result: Tensor = _LINEAR(flattened(x), weight, bias, activation, is_kept)[0]
    return result.reshape(*x.shape[:-1], weight.shape[0])


def swiglu_mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """(silu(x @ gateᵀ) · (x @ upᵀ)) @ downᵀ, the block of Llama.

    x: [..., K]; gate, up: [N, K]; down: [L, N]; floats of one type, any strides. Returns [..., L].
    Three products and one kernel for the gate. Raises as `linear`.
    """
    from aotc.kernels.library.pointwise import swiglu

    return linear(swiglu(linear(x, gate), linear(x, up)), down)


def geglu_mlp(
    x: Tensor, gate: Tensor, up: Tensor, down: Tensor, approximate: str = "none"
) -> Tensor:
    """(gelu(x @ gateᵀ) · (x @ upᵀ)) @ downᵀ, otherwise as `swiglu_mlp`."""
    from aotc.kernels.library.pointwise import geglu

    return linear(geglu(linear(x, gate), linear(x, up), approximate), down)


def _check_linear(
    function: str, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str
) -> None:
    if weight.dim() != 2:
        raise KernelShapeInvalid(
            function=function, argument="weight", found=list(weight.shape), expected="[N, K]",
            advice="it is `torch.nn.Linear`'s weight: outputs by inputs; ",
        )  # fmt: skip
    if not x.dim() or x.shape[-1] != weight.shape[1]:
        expected = f"one whose last dim is {weight.shape[1]}, as the weight's"
        raise KernelShapeInvalid(
            function=function, argument="x", found=list(x.shape), expected=expected
        )
    check_shape(function, "bias", bias, weight.shape[:1])
    if activation != "none" and activation not in ACTIVATIONS:
        raise KernelValueInvalid(
            function=function, argument="activation", found=repr(activation),
            expected=f"one of none, {', '.join(ACTIVATIONS)}",
        )  # fmt: skip


def flattened(x: Tensor) -> Tensor:
    """[..., K] as [rows, K]."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _is_differentiated(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


# -- ops -------------------------------------------------------------------------------------------


def _fake_product(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


def _run_product(a: Tensor, b: Tensor) -> Tensor:
    if is_cublas(a):
        with in_given_types(a):
            return torch.mm(a, b) if a.dim() == 2 else torch.bmm(a, b)
    return multiply(a, b, _fake_product(a, b))


def _run_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, is_kept: bool
) -> tuple[Tensor, Tensor]:
    if is_cublas(x):
        pre = linear_by_cublas(x, weight, bias)
        if activation == "none":
            return pre, x.new_empty((0,))
        return activated(pre, activation), pre if is_kept else x.new_empty((0,))
    out, pre = _fake_linear(x, weight, bias, activation, is_kept)
    multiply(x, weight.t(), out, Around(bias, activation, pre if is_kept else None))
    return out, pre


def _fake_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, is_kept: bool
) -> tuple[Tensor, Tensor]:
    shape = (x.shape[0], weight.shape[0])
    return x.new_empty(shape), x.new_empty(shape if is_kept else (0,))


def _meaning_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, is_kept: bool
) -> tuple[Tensor, Tensor]:
    pre = functional.linear(x, weight, bias)
    if activation == "none":
        return pre, x.new_empty((0,))
    value = ACTIVATIONS[activation].meaning(widened(pre)).to(x.dtype)
    return value, pre if is_kept else x.new_empty((0,))


_PRODUCT = define(
    "product(Tensor a, Tensor b) -> Tensor",
    run=_run_product,
    fake=_fake_product,
    meaning=torch.matmul,
)
_LINEAR = define(
    "linear(Tensor x, Tensor weight, Tensor? bias, str activation, bool is_kept) "
    "-> (Tensor, Tensor)",
    run=_run_linear,
    fake=_fake_linear,
    meaning=_meaning_linear,
)


def _save_product(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _product_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    of_a = _PRODUCT(gradient, b.mT) if ctx.needs_input_grad[0] else None
    of_b = _PRODUCT(a.mT, gradient) if ctx.needs_input_grad[1] else None
    return of_a, of_b


def _save_linear(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, ctx.activation, _ = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, weight, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _linear_backward(ctx: Any, gradient: Tensor | None, _: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 5
    x, weight, pre = ctx.saved_tensors
    if ctx.activation != "none":
        gradient = torch.ops.aotc.activation_backward(gradient, pre, ctx.activation)
    return *linear_gradients(ctx, gradient, x, weight, ctx.has_bias), None, None


def linear_gradients(
    ctx: Any, gradient: Tensor, x: Tensor, weight: Tensor, has_bias: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Of x, the weight and the bias of x @ weightᵀ + bias, as far as they are needed."""
    of_x = _PRODUCT(gradient, weight) if ctx.needs_input_grad[0] else None
    of_weight = _PRODUCT(gradient.mT, x) if ctx.needs_input_grad[1] else None
    return of_x, of_weight, bias_gradient(gradient) if has_bias else None


def bias_gradient(gradient: Tensor) -> Tensor:
    """The sum over rows, in the accumulator's type."""
    wide = torch.float64 if gradient.dtype == torch.float64 else torch.float32
    return torch.sum(gradient, 0, dtype=wide).to(gradient.dtype)


differentiate(_PRODUCT, _save_product, _product_backward)
differentiate(_LINEAR, _save_linear, _linear_backward)
