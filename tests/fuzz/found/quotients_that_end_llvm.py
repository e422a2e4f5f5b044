"""sorts 20261126425: LLVM ends the process that compiles a kernel for AVX-512."""

import torch


def model(x0, x1, x2):
    v0 = torch.diagonal(x1, -2, 0, 2)
    v1 = torch.as_strided(v0.contiguous(), (2, 5), (1, 2))
    v2 = torch.sort(v1, dim=0, descending=True, stable=True).values
    v3 = torch.logical_xor(x0, x0)
    v4 = v2.unfold(1, 2, 3)
    v5 = v3[..., x2]
    v6 = torch.movedim(v4, -2, 1)
    v7 = torch.diagonal(v6, 1, 0, 2)
    v8 = v7.ceil()
    v9 = torch.topk(v8, 2, 0, largest=True).values
    v10 = torch.kthvalue(v9, 2, 0).values
    v11 = torch.chunk(v3, 2, 0)[-1]
    return (
        v5,
        v10,
        v11,
    )


example_inputs = (
    torch.randint(-9, 10, (5,), generator=torch.Generator().manual_seed(803)).to(torch.int32),
    torch.randn((7, 4, 3), generator=torch.Generator().manual_seed(3696)).to(torch.bfloat16),
    torch.randint(0, 5, (4,), generator=torch.Generator().manual_seed(3283)).to(torch.int64),
)
