"""pointwise 20261123032: a sign given to an f64 number that is rounded to f16 asked for a routine
that no process has."""

import torch


def model(x, y):
    shares = torch.div(y, torch.erf(torch.logsumexp(x, [0])), rounding_mode="floor")
    return shares, torch.erf(x).half(), torch.copysign(x, -x).half(), torch.erf(x).bfloat16()


example_inputs = (
    torch.tensor([2049.0000001, 0.0, -0.0, 65519.999, 65520.0, -1e-8], dtype=torch.float64),
    torch.arange(1).reshape(1, 1).half(),
)
