"""Meanings of ops on quantised tensors in torch's own arithmetic, as decompositions for
torch.export.

Weights stay in the form in which they are stored, and the graph contains the arithmetic that widens
them; folding never makes stored numbers larger. Ops of libraries are included only if those
libraries have registered them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

Tensor = torch.Tensor


def dequantize_per_tensor(
    data: Tensor,
    scale: Tensor | float,
    zero_point: Tensor | int,
    quant_min: Tensor | int,
    quant_max: Tensor | int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """(q - z) · s, all in the type of the result."""
    wide = out_dtype or torch.float32
    if isinstance(scale, Tensor):
        scale, zero_point = scale.reshape(()).to(wide), zero_point.reshape(())
    return ((data.to(wide) - zero_point) * scale).to(wide)


def quantize_per_tensor(
    data: Tensor,
    scale: Tensor | float,
    zero_point: Tensor | int,
    quant_min: Tensor | int,
    quant_max: Tensor | int,
    dtype: torch.dtype,
) -> Tensor:
    """clamp(round(x · 1/s) + z)"""
    if isinstance(scale, Tensor):
        scale, zero_point = scale.reshape(()).to(torch.float32), zero_point.reshape(())
    near = torch.round(data.to(torch.float32) * (1.0 / scale)) + zero_point
    return torch.clamp(near, quant_min, quant_max).to(dtype)


def choose_qparams(
    data: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Scale and zero point that take the smallest and largest element, and 0, into the range."""
    low, high = torch.aminmax(data)
    low, high = torch.clamp_max(low, 0.0), torch.clamp_min(high, 0.0)
    scale = torch.clamp_min((high - low) / float(quant_max - quant_min), eps)
    zero = quant_min - torch.round(low / scale).to(torch.int64)
    return scale.to(torch.float64).reshape(1), torch.clamp(zero, quant_min, quant_max).reshape(1)


def dequantize_per_channel_group(
    data: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """(q - z) · s of each group of a row."""
    rows, columns = data.shape
    size = columns if group_size > columns and scales.shape[-1] == 1 else group_size
    groups = data.reshape(rows, columns // size, size)
    wide = groups if zero_points is None else groups - zero_points.reshape(rows, -1, 1)
    return (wide * scales.reshape(rows, -1, 1)).reshape(rows, columns).to(output_dtype)


def nibbles(packed: Tensor) -> Tensor:
    """i8 numbers from -8 to 7, two of each byte of rows [n, k/2], the low half first."""
    pairs = torch.stack([packed & 15, (packed >> 4) & 15], -1).to(torch.int8)
    return pairs.reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def int4_rows(data: Tensor, packed: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """x · (q · s + z)ᵀ for q of two's complement in halves of bytes, s and z [k / group, n]."""
    low, columns = nibbles(packed), packed.shape[-2]
    q = torch.where(low > 7, low - 16, low)
    groups = q.reshape(columns, scale.shape[0], -1).to(data.dtype)
    weight = groups * scale.t().unsqueeze(-1) + zero.t().unsqueeze(-1)
    return torch.mm(data, weight.reshape(columns, -1).t())


def int8_rows(data: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """(x · qᵀ) · s for q [n, k] and s [n]."""
    return (torch.mm(data, weight.to(data.dtype).t()) * scales).to(data.dtype)


# Ops whose functions torch can trace as they stand.
OF_TORCH = (
    "quantize_per_channel",
    "dequantize_per_channel",
    "quantize_per_token",
    "dequantize_per_token",
    "choose_qparams_per_token",
    "choose_qparams_per_token_asymmetric",
    "_choose_qparams_per_token_asymmetric_impl",
    "quantize_per_channel_group",
)


def _own() -> Mapping[str, Callable[..., object]]:
    """Functions by the names of ops, with or without an overload."""
    import torch.ao.quantization.fx._decomposed as decomposed

    rows: dict[str, Callable[..., object]] = {
        "quantize_per_tensor": quantize_per_tensor,
        "dequantize_per_tensor": dequantize_per_tensor,
        "choose_qparams.tensor": choose_qparams,
        "dequantize_per_channel_group": dequantize_per_channel_group,
    }
    rows |= {name: getattr(decomposed, name) for name in OF_TORCH}
    rows = {f"quantized_decomposed::{name}": function for name, function in rows.items()}
    return rows | {
        "aten::_weight_int8pack_mm": int8_rows,
        "mslk::bf16i4bf16_rowwise": int4_rows,
        "fbgemm::bf16i4bf16_rowwise": int4_rows,
    }


def quantised_decompositions() -> dict[torch._ops.OpOverload, Callable[..., object]]:
    """The decompositions of those ops that are defined in this process."""
    own = _own()
    found: dict[torch._ops.OpOverload, Callable[..., object]] = {}
    for each in torch._C._dispatch_get_all_op_names():
        base, _, overload = each.partition(".")
        function = own.get(each) or own.get(base)
        if function is not None:
            space, op = base.split("::")
            packet = getattr(getattr(torch.ops, space), op)
            found[getattr(packet, overload or "default")] = function
    return found
