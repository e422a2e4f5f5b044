"""Quotients of equal numbers by a root, of which the integer part is taken: 1, not 0."""

import torch


def model(x, y):
    root = (y * y).sqrt()
    return (
        torch.div(x, root, rounding_mode="trunc"),
        (x / root).reshape(-1, 8).floor(),
        (x / root).to(torch.int64),
        torch.div(x.double(), root.double(), rounding_mode="floor"),
        torch.div(x.double(), (y.double() * y).sqrt(), rounding_mode="trunc"),
    )


example_inputs = (torch.arange(1.0, 801.0), torch.arange(1.0, 801.0))
