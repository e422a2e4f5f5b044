"""Black-Scholes prices of a million options: no neural network, a plain function of tensors."""

import math

import torch


def normal_distribution(x):
    return 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def model(spot, strike, years, rate, volatility):
    """Prices of European calls and puts, each option with its own five numbers."""
    spread = volatility * torch.sqrt(years)
    upper = (torch.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / spread
    lower = upper - spread
    discounted = strike * torch.exp(-rate * years)
    call = spot * normal_distribution(upper) - discounted * normal_distribution(lower)
    put = discounted * normal_distribution(-lower) - spot * normal_distribution(-upper)
    return call, put


def example_inputs(options=1_000_000):
    generator = torch.Generator().manual_seed(1)

    def between(low, high):
        return torch.rand(options, generator=generator) * (high - low) + low

    return {
        "spot": between(50.0, 150.0),
        "strike": between(50.0, 150.0),
        "years": between(0.1, 2.0),
        "rate": between(0.0, 0.1),
        "volatility": between(0.1, 0.6),
    }
