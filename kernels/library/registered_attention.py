"""`attention` behind transformers' registry of attention functions, under the name `aotc`.

Masks are those that transformers makes for torch's `scaled_dot_product_attention`: none where all
keys are seen, or those up to the query. One that is a sliding window and nothing else is compared
once when it is made, and marked. A call with another mask, with dropout, or with something that
`attention` does not take goes to transformers' function for torch's. A batch of packed sequences,
whose offsets transformers' data collators give (`cu_seq_lens_q`, …), goes to `attention_varlen`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from aotc.kernels.library.attention import attention, attention_varlen
from aotc.kernels.library.checks import FLOATS

NAME = "aotc"
INSTEAD_OF = "sdpa"
"""transformers' name of the function that this one stands for."""
_WINDOW = "aotc_window"
"""Attribute of a mask that is a causal sliding window; what is made of it does not have it."""
_ROWS = 1024
"""Of a mask that are compared at a time."""


def register() -> None:
    """Make the name known to transformers, which is imported; again is nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, attention_mask)


def attention_mask(*arguments: Any, **named: Any) -> Tensor | None:
    """transformers' mask for torch's function, marked where it is a causal window alone."""
    from transformers import AttentionMaskInterface

    made: Tensor | None = AttentionMaskInterface()[INSTEAD_OF](*arguments, **named)
    window: int = named.get("local_size") or 0
    is_read = window and not torch.compiler.is_compiling()
    if made is not None and is_read and _is_window(made, window):
        setattr(made, _WINDOW, window)
    return made


def _is_window(mask: Tensor, window: int) -> bool:
    """Whether each query sees the keys less than `window` before it, itself, and no others."""
    if mask.dim() != 4 or mask.dtype != torch.bool or mask.shape[-1] != mask.shape[-2]:
        return False
    key = torch.arange(mask.shape[-1], device=mask.device)
    are_equal = []
    for first in range(0, mask.shape[-2], _ROWS):
        query = key[first : first + _ROWS, None]
        expected = (key <= query) & (key > query - window)
        are_equal.append((mask[..., first : first + _ROWS, :] == expected).all())
    return bool(torch.stack(are_equal).all()) if are_equal else False


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """[batch, heads, T, D], [batch, groups, S, D] twice → [batch, T, heads, DV], and no weights."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    is_packed = others.get("cu_seq_lens_q") is not None and query.shape[0] == 1
    window = _window(attention_mask, query, key)
    if (
        dropout
        or any(others.get(name) is not None for name in ("softcap", "position_bias", "s_aux"))
        or others.get("output_attentions", False)
        or not query.dtype == key.dtype == value.dtype
        or query.dtype not in FLOATS
        or not (query.shape[0] == key.shape[0] == value.shape[0])
        or (attention_mask is not None and not is_packed and window is None)
    ):
        from transformers import AttentionInterface

        found: tuple[Tensor, Tensor | None] = AttentionInterface()[INSTEAD_OF](
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
            is_causal=is_causal, **others,
        )  # fmt: skip
        return found
    if is_packed:
        q, k, v = (each[0].transpose(0, 1) for each in (query, key, value))
        out = attention_varlen(
            q, k, v, others["cu_seq_lens_q"], others["cu_seq_lens_k"], others["max_length_q"],
            others["max_length_k"], causal, others.get("sliding_window"), scaling,
        )  # fmt: skip
        return out.unsqueeze(0), None
    # One query stands behind all keys, where torch's alignment would put it at the first one.
    causal = window is not None or bool(causal and query.shape[2] > 1)
    out = attention(query, key, value, causal, window, scaling)
    return out.transpose(1, 2).contiguous(), None


def _window(mask: Tensor | None, query: Tensor, key: Tensor) -> int | None:
    """The window that a mask of these queries and keys is marked with."""
    if mask is None or mask.shape[-2:] != (query.shape[2], key.shape[2]):
        return None
    window: int | None = getattr(mask, _WINDOW, None)
    return window
