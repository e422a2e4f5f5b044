"""Corners of one element: torch.export had the scale of more, which divides by none."""

import torch
import torch.nn.functional as F


def model(x3):
    v7 = F.interpolate(x3, size=None, scale_factor=1.5, mode="linear", align_corners=True)
    return (v7,)


example_inputs = (
    torch.randn((1, 1, 2), generator=torch.Generator().manual_seed(9093)).to(torch.float32),
)
dynamic_shapes = ({2: torch.export.Dim.AUTO},)
