"""states 20261130027: on a GPU a quotient less itself left what an approximate one had lost"""

import torch


def model(x0, x1, x4):
    v4 = torch.gather(x0 / x1, 0, x4)
    v5 = torch.cat([v4[:, :1] * 2, v4], 1)
    v6 = v5[:, 1:] - v4
    v7 = v4 * x1[:6]
    return (v6, v7.flip([0]) - v7)


example_inputs = (
    torch.randn((64, 1), generator=torch.Generator().manual_seed(9940)),
    torch.randn((64, 1), generator=torch.Generator().manual_seed(9592)),
    torch.randint(0, 64, (6, 1), generator=torch.Generator().manual_seed(4336)),
)
