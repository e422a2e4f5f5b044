"""The decompositions of AOTAutograd's graphs: torch's core table, ours beside it, attention, draws.

The table is asked for ops that reach the trace; what torch takes apart before, by functions of its
own, is in `composites.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, get_decompositions

from aotc.aot.capture.aten_graph import memory_order
from aotc.aot.capture.custom_ops import base_name
from aotc.aot.capture.decompositions import activations
from aotc.aot.capture.decompositions.table import arithmetic
from aotc.aot.capture.imports.table import (
    DEVIATIONS,
    INDEXED_WHOLE,
    OTHERWISE_DECOMPOSED,
    SUMS_OF_PRODUCTS,
    WINDOWS_WHOLE,
)
from aotc.aot.dynamo import attention
from aotc.aot.dynamo.random_ops import DROPOUT_MASK

aten = torch.ops.aten
CHANCES = "a chance given to `bernoulli` is not between 0 and 1"
Table = dict[Any, Callable[..., Any]]


def _name(op: Any) -> str:
    return str(op.name()).removeprefix("aten::") if hasattr(op, "name") else ""


@functools.cache
def decompositions() -> Table:
    """Op → its arithmetic, for forward and backward graphs."""
    core = core_aten_decompositions()
    whole = {*INDEXED_WHOLE, *DEVIATIONS, *SUMS_OF_PRODUCTS, *OTHERWISE_DECOMPOSED, *WINDOWS_WHOLE}
    table: Table = {op: row for op, row in core.items() if not whole & {_name(op), base_name(op)}}
    table.update(get_decompositions([aten.native_batch_norm]))
    table.update(arithmetic())
    table[aten._scaled_dot_product_flash_attention_for_cpu.default] = attention.forward
    table[aten._scaled_dot_product_flash_attention_for_cpu_backward.default] = attention.backward
    table[aten.bernoulli.default] = _bernoulli(core[aten.bernoulli.default])
    table[aten.native_dropout.default] = _dropout
    table[aten.native_dropout_backward.default] = _dropout_backward
    return table


def _bernoulli(of_comparison: Callable[..., Any]) -> Callable[..., Any]:
    """Of chances: on the CPU eager compares as many numbers; on a CUDA device its kernel gives
    threads numbers in another order, and the op stays."""

    def called(data: Tensor, **named: Any) -> Any:
        if data.is_cuda:
            return NotImplemented
        aten._assert_async.msg(((data >= 0) & (data <= 1)).all(), CHANCES)
        return of_comparison(data, **named)

    return called


def _dropout(data: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """The mask is drawn as eager draws it, on the CPU in the order of the data's memory."""
    if train is False:
        return data.clone(), torch.ones_like(data, dtype=torch.bool)
    if data.is_cuda and p < 1:
        mask = getattr(torch.ops.aotc, DROPOUT_MASK)(data, p)
        return _scaled(data, mask, 1 / activations.rounded(1 - p, _wide(data))), mask
    mask = torch.empty_like(data, dtype=torch.bool)
    order = memory_order(mask) or tuple(range(mask.dim()))
    if p == 1:  # for which eager draws nothing
        mask = torch.zeros_like(mask)
    else:
        drawn = torch.bernoulli(mask.permute(order), 1 - p)
        mask = drawn.permute(sorted(range(len(order)), key=order.__getitem__))
    return _kept(data, mask, 1 - p), mask


def _dropout_backward(gradient: Tensor, mask: Tensor, scale: float) -> Tensor:
    """What was kept passes its gradient; a scale of 0 says that nothing was."""
    if gradient.is_cuda:
        return _scaled(gradient, mask, scale)
    return _kept(gradient, mask, 1 / scale if scale else 0.0)


def _kept(data: Tensor, mask: Tensor, share: float) -> Tensor:
    """What the mask keeps by the share that is kept, rounded as eager's quotient on the CPU."""
    divisor = activations.rounded(share, _wide(data))
    factor = activations.rounded(1 / divisor, data.dtype) if share else 0.0
    return data * (mask.to(data.dtype) * factor)


def _scaled(data: Tensor, mask: Tensor, factor: float) -> Tensor:
    """What the mask keeps times a factor, in f32 at least, as eager's kernel on a CUDA device."""
    wide = _wide(data)
    kept = mask.to(wide) * activations.rounded(factor, wide)
    return (data.to(wide) * kept).to(data.dtype)


def _wide(data: Tensor) -> torch.dtype:
    return torch.float64 if data.dtype == torch.float64 else torch.float32
