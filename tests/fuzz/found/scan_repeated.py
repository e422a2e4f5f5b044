"""A scan along a dim without a bound, repeated: its outermost level has constants of 64 bits."""

import torch


def model(x):
    return (x.cumsum(-1).repeat_interleave(3, 0),)


example_inputs = (torch.arange(40.0),)
dynamic_shapes = ({0: torch.export.Dim.AUTO},)
