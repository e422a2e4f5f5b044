"""Scans along dims without a bound: their outermost levels have constants of 32 bits."""

import torch


def model(x, mask, source):
    rows = torch.stack([x.reshape(-1)] * 3, 1)
    return (rows.cumsum(-2).abs().cumsum(0), source.masked_scatter(mask, source.flip(0)))


example_inputs = (
    torch.arange(3.0),
    torch.tensor([[True, False, True], [False, True, True], [True, True, False]]),
    torch.arange(9).reshape(3, 3),
)
dynamic_shapes = (
    {0: torch.export.Dim.AUTO},
    {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},
    {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},
)
