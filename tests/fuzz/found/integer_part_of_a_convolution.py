"""Integer parts of convolutions: rules that compute these were left out before integer parts."""

import torch
import torch.nn.functional as F


def model(x6, v3, v5, x4):
    v4 = F.conv_transpose1d(v3, x6, None, 2, 1, 1, 1, 2)
    v15 = F.conv1d(v5, x4, None, 1, 1, 1, 1)
    return v4.frac(), v15.ceil(), v15.to(torch.int32)


example_inputs = (
    torch.arange(4).reshape((2, 1, 2)).to(torch.float32),
    torch.arange(2).reshape((1, 2, 1)).to(torch.float32),
    torch.randn((1, 1, 1), generator=torch.Generator().manual_seed(995)),
    torch.randn((1, 1, 1), generator=torch.Generator().manual_seed(1)),
)
