"""attention 20261126549 dynamic: a sum begins with 0.0, which it stays where every term is -0.0."""

import torch
import torch.nn.functional as F


def model(x, y):
    column = x[:, :1]
    sums = (F.linear(x, y[:1]), x @ y.mT, x.sum(1), x.mean(1), x.cumsum(1), (x * y[0]).sum(1))
    sums += (column.sum(1), column.mean(1), column.cumsum(1), x.double().sum(0), x.half().sum(1))
    return tuple(each.signbit() for each in sums)


example_inputs = (torch.full((4, 2), -0.0), torch.ones(3, 2))
