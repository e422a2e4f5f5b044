"""`flex_attention` as arithmetic: softmax(mod(q·kᵀ·scale) where not masked, else -∞)·v.

The op has its score and mask functions as graphs on single numbers. A trace inside of
`flex_attention_traced` sees these on whole tensors in place of the op. What they compute of places
alone becomes the mask of our attention, of which no element lies in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._higher_order_ops.flex_attention import flex_attention

PLACES = 4  # of a score: batch, head, query and key
torchs_own = flex_attention.py_kernels[DispatchKey.Autograd]


def _for_all(function: Callable[..., Tensor], of_score: bool, others: int) -> Callable[..., Tensor]:
    """A score or mask function over all batches, heads, queries and keys at once."""
    for axis in reversed(range(PLACES)):
        places = [0 if place == axis else None for place in range(PLACES)]
        axes = (*([0] if of_score else []), *places, *[None] * others)
        function = torch.vmap(function, in_dims=axes)
    return function


def arithmetic(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: Sequence[Any],
    scale: float,
    kernel_options: Any,
    score_buffers: Sequence[Any] = (),
    mask_buffers: Sequence[Any] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """What the op gives: the result, and of each row the logarithm to base 2 of its sum and its
    largest score, divided by ln 2. Blocks that `block_mask` leaves out are hidden by its function.

    A row that sees nothing is 0, its logarithm -∞.
    """
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    heads, batches = query.shape[1] // key.shape[1], query.shape[0]
    key, value = (
        each.repeat_interleave(heads, 1).expand(batches, -1, -1, -1) for each in (key, value)
    )
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * scale
    places = [torch.arange(extent, device=query.device) for extent in scores.shape]
    with TransformGetItemToIndex():
        changed = _for_all(score_mod, True, len(score_buffers))(scores, *places, *score_buffers)
        seen = _for_all(block_mask[-1], False, len(mask_buffers))(*places, *mask_buffers)
    scores = torch.where(seen, changed.to(wide), -math.inf)
    result = torch._safe_softmax(scores, -1).to(query.dtype) @ value.to(query.dtype)
    logarithm, largest = scores.logsumexp(-1), scores.amax(-1)
    return _lying_as(query, result), logarithm / math.log(2), largest / math.log(2)


def _lying_as(query: Tensor, result: Tensor) -> Tensor:
    """A tensor whose dims have the queries' order by falling stride, as torch gives it."""
    order = sorted(range(query.dim()), key=lambda axis: -query.stride(axis))
    back = sorted(range(query.dim()), key=order.__getitem__)
    return result.permute(order).contiguous().permute(back)


@contextmanager
def flex_attention_traced(
    is_taken: Callable[[Tensor], bool] = lambda query: True,
) -> Iterator[None]:
    """Inside the block traces see arithmetic in place of the op where its queries are taken."""

    def traced(query: Tensor, *given: Any) -> Any:
        return (arithmetic if is_taken(query) else torchs_own)(query, *given)

    _put(traced)
    try:
        yield
    finally:
        _put(torchs_own)


def _put(kernel: Callable[..., Any]) -> None:
    flex_attention.py_kernels[DispatchKey.Autograd] = kernel
    flex_attention._dispatch_cache.clear()
