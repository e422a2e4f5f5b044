"""scans 20261210050 and …113 dynamic: the last of three parts is empty at some sizes."""

import torch


def model(x, y):
    return (
        torch.tensor_split(x, 3, 2)[-1].cumsum(2),
        torch.chunk(y - y, 3, -3)[-1],
    )


example_inputs = (torch.arange(84.0).reshape(1, 7, 6, 2), torch.arange(64.0).reshape(16, 1, 4))
dynamic_shapes = ({1: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO}, {2: torch.export.Dim.AUTO})
