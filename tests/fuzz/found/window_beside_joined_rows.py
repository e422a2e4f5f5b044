"""A window that begins in the padding of joined rows, with places that lie outside always."""

import torch
import torch.nn.functional as F


def model(x):
    rows = torch.cat([x, x], 2)
    return (F.max_pool2d(rows, 2, 3, 1, 1, True), F.avg_pool2d(rows, 2, 3, 1, True))


example_inputs = (torch.randn((1, 1, 1, 4), generator=torch.Generator().manual_seed(1)),)
