"""The decompositions of AOTAutograd's graphs: torch's core table, and those of backward ops.

The table is asked for ops that reach the trace; what torch takes apart before, by functions of its
own, is in `composites.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.nn import functional

from aotc.aot.capture.aten_graph import memory_order
from aotc.aot.capture.custom_ops import base_name
from aotc.aot.capture.imports.table import (
    DEVIATIONS,
    INDEXED_WHOLE,
    OTHERWISE_DECOMPOSED,
    SUMS_OF_PRODUCTS,
)
from aotc.aot.dynamo import activations, attention, foreach, lookups, pooling
from aotc.aot.dynamo.random_ops import DROPOUT_MASK

aten = torch.ops.aten
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
Table = dict[Any, Callable[..., Any]]


def _name(op: Any) -> str:
    return str(op.name()).removeprefix("aten::") if hasattr(op, "name") else ""


@functools.cache
def decompositions() -> Table:
    """Op → its arithmetic, for forward and backward graphs."""
    core = core_aten_decompositions()
    whole = {*INDEXED_WHOLE, *DEVIATIONS, *SUMS_OF_PRODUCTS, *OTHERWISE_DECOMPOSED}
    table: Table = {op: row for op, row in core.items() if not whole & {_name(op), base_name(op)}}
    table.update(get_decompositions([aten.native_batch_norm]))
    table.update(pooling.GRADIENTS)
    table.update(activations.GRADIENTS)
    table.update(lookups.GRADIENTS)
    table.update(foreach.decompositions())
    table[aten._efficientzerotensor.default] = torch.zeros  # gradients of steps
    table[aten._scaled_dot_product_flash_attention_for_cpu.default] = attention.forward
    table[aten._scaled_dot_product_flash_attention_for_cpu_backward.default] = attention.backward
    table[aten._softmax_backward_data.default] = _softmax_backward
    table[aten._transformer_encoder_layer_fwd.default] = _encoder_layer
    table[aten._trilinear.default] = _products_of_three
    table[aten._weight_norm_interface_backward.default] = _weight_norm_backward
    table[aten.diagonal_scatter.default] = _diagonal_scatter
    table[aten.dist.default] = _distance
    table[aten._cdist_backward.default] = _distances_backward
    table[aten.masked_scatter_backward.default] = _masked_scatter_backward
    table[aten.put.default] = _put
    table[aten.bernoulli.default] = _bernoulli(core[aten.bernoulli.default])
    table[aten.native_dropout.default] = _dropout
    table[aten.native_dropout_backward.default] = _dropout_backward
    return table


def _softmax_backward(gradient: Tensor, weights: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """P ∘ (g - Σ g ∘ P), as eager's kernel: g ∘ P - P Σ g ∘ P loses a difference of small terms."""
    share = (gradient * weights).sum(dim, keepdim=True)
    return ((gradient - share) * weights).to(dtype)


