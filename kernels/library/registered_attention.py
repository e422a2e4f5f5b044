"""`attention` behind transformers' registry of attention functions, under the name `aotc`.

Masks are those that transformers makes for torch's `scaled_dot_product_attention`: none where all
keys are seen, or those up to the query. A call with a mask, with dropout, or with something that
`attention` does not take goes to transformers' function for torch's. A batch of packed sequences,
whose offsets transformers' data collators give (`cu_seq_lens_q`, …), goes to `attention_varlen`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from aotc.kernels.library.attention import attention, attention_varlen
from aotc.kernels.library.checks import FLOATS

NAME = "aotc"
INSTEAD_OF = "sdpa"
"""transformers' name of the function that this one stands for."""


def register() -> None:
    """Make the name known to transformers, which is imported; again is nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, AttentionMaskInterface()[INSTEAD_OF])


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
    if (
        dropout
        or others.get("softcap") is not None
        or others.get("position_bias") is not None
        or others.get("output_attentions", False)
        or not query.dtype == key.dtype == value.dtype
        or query.dtype not in FLOATS
        or not (query.shape[0] == key.shape[0] == value.shape[0])
        or (attention_mask is not None and not is_packed)
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
    causal = bool(causal and query.shape[2] > 1)
    out = attention(query, key, value, causal, None, scaling)
    return out.transpose(1, 2).contiguous(), None
