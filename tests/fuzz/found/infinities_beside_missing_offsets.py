"""convolutions 20261200057: phases of a transposed convolution have unequal offsets."""

import torch
import torch.nn.functional as F


def model(x1, x6, x7, x8):
    return (
        F.conv_transpose2d(x1, x6, None, 3, 0, 2, 2, 1),
        F.conv_transpose2d(x1, x7, None, 2, 1, 1, 1, 1),
        F.conv_transpose1d(x1[0], x8, None, 4, 0, 1),
    )


def special(*shape):
    values = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0, 0.5, -2.5]
    chosen = torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(5236))
    return torch.tensor(values, dtype=torch.float64)[chosen]


example_inputs = (
    special(1, 2, 5, 4),
    torch.arange(2).reshape((2, 1, 1, 1)).to(torch.float64),
    torch.arange(1, 37).reshape((2, 2, 3, 3)).to(torch.float64),
    torch.arange(1, 61).reshape((5, 2, 6)).to(torch.float64),
)
