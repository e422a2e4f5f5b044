"""`--family attention`: scores of f16 that f32 holds and f16 does not."""

import torch
import torch.nn.functional as F


def model(x, y):
    few, many = x @ x.mT, y + y
    return (
        F.scaled_dot_product_attention(few, few, few),
        F.scaled_dot_product_attention(many, many, many),
    )


example_inputs = (
    30 * torch.tensor([[[[1.5], [-1.25]]]]).half(),
    torch.randn(2, 2, 40, 32, generator=torch.Generator().manual_seed(1)).mul(60).half(),
)
