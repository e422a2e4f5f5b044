"""Python numbers that are arguments, sizes inside of expressions, and what torch itself refuses."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

NUMBERS = (2, 3, 0, -1, -7, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 5, 0)


def _cases():
    x = torch.arange(6.0)
    return {
        "sum": (lambda n: x + n, NUMBERS),
        "product of integers": (lambda n: x.long() * n + n, NUMBERS[:9]),
        "slice": (lambda n: x[n:] * 2, (2, 3, 0, -1, 9)),
        "fill": (lambda n: torch.full((3,), n) + x.sum(), (2, 3, 0, -1, 2**33)),
    }


@pytest.mark.parametrize("name", _cases())
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_number_of_the_call_may_be_any(fresh, name, dynamic):
    function, numbers = _cases()[name]
    compiled = torch.compile(function, backend="aotc", dynamic=dynamic)
    for number in numbers:
        torch.testing.assert_close(compiled(number), function(number), rtol=1e-6, atol=0)


SIZED = {
    "round of a size": lambda x: x * round(123.456 * x.shape[0], -1),
    "bits as integers": lambda x: (x * 2).view(torch.int32) + 1,
    "bits as shorter integers": lambda x: x.view(torch.int16) + 1,
    "bits as longer numbers": lambda x: (x * 2).view(torch.int64) + 1,
    "split": lambda x: [part * 2 for part in x.split(3)],
    "split in two": lambda x: [part * 2 for part in x.split([2, x.shape[0] - 2])],
    "chunks": lambda x: [part + 1 for part in x.chunk(3)],
}


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_inside_of_expressions(fresh, name, dynamic, caplog):
    function = SIZED[name]
    options = {"fallback": "eager"}  # Inductor's compiler takes seconds
    compiled = torch.compile(function, backend="aotc", dynamic=dynamic, options=options)
    for size in (12, 6, 18):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), function(x))
    if "round" not in name:
        assert "internal error" not in caplog.text


OF_DOUBLES = {
    "quotient": lambda x: x * (x.shape[-1] / 3),
    "power": lambda x: x * 2.5 ** x.shape[0],
    "fill": lambda x: torch.where(x > 0, x, x.shape[-1] / 3),
    "linear": lambda x: F.interpolate(x, size=[6], mode="linear"),
    "bicubic": lambda x: F.interpolate(x[None], size=[6, 9], mode="bicubic"),
}


def test_numbers_made_of_sizes_are_as_exact_as_pythons(fresh):
    def every(x):
        return [function(x) for function in OF_DOUBLES.values()]

    compiled = torch.compile(every, backend="aotc", dynamic=True, options={"fallback": "error"})
    for size in (11, 17):
        x = torch.randn(2, 3, size, dtype=torch.float64)
        for name, found, expected in zip(OF_DOUBLES, compiled(x), every(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13, msg=name)


def test_rounded_sizes(fresh):
    """torch 2.13 traces `round(x)` as `round(x, None)`: that None is no missing operand."""

    def model(x, count):
        return x[: round(count / 2 + 1)] + round(count / 2)

    compiled = torch.compile(model, backend="aotc", dynamic=True, options={"fallback": "error"})
    x = torch.zeros(5, dtype=torch.int32)
    for count in range(1, 6):
        assert torch.equal(compiled(x, count), model(x, count))


POOLS = {
    "adaptive_max_pool1d": (F.adaptive_max_pool1d, (2, 16)),
    "adaptive_max_pool2d": (F.adaptive_max_pool2d, (2, 4, 4)),
    "adaptive_max_pool3d": (F.adaptive_max_pool3d, (2, 4, 4, 4)),
    "adaptive_avg_pool2d": (F.adaptive_avg_pool2d, (2, 4, 4)),
}


@pytest.mark.parametrize("name", POOLS)
def test_what_eager_has_no_kernel_for_raises(fresh, name):
    pool, shape = POOLS[name]
    x = torch.ones(shape, dtype=torch.int64)
    with pytest.raises(NotImplementedError):
        pool(x, 2)
    with pytest.raises(NotImplementedError):
        torch.compile(lambda x: pool(x, 2), backend="aotc")(x)
