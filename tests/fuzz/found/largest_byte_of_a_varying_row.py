"""`--family reductions --seed 3000 --dynamic`: an accumulator of bytes became an i32 in a loop."""

import torch


def model(x, at):
    return (torch.gather(x, -1, at.long().remainder(x.shape[-1])).max(),)


example_inputs = (
    torch.tensor([7, 250, 3], dtype=torch.uint8),
    torch.tensor([1, -1, 5], dtype=torch.int16),
)
dynamic_shapes = ({0: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO})
