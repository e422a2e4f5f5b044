"""Attention by the kernels that torch ships for CUDA: cuDNN's and FlashAttention's, of 16 bits.

Which of them computes a call is decided as torch's own `scaled_dot_product_attention` decides, so
that its settings hold here. Of what they lack, sinks are added: a sink of logit z takes the share
exp(z) of a row's sum of exponentials,

    sums' = log(exp(sums) + exp(z)),    out' = out · exp(sums - sums'),

and the gradients of q, k and v are what the same kernels give for sums' and out', since of all
other queries and keys they use these alone.
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


class Form(NamedTuple):
    """What is asked of attention besides its tensors. window: 0 where all is seen."""

    is_causal: bool
    window: int
    scale: float


def choice(q: Tensor, k: Tensor, v: Tensor, form: Form) -> SDPBackend | None:
    """Which of torch's kernels compute [batch, heads, T, D] with [batch, groups, S, D], or None."""
    if not is_gpu(q.device) or not _is_taken(q, k, v, form):
        return None
    capability = torch.cuda.get_device_capability(q.device)
    if capability < _FIRST_CAPABILITY:
        return None
    by, width = _wanted(q, k, v, form), q.shape[3]
    if by is None or width <= WIDEST:
        return by
    is_flash = width <= WIDEST_OF_FLASH.get(capability, WIDEST) and _is_flash_enabled()
    return SDPBackend.FLASH_ATTENTION if is_flash else None


def _wanted(q: Tensor, k: Tensor, v: Tensor, form: Form) -> SDPBackend | None:
    """What torch itself would take of both; for windows it has no public function."""
    if form.window:
        return SDPBackend.FLASH_ATTENTION if _is_flash_enabled() else None
    groups = {"enable_gqa": q.shape[1] != k.shape[1]}
    found = SDPBackend(
        torch._fused_sdp_choice(q, k, v, None, 0.0, form.is_causal, scale=form.scale, **groups)
    )
    return found if found in _BOTH else None


def _is_flash_enabled() -> bool:
    return torch.backends.cuda.flash_sdp_enabled()


def _is_taken(q: Tensor, k: Tensor, v: Tensor, form: Form) -> bool:
    """Whether both may be asked. Sums of gradients have no fixed order there."""
    if q.element_size() != 2 or torch.are_deterministic_algorithms_enabled():
        return False
    if form.scale <= 0 or not q.numel() or not k.numel():
        return False
    is_aligned = q.shape[2] == k.shape[2] or not (form.is_causal or form.window)
    return is_aligned and q.shape[3] == v.shape[3] and all(map(_is_of_aligned_rows, (q, k, v)))


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


def _by_rows(*tensors: Tensor) -> tuple[Tensor, ...]:
    """[batch, heads, T, D] ↔ [batch, T, heads, D]."""
    return tuple(each.transpose(1, 2) for each in tensors)


def _sides(form: Form) -> dict[str, int]:
    """How many keys before and behind its own a query sees."""
    return {
        "window_size_left": form.window - 1,
        "window_size_right": 0 if form.is_causal else form.window - 1,
    }
