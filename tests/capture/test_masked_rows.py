"""`y[mask] = f(x[mask])`: what is done to selected rows each by itself, and what is not."""

import operator

import numpy
import pytest

from aotc.aot.ir.reference import interpret

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402

from aotc.aot import errors  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
STEPS = (
    torch.sin, torch.exp, torch.neg, torch.sign, torch.tanh, torch.Tensor.abs,
    lambda x: x * 2 - 1, lambda x: x.clamp(-1, 1), lambda x: 1 / x, lambda x: x.half().float(),
    lambda x: torch.where(x > 0.5, x, -x), lambda x: x.square().clone(),
)  # fmt: skip
JOINS = (operator.add, operator.mul, torch.maximum, lambda x, y: x / y)


def drawn(seed):
    """A program of some writes, each of selected rows that some steps changed."""
    choice = numpy.random.default_rng(seed)

    def pick(rows):
        return rows[choice.integers(len(rows))]

    kinds = {0: lambda x: x > 0, 1: lambda x: x[:, 0, 0] > 0, 2: lambda x: x[..., 0] > 0.5}
    kind = int(choice.integers(3))
    plan = [
        (int(choice.integers(3)), [pick(STEPS) for _ in range(choice.integers(4))], pick(JOINS))
        for _ in range(choice.integers(1, 4))
    ]

    def program(x, z):
        result = x.clone()
        for form, steps, join in plan:
            mask = kinds[kind](result if form == 2 else x)
            mask = ~mask if form == 1 else mask
            rows = z[mask]
            for step in steps:
                rows = step(rows)
            if form != 1:
                rows = join(rows, x[mask])
            result[mask] = rows
            result[mask] += 1
        return result

    return program


def examples(count):
    generator = torch.Generator().manual_seed(11)
    for place in range(count):
        x, z = (torch.randn(5, 3, 2, generator=generator) for _ in range(2))
        yield (x.abs() + 1, z) if place == 1 else (-x.abs(), z) if place == 2 else (x, z)


@pytest.mark.parametrize("seed", range(24))
def test_drawn_programs(seed):
    program = drawn(seed)
    first, *others = examples(4)
    captured = capture(spec_of(program, first))
    for x, z in (first, *others):  # masks of some rows, of all and of none
        (found,) = interpret(captured.graph, [x.numpy(), z.numpy()])
        numpy.testing.assert_allclose(found, program(x, z).numpy(), rtol=1e-3, atol=1e-5)


def test_rows_of_a_batch_that_varies():
    def program(x, z):
        y = x.clone()
        y[x > 0] = z[x > 0].sin()
        return y

    rows = Dim("rows", max=32)
    spec = spec_of(program, next(examples(1)), dynamic_shapes=({0: rows}, {0: rows}))
    assert "where" in str(capture(spec).graph)


REFUSED = {
    "a sum": lambda x, m: x[m] - x[m].sum(),
    "an order": lambda x, m: x[m].sort().values,
    "a scan": lambda x, m: x[m].cumsum(0),
    "other rows": lambda x, m: x[m].flip(0),
    "a count": lambda x, m: x[m] * x[m].shape[0],
    "an index": lambda x, m: x[x[m].abs().long() % 2][..., 0, 0],
    "a quotient of whole numbers": lambda x, m: (x[m].long() // x[m].long()).float(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_the_rows_alone_is_refused(name):
    def program(x):
        y, mask = x.clone(), x > 0
        y[mask] = REFUSED[name](x, mask)
        return y

    with pytest.raises(errors.UnsupportedError):
        capture(spec_of(program, (torch.rand(5, 3, 2) + 1,)))


def test_rows_that_the_model_gives_are_refused():
    with pytest.raises(errors.UnsupportedError):
        capture(spec_of(lambda x: x[x > 0].sin(), (torch.randn(5),)))


def test_what_the_model_checks_of_their_number_is_not_dropped():
    def program(x):
        y, rows = x.clone(), x[x > 0]
        torch._check(rows.shape[0] >= 2)
        y[x > 0] = rows * 2
        return y

    with pytest.raises(errors.UnsupportedError):
        capture(spec_of(program, (torch.rand(5) + 1,)))
