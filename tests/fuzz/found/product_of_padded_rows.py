"""A row of AVX2 that a mask leaves out in part: LLVM read it whole."""

import torch
import torch.nn.functional as F


def model(x0, x1):
    v0 = F.pad(x0, [2, 1, 2, 1], value=2.0)
    v1 = v0 @ x1
    return (v1,)


example_inputs = (
    torch.arange(2).reshape((1, 2)).to(torch.float64),
    torch.arange(5).reshape((5, 1)).to(torch.float64),
)
