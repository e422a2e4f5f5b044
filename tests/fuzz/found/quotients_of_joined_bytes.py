"""movement 202611279200283 on a GPU: beside elements that are left out, a quotient was 255."""

import torch


def model(x1):
    v1 = x1 // (x1 | 1)
    v2 = torch.tensor_split(v1, 2, 1)[-1]
    v3 = -v2
    return torch.cat([v3, v3, v2, v2], 2), v2


example_inputs = (
    torch.randint(
        0, 10, (32, 11, 3), generator=torch.Generator().manual_seed(1063), dtype=torch.uint8
    ),
)
