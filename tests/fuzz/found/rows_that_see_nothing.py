"""A row of scores that are all -inf, by a mask or without one, gives zeros."""

import math

import torch
import torch.nn.functional as F


def model(q, k, v, mask, added, hidden):
    seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    added = F.scaled_dot_product_attention(q, k, v, attn_mask=added)
    alone = F.scaled_dot_product_attention(hidden, k, v)
    causal = F.scaled_dot_product_attention(hidden, k, v, is_causal=True)
    return (seen, added, alone, causal)


generator = torch.Generator().manual_seed(1)
query, value = (torch.randn((1, 2, 5, 8), generator=generator) for _ in range(2))
key = torch.rand((1, 2, 5, 8), generator=generator) + 0.1
rows = torch.arange(5).unsqueeze(1) != 1
example_inputs = (
    query,
    key,
    value,
    rows.expand(5, 5).contiguous(),
    torch.zeros(5, 5).masked_fill(~rows, -math.inf),
    query.masked_fill(rows.logical_not(), -math.inf),
)
