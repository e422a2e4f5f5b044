"""scans 20261210056: of a row that begins with 0 and goes on with 1 the first result is 0."""

import torch


def model(x):
    return (torch.logcumsumexp(x, -1), torch.logcumsumexp(x.half(), 0))


example_inputs = (
    torch.tensor([[0.0, 0.0, 1.0, 0.0, -2.0], [0.0, 4.0, 1.0, -2.0, 1.0]]).bfloat16(),
)
