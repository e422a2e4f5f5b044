"""torch's CPU attention ops in graphs of AOTAutograd: kept if aotc has kernels for them, else
decomposed.

The kernels save the log-sum-exp of each row for the gradients, so that no scores are saved. Batch,
rows and keys may be dynamic sizes. The decomposition serves the other cases: f64, few rows or keys,
a dynamic number of heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aotc.aot.capture.aten_graph import hints, memory_order
from aotc.aot.schedule.attention import LARGEST_ELEMENT

FEWEST = 16  # rows and keys of a head from which kernels save the gradients their scores
KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _has_kernels(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether `capture/imports/attention.py` imports the ops, and fast."""
    tensors = [query, key, value, *([] if mask is None else [mask])]
    if not all(type(extent) is int for each in tensors[:3] for extent in each.shape[1::2]):
        return False  # heads and their elements
    try:
        sizes = [hints(each.shape) for each in tensors]
    except (TypeError, ValueError):  # a size that depends on data
        return False
    if 0 in (extent for each in sizes for extent in each):
        return False
    if any(each.dtype not in KERNEL_DTYPES or not each.is_cpu for each in tensors):
        return False
    is_shared = query.shape[1] % key.shape[1] == 0 and key.shape[1] == value.shape[1]
    is_large = min(sizes[0][2], sizes[1][2]) >= FEWEST
    widest = max(query.shape[3], value.shape[3])
    return is_shared and is_large and widest <= LARGEST_ELEMENT


def forward(query: Tensor, key: Tensor, value: Tensor, *how: Any, **named: Any) -> Any:
    """Attention and the logarithm of its rows' sums, which the gradient reads.

    torch's own table gives the weights in place of the latter.
    """
    key, value = (_for_each_head(query, each) for each in (key, value))
    found = _scores((query, key, value), *how, **named)
    if found is None:
        return NotImplemented
    scores, _ = found
    # A row that is masked whole: finite, so that the powers are 0, and their sum divides as 1.
    highest = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).min)
    powers = torch.exp(scores - highest)
    total = powers.sum(-1, keepdim=True)
    total = torch.where(total == 0, 1.0, total)
    result = (powers / total) @ value.to(scores.dtype)
    return _as_the_queries(query, result), (highest + torch.log(total)).squeeze(-1)


def _as_the_queries(query: Tensor, result: Tensor) -> Tensor:
    """The result as torch's kernel gives it, which makes it by `empty_like` of the queries."""
    made = torch.empty_like(query)
    order = memory_order(made) or tuple(range(made.dim()))
    placed = result.to(query.dtype).permute(order).contiguous()
    return placed.permute(sorted(range(len(order)), key=order.__getitem__))


def backward(gradient: Tensor, *given: Any, **named: Any) -> Any:
    """The gradients of attention from its result and the logarithm of its rows' sums.

    With P the weights: dV = Pᵀ dO, dS = P ∘ (dO Vᵀ - rowsum(dO ∘ O)), dQ = s dS K, dK = s dSᵀ Q.
    """
    query, key, value, out, logsumexp, *how = given
    groups = key.shape[1]
    key, value = (_for_each_head(query, each) for each in (key, value))
    found = _scores((query, key, value), *how, **named)
    if found is None:
        return NotImplemented
    scores, factor = found
    weights = torch.exp(scores - logsumexp.to(scores.dtype)[..., None])
    q, k, v, o, g = (each.to(scores.dtype) for each in (query, key, value, out, gradient))
    inner = weights * (g @ v.transpose(-2, -1) - (g * o).sum(-1, keepdim=True)) * factor
    made = (inner @ k, inner.transpose(-2, -1) @ q, weights.transpose(-2, -1) @ g)
    if groups != key.shape[1]:
        shared = (each.unflatten(1, (groups, -1)).sum(2) for each in made[1:])
        made = (made[0], *shared)
    return tuple(each.to(query.dtype) for each in made)


def _for_each_head(query: Tensor, shared: Tensor) -> Tensor:
    """Keys or values with a head for each of the queries', in f64: our kernels have no f64."""
    ratio = query.shape[1] // shared.shape[1]
    is_shared = query.dtype == torch.float64 and query.shape[1] == ratio * shared.shape[1] > 0
    return shared.repeat_interleave(ratio, 1) if is_shared and ratio > 1 else shared


def _scores(
    operands: Sequence[Tensor],
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, float] | None:
    """Scaled and masked products of queries and keys, in f32 as the op has them, and their factor.

    None where the op stays: for our kernels, for Inductor with dropout.
    """
    query, key, value = operands
    if dropout_p or _has_kernels(query, key, value, attn_mask):
        return None
    if query.shape[1] != key.shape[1]:
        return None
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * factor
    if attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        rows = torch.arange(query.shape[-2], device=query.device)
        columns = torch.arange(key.shape[-2], device=query.device)
        scores = scores.masked_fill(rows[:, None] < columns, float("-inf"))
    return scores, factor
