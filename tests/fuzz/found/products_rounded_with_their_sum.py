"""movement 20261126188 dynamic: a product that is infinite alone, of which the sum is a number."""

import torch


def model(x, y, z):
    return (
        torch.addcmul(x, y, z, value=3),
        torch.add(x, z, alpha=-1.5),
        torch.sub(x, z, alpha=1.5),
        torch.lerp(x, y, 0.3),
        torch.lerp(x, y, y.abs()),
        torch.addcmul(x.half(), y.half(), x.half()),
    )


_large = torch.tensor([3.4e38, -3e38, 2e38, 1.5]).repeat(4)
example_inputs = (_large, torch.linspace(-0.9, 0.9, 16), _large.clone())
