"""Attention by the kernels that torch ships for CUDA: cuDNN's and FlashAttention's, of 16 bits.

Which of them computes a call is decided as torch's own `scaled_dot_product_attention` decides, so
that its settings hold here. Of what they lack, sinks are added: a sink of logit z takes the share
exp(z) of a row's sum of exponentials,

    sums' = log(exp(sums) + exp(z)),    out' = out · exp(sums - sums'),

and the gradients of q, k and v are what the same kernels give for sums' and out', since of all
other queries and keys they use these alone.

Packed sequences are FlashAttention's. It trusts the offsets: they are made to rise, and to stay
inside the tensors, before it reads them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from aotc.kernels.library.devices import is_gpu

WIDEST = 128
"""Elements of a head's row, with gradients."""
WIDEST_OF_FLASH = dict.fromkeys(((8, 0), (9, 0), (10, 0), (10, 3)), 256)
"""By compute capability, where FlashAttention takes more."""
_ALIGNMENT = 8  # elements: rows begin at multiples of 16 bytes
_FIRST_CAPABILITY = (8, 0)
_BOTH = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION)


class Packing(NamedTuple):
    """Sequences one behind the other. starts: offsets, one more than sequences; longest: lengths
    that none is above."""

    query_starts: Tensor
    key_starts: Tensor
    longest_queries: int
    longest_keys: int


class Form(NamedTuple):
    """What is asked of attention besides its tensors. window: 0 where all is seen."""

    is_causal: bool
    window: int
    scale: float


def choice(q: Tensor, k: Tensor, v: Tensor, form: Form) -> SDPBackend | None:
    """Which of torch's kernels compute [batch, heads, T, D] with [batch, groups, S, D], or None."""
    is_aligned = q.shape[2] == k.shape[2] or not (form.is_causal or form.window)
    if not is_aligned or not _is_taken(q, k, v, form):
        return None
    by = _wanted(q, k, v, form)
    if by is None or q.shape[3] <= WIDEST:
        return by
    return SDPBackend.FLASH_ATTENTION if _is_flash(q) else None


def takes_packed(q: Tensor, k: Tensor, v: Tensor, packing: Packing, form: Form) -> bool:
    """Whether FlashAttention computes [queries, heads, D] with [keys, groups, D]. It takes a window
    that is as long as the keys for none on that side, also where queries stand before the keys."""
    is_empty = packing.query_starts.shape[0] < 2 or not min(packing[2:])
    is_wide = not form.is_causal and form.window > packing.longest_keys
    return not is_empty and not is_wide and _is_taken(q, k, v, form) and _is_flash(q)


def _is_flash(q: Tensor) -> bool:
    capability = torch.cuda.get_device_capability(q.device)
    is_enabled = torch.backends.cuda.flash_sdp_enabled()
    return is_enabled and q.shape[-1] <= WIDEST_OF_FLASH.get(capability, WIDEST)


def _wanted(q: Tensor, k: Tensor, v: Tensor, form: Form) -> SDPBackend | None:
    """What torch itself would take of both; for windows it has no public function."""
    if form.window:
        return SDPBackend.FLASH_ATTENTION if _is_flash(q) else None
    groups = {"enable_gqa": q.shape[1] != k.shape[1]}
    try:
        found = torch._fused_sdp_choice(
            q, k, v, None, 0.0, form.is_causal, scale=form.scale, **groups
        )
    except RuntimeError:  # none of those that the user has left
        return None
    by = SDPBackend(found)
    return by if by in _BOTH else None


def _is_taken(q: Tensor, k: Tensor, v: Tensor, form: Form) -> bool:
    """Whether both may be asked. Sums of gradients have no fixed order there."""
    if not is_gpu(q.device) or q.element_size() != 2 or form.scale <= 0:
        return False
    if torch.are_deterministic_algorithms_enabled() or not q.numel() or not k.numel():
        return False
    if torch.cuda.get_device_capability(q.device) < _FIRST_CAPABILITY:
        return False
    return q.shape[-1] == v.shape[-1] and all(map(_is_of_aligned_rows, (q, k, v)))


def _is_of_aligned_rows(x: Tensor) -> bool:
    if x.shape[-1] % _ALIGNMENT or x.stride(-1) != 1 or x.data_ptr() % (2 * _ALIGNMENT):
        return False
    pairs = zip(x.shape[:-1], x.stride()[:-1], strict=True)
    return all(size == 1 or (step > 0 and step % _ALIGNMENT == 0) for size, step in pairs)


def forward(
    by: SDPBackend, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, form: Form
) -> tuple[Tensor, Tensor]:
    """The result, and the logarithms of the rows' sums, f32 [batch, heads, T]."""
    aten, causal = torch.ops.aten, form.is_causal
    if by == SDPBackend.CUDNN_ATTENTION:
        out, sums = aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, causal, False, scale=form.scale
        )[:2]
    elif form.window:
        out, sums = aten._flash_attention_forward(
            *_by_rows(q, k, v), None, None, q.shape[2], k.shape[2], 0.0, causal, False,
            scale=form.scale, **_sides(form),
        )[:2]  # fmt: skip
        out = out.transpose(1, 2)
    else:
        out, sums = aten._scaled_dot_product_flash_attention(
            q, k, v, 0.0, causal, False, scale=form.scale
        )[:2]
    sums = sums.reshape(q.shape[:3])
    if sinks is not None:
        with_sink = torch.logaddexp(sums, sinks.float().unsqueeze(-1))
        out.mul_(torch.exp(sums - with_sink).unsqueeze(-1))
        sums = with_sink
    return out, sums


