"""A place that was read is looked up in each part of a concatenation, within the part alone."""

import torch


def model(x0, x2):
    v1 = torch.sort(x0.expand([3, -1]), dim=0, stable=True).values
    v3 = torch.sort(v1, dim=0, descending=True, stable=True).values
    v7 = torch.sort(torch.tile(v3, (3, 1)), dim=0, descending=True, stable=True).indices
    v9 = torch.median(torch.sort(v7, 1).values.flip(1), 1).values
    v10 = torch.topk(v9, 5, 0).values
    return (torch.topk(torch.cat([x0, v10, v9, v9], -1)[..., x2], 1, 0).values,)


example_inputs = (
    torch.randn((31,), generator=torch.Generator().manual_seed(6234)).to(torch.float32),
    torch.randint(0, 54, (2,), generator=torch.Generator().manual_seed(623)).to(torch.int64),
)
