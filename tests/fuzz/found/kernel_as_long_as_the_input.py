"""A convolution whose window has a size of the call, at a stride that it may be less than."""

import torch
import torch.nn.functional as F


def model(x, kernel, filters):
    return (F.conv_transpose2d(x, kernel), F.conv2d(kernel, filters, None, 2, 1))


example_inputs = (
    torch.arange(3.0).reshape(1, 1, 3, 1),
    torch.arange(2.0).reshape(1, 1, 2, 1),
    torch.arange(4.0).reshape(2, 1, 2, 1),
)
dynamic_shapes = ({2: torch.export.Dim.AUTO}, {}, {})
