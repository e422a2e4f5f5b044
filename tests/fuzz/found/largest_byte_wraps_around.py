"""Found beside it: what follows a reduction of bytes in its kernel was computed in i32."""

import torch


def model(x):
    return (x.amax(1) + 200 < x.amax(1), x.amin(1) - 1 > x.amin(1))


example_inputs = (torch.tensor([[7, 250, 3], [100, 0, 99]], dtype=torch.uint8),)
