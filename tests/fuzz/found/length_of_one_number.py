"""`--family movement --seed 20261122078`: the norm along a dim of 1 squared what has no square."""

import torch


def model(x):
    found = torch.linalg.vector_norm(x, 2, 0, keepdim=True)
    return (found * 2**20, x.norm(dim=0), torch.linalg.vector_norm(x[:, :, None], 3, (0, 2)))


example_inputs = (torch.tensor([[1.1754943508222875e-38, -3.4e38, 1e-30, -2.5, 0.0]]),)
