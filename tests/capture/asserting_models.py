"""Models that raise for some data; pytest writes the assertions of its own files anew."""

# ruff: noqa: PT018, RET506  what models have

import torch
from torch.nn import functional

LARGEST = 10


def compared(x, labels=None):
    if labels is not None and labels.max() >= LARGEST:
        raise ValueError(f"label of {LARGEST} or more")
    return x * 2


def asserted(x, labels):
    assert (x > -9).all() and torch.isfinite(x).all(), "not in range"
    assert not (labels < 0).any()
    return x + 1


def negated(x, labels):
    if not bool((x < 9).all()):
        raise RuntimeError
    return x


def either(x, labels):
    if x.dim() != 2 or (x > 9).any() or (x < -9).any():
        raise ValueError("out of range")
    elif labels.sum() < 0:
        raise ValueError("labels")
    return x


def of_the_library(x, labels):
    return functional.gaussian_nll_loss(x, x * 2, x.abs() + 0.1, full=True)


def both(x):
    if (x > 9).any() and (x < -9).any():  # one of them alone does not raise
        raise ValueError
    return x


def one_of(x):
    assert (x > 0).any() or (x < -5).any()
    return x


def whole(x):
    assert bool((x > 0).any() or (x < -5).any())
    return x


def other(x):
    if x.sum() > 0:
        return x
    raise ValueError


def caught(x):
    try:
        if x.sum() > 100:
            raise ValueError
    except ValueError:
        return x / x.sum()
    return x
