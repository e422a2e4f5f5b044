"""Floats seen as whole numbers: their bits, which wider floats do not have."""

import torch


def model(x, whole):
    bits = x.abs().view(torch.int32)
    return (bits * 2.0, torch.cat([bits.bool(), x], 2), whole.view(torch.float32) * 0.5)


example_inputs = (torch.tensor([[[0.5, -2.0, 3.0]]]), torch.tensor([[1065353216, 0, 7]]).int())
