"""convolutions 202611272058: LLVM read the place of a row and that of the next one as one number,
and the process died, where two rows were multiplied at once."""

import torch


def model(x, weight, bias):
    return (torch.nn.functional.conv2d(x, weight, bias, 2, 1),)


example_inputs = (
    torch.linspace(-1, 1, 560).reshape(1, 16, 5, 7),
    torch.linspace(-1, 1, 432).reshape(3, 16, 3, 3),
    torch.ones(3),
)
