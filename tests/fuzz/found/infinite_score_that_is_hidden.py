"""attention 20261125261 dynamic: a mask adds -inf, which of inf makes NaN; and scores in f64 that
are below the least f32."""

import torch
import torch.nn.functional as F


def model(query, key, value, mask, large):
    hidden = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0)
    least = F.scaled_dot_product_attention(large, large, value, scale=-1.0)
    return hidden, least


inf = float("inf")
example_inputs = (
    torch.tensor([[[-inf, 0.5], [-1.0, 0.0], [0.5, inf]]], dtype=torch.float64),
    torch.tensor([[[-1.0, 2.0], [0.25, 0.5]]], dtype=torch.float64),
    torch.tensor([[[3.0], [5.0]]], dtype=torch.float64),
    torch.tensor([[False, True], [True, False], [True, True]]),
    torch.full((1, 2, 2), 1e150, dtype=torch.float64),
)