def gradients(
    by: SDPBackend, gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor,
    form: Form,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Of q, k and v, from what `forward` gave."""
    aten, causal, (t, s) = torch.ops.aten, form.is_causal, (q.shape[2], k.shape[2])
    if not _is_of_aligned_rows(gradient):
        gradient = gradient.contiguous()
    seed, offset = q.new_empty((2,), dtype=torch.int64).unbind()  # of dropout: not read
    given = gradient, q, k, v, out
    if by == SDPBackend.CUDNN_ATTENTION:
        found = aten._scaled_dot_product_cudnn_attention_backward(
            *given, sums.unsqueeze(-1), seed, offset, None, None, None, t, s, 0.0, causal,
            scale=form.scale,
        )  # fmt: skip
    elif form.window:
        rows = aten._flash_attention_backward(
            *_by_rows(*given), sums, None, None, t, s, 0.0, causal, seed, offset,
            scale=form.scale, **_sides(form),
        )  # fmt: skip
        found = _by_rows(*rows)
    else:
        found = aten._scaled_dot_product_flash_attention_backward(
            *given, sums, None, None, t, s, 0.0, causal, seed, offset, scale=form.scale
        )
    of_q, of_k, of_v = found
    return of_q, of_k, of_v


def forward_packed(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, packing: Packing, form: Form
) -> tuple[Tensor, Tensor]:
    """The result, and the logarithms of the rows' sums, f32 [queries, heads]; zeros behind the last
    sequence."""
    starts = _safe_starts(packing, q, k)
    out, sums = torch.ops.aten._flash_attention_forward(
        q, k, v, *starts, *_longest(packing), 0.0, form.is_causal, False,
        scale=form.scale, **_sides(form),
    )[:2]  # fmt: skip
    sums = sums.t()
    if sinks is not None:
        is_blind = sums == torch.inf  # a query without a key, whose result is 0
        with_sink = torch.where(is_blind, sinks.float(), torch.logaddexp(sums, sinks.float()))
        out.mul_(torch.exp(sums - with_sink).masked_fill(is_blind, 0.0).unsqueeze(-1))
        sums = with_sink
    beyond = _beyond(q, starts[0])
    return out.masked_fill_(beyond, 0.0), sums.masked_fill(beyond.squeeze(-1), 0.0).contiguous()


def gradients_packed(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, packing: Packing,
    form: Form,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Of q, k and v, from what `forward_packed` gave; zeros behind the last sequence."""
    starts = _safe_starts(packing, q, k)
    if not _is_of_aligned_rows(gradient):
        gradient = gradient.contiguous()
    seed, offset = q.new_empty((2,), dtype=torch.int64).unbind()  # of dropout: not read
    of_q, of_k, of_v = torch.ops.aten._flash_attention_backward(
        gradient, q, k, v, out, sums.t().contiguous(), *starts, *_longest(packing), 0.0,
        form.is_causal, seed, offset, scale=form.scale, **_sides(form),
    )  # fmt: skip
    beyond = _beyond(k, starts[1])
    return (
        of_q.masked_fill_(_beyond(q, starts[0]), 0.0),
        of_k.masked_fill_(beyond, 0.0),
        of_v.masked_fill_(beyond, 0.0),
    )


def _longest(packing: Packing) -> tuple[int, int]:
    """Of one query each FlashAttention takes the rows for one a sequence, whatever the offsets."""
    return max(2, packing.longest_queries), packing.longest_keys


def _safe_starts(packing: Packing, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The offsets as i32 that do not fall and lie in the tensors, whatever is given."""
    pairs = ((packing.query_starts, q), (packing.key_starts, k))
    query_starts, key_starts = (
        starts.clamp(0, x.shape[0]).cummax(0).values.to(torch.int32) for starts, x in pairs
    )
    return query_starts, key_starts


def _beyond(x: Tensor, starts: Tensor) -> Tensor:
    """[rows, 1, 1]: which rows lie behind the last sequence."""
    return (torch.arange(x.shape[0], device=x.device) >= starts[-1]).reshape(-1, 1, 1)


def _by_rows(*tensors: Tensor) -> tuple[Tensor, ...]:
    """[batch, heads, T, D] ↔ [batch, T, heads, D]."""
    return tuple(each.transpose(1, 2) for each in tensors)


def _sides(form: Form) -> dict[str, int]:
    """How many keys before and behind its own a query sees."""
    if not form.window:
        return {}
    return {
        "window_size_left": form.window - 1,
        "window_size_right": 0 if form.is_causal else form.window - 1,
    }
