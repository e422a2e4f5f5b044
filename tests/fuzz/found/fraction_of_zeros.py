"""movement 20261125306 dynamic, torch 2.11: the fraction of -0 is 0, and so is that of 0."""

import torch


def model(x):
    return torch.atan2(x.frac(), x), x.half().frac()


example_inputs = (torch.tensor([-0.0, 0.0, -1.0, 2.5, -2.75, float("inf"), float("nan")]),)