def _products_of_three(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    without_first: Sequence[int],
    without_second: Sequence[int],
    without_third: Sequence[int],
    added: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """The sum over the dims `added` of three tensors' product, each without some of the dims:
    `nn.Bilinear` and its gradients, as products of matrices."""
    lacking = (without_first, without_second, without_third)
    dims = range(first.dim() + len(without_first))
    letters = ["".join(_LETTERS[dim] for dim in dims if dim not in row) for row in lacking]
    result = "".join(_LETTERS[dim] for dim in dims if dim not in added)
    return torch.einsum(f"{','.join(letters)}->{result}", first, second, third)


def _distance(left: Tensor, right: Tensor, p: float = 2) -> Tensor:
    return torch.linalg.vector_norm(left - right, p)


def _distances_backward(
    gradient: Tensor, left: Tensor, right: Tensor, p: float, distances: Tensor
) -> Tensor:
    """Of the distances of all rows to all rows, in those of `left`: g · sign(x) · (|x| / d)^(p-1)
    for a difference x; nothing where the distance is 0."""
    away = left.unsqueeze(-2) - right.unsqueeze(-3)
    whole, gradient = distances.unsqueeze(-1), gradient.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(left)
    if p == 1:
        share = away.sign()
    elif p == 2:
        share = away / whole
    elif math.isinf(p):
        share = away.sign() * (away.abs() == whole)
    else:
        share = away.sign() * (away.abs() / whole) ** (p - 1)
    return torch.where((whole == 0) | (away == 0), 0.0, gradient * share).sum(-2)


def _masked_scatter_backward(gradient: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The gradients that a mask shows, in order, as the source's; others go behind its end."""
    count = math.prod(sizes)
    shown = mask.expand_as(gradient).flatten()
    places = torch.where(shown, shown.long().cumsum(0) - 1, count)
    whole = gradient.new_zeros(count + 1).scatter(0, places, gradient.flatten())
    return whole.narrow(0, 0, count).reshape(sizes)


def _put(data: Tensor, places: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """The elements at places of the flat tensor."""
    flat = data.flatten().index_put((places.flatten(),), source.flatten(), accumulate)
    return flat.reshape(data.shape)


def _bernoulli(of_comparison: Callable[..., Any]) -> Callable[..., Any]:
    """Of chances: on the CPU eager compares as many numbers; on a CUDA device its kernel gives
    threads numbers in another order, and the op stays."""

    def called(data: Tensor, **named: Any) -> Any:
        return NotImplemented if data.is_cuda else of_comparison(data, **named)

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


def _weight_norm_backward(
    gradient: Tensor, direction: Tensor, size: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Of `size · direction / norms`, where the norms are over all dims but one."""
    others = [axis for axis in range(direction.dim()) if axis != dim % direction.dim()]
    norms = norms.to(direction.dtype)
    along = (gradient * direction).sum(others, keepdim=True) / norms
    return size / norms * (gradient - direction * (along / norms)), along


def _diagonal_scatter(
    data: Tensor, source: Tensor, offset: int = 0, first: int = 0, second: int = 1
) -> Tensor:
    """Each place of a plane asks the diagonal, by its row or, below the main one, by its column."""
    if not source.shape[-1]:  # the offset is beyond the plane: there is no place to ask of
        return data.clone()
    planes = data.movedim((first, second), (-2, -1))
    rows = torch.arange(planes.shape[-2], device=data.device).unsqueeze(1)
    columns = torch.arange(planes.shape[-1], device=data.device)
    places, axis = (rows.squeeze(1), -1) if offset >= 0 else (columns, -2)
    values = source.index_select(-1, places.clamp(max=source.shape[-1] - 1)).unsqueeze(axis)
    return torch.where(columns - rows == offset, values, planes).movedim((-2, -1), (first, second))


def _encoder_layer(
    source: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Any:
    """The layer that `nn.TransformerEncoder` calls whole in inference; NotImplemented with masks,
    after which it changes rows that are padding."""
    if mask is not None or source.dim() != 3:
        return NotImplemented

    def attend(x: Tensor) -> Tensor:
        parts = functional.linear(x, qkv_weight, qkv_bias).chunk(3, -1)
        heads = (part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(*heads)
        return functional.linear(seen.transpose(1, 2).flatten(2), proj_weight, proj_bias)

    def feed(x: Tensor) -> Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        inner = functional.gelu(inner) if use_gelu else inner.relu()
        return functional.linear(inner, ffn_weight_2, ffn_bias_2)

    first = (source.shape[-1:], norm_weight_1, norm_bias_1, eps)
    second = (source.shape[-1:], norm_weight_2, norm_bias_2, eps)
    if norm_first:
        middle = source + attend(functional.layer_norm(source, *first))
        return middle + feed(functional.layer_norm(middle, *second))
    middle = functional.layer_norm(source + attend(source), *first)
    return functional.layer_norm(middle + feed(middle), *second)
