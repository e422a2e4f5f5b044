"""lookups 20261128060: -0.0 stays where no sum is written, and where only -0.0 is added."""

import torch


def model(x, places, values):
    sums = (
        x.scatter_add(0, places, values),
        x.index_add(0, places, values),
        x.index_put((places,), values, accumulate=True),
        x.scatter_reduce(0, places, values, "mean"),
        x.scatter_reduce(0, places, values, "sum", include_self=False),
    )
    return tuple(each.signbit() for each in sums)


example_inputs = (
    torch.tensor([-0.0, -0.0, -0.0, -0.0, 0.0, 0.0, 1.0, -0.0]),
    torch.tensor([1, 2, 2, 3, 3, 4, 6, 7, 7]),
    torch.tensor([-0.0, -0.0, -0.0, 0.0, -0.0, -0.0, -1.0, 2.0, -2.0]),
)
