"""`--family fourier --seed 972352`: the sine of half a turn was not 0, which a quotient showed."""

import torch


def model(x):
    found = torch.view_as_real(torch.fft.rfft(x, dim=1))
    return (found, torch.signbit(found[..., 1] / 0.5), torch.fft.fft2(x).imag == 0)


example_inputs = (torch.tensor([[1.5, -2.25], [0.375, 7.0]]),)
