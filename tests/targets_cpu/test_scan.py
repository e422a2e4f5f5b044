"""Kernels that make scans: every kind, direction and element type, beside torch in f64."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

from aotc.aot.pipeline import BuildOptions, build
from aotc.runtime import load

# Along rows of blocks and a part; less than a block, and more rows than programs; columns, and more
# of them than a block has.
TYPES = {
    ((2, 700), 1): ("float32", "float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool"),
    ((70, 9), 1): ("float32",),
    ((2, 3000), 1): ("float32", "float16", "int32"),  # of which few blocks change an extreme
    ((2, 150, 5), 1): ("float64", "float16", "int32"),
    ((1, 70, 90), 1): ("float32",),
}
WAYS = [(shape, dim, name) for (shape, dim), names in TYPES.items() for name in names]
SPEC = """
import torch

WAYS = {ways}

def results(x, dim):
    def reverse(function):
        return function(x.flip(dim), dim).flip(dim)

    found = [torch.cumsum(x, dim), torch.cumprod(x, dim), reverse(torch.cumsum)]
    if x.dtype.is_floating_point:
        found += [torch.logcumsumexp(x, dim), reverse(torch.logcumsumexp)]
    found += [*torch.cummax(x, dim), *torch.cummin(x, dim)]
    # Alone: places, also as other than i64, and values.
    found += [torch.cummax(x * 2, dim).indices, torch.cummin(-x.float(), dim).indices.int()]
    return found + [torch.cummax(-x.float(), dim).values, torch.cummin(-x.float(), dim).values]

def model(*xs):
    return [results(x, dim) for x, (_, dim, _) in zip(xs, WAYS)]

torch.manual_seed(0)
example_inputs = tuple(
    (torch.randn(shape) * 3).round().to(getattr(torch, name))
    for shape, _, name in WAYS
)
"""


@pytest.fixture(scope="module")
def spec():
    names: dict = {}
    exec(SPEC.format(ways=WAYS), names)
    return names


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, cache):
    folder = tmp_path_factory.mktemp("scans")
    path = folder / "scans.py"
    path.write_text(SPEC.format(ways=WAYS))
    build(str(path), folder / "bundle", ["cpu"], BuildOptions(cache, tune="off"))
    return folder / "bundle"


@pytest.fixture(scope="module")
def program(bundle):
    with load(bundle) as program:
        yield program


def drawn(example, generator, scale):
    if not example.dtype.is_floating_point:
        return torch.randint(0, 5, example.shape, generator=generator).to(example.dtype)
    return (torch.randn(example.shape, generator=generator) * scale).to(example.dtype)


def bounds(x, dim):
    """By how much sums, products and exponents of sums may be away: the bound of Higham (Accuracy
    and Stability of Numerical Algorithms, 4.2 and 3.1) for any order in the accumulator's type, and
    a rounding to the result's."""
    n, wide = x.shape[dim], x.double()
    unit = torch.finfo(torch.float64 if x.dtype.itemsize >= 4 else torch.float32).eps
    rounding = torch.finfo(x.dtype).eps

    def of_sum(expected, terms):
        return n * unit * terms + rounding * expected.abs()

    total = of_sum(wide.cumsum(dim), wide.abs().cumsum(dim))
    terms = wide.abs().flip(dim).cumsum(dim).flip(dim)
    reverse = of_sum(wide.flip(dim).cumsum(dim).flip(dim), terms)
    # A product of two factors below the smallest normal number is as far away as that.
    tiny = torch.finfo(x.dtype).tiny
    product = wide.cumprod(dim).abs() * (n * unit + rounding) + tiny
    # The exponentials' own errors, of their arguments and the functions, add to those of the sum.
    far = (n + 8) * unit * (1 + wide.abs().amax())
    exponents = [far + rounding * torch.logcumsumexp(x.double(), dim).abs()]
    exponents += [far + rounding * torch.logcumsumexp(wide.flip(dim), dim).flip(dim).abs()]
    return [total, product, reverse, *exponents]


@pytest.mark.parametrize("scale", [1.0, 400.0])
def test_every_kind_and_type(program, spec, scale):
    generator = torch.Generator().manual_seed(1)
    xs = [drawn(each, generator, scale) for each in spec["example_inputs"]]
    for x, (_, dim, _), found in zip(xs, WAYS, program(*xs), strict=True):
        exact = spec["results"](x, dim)
        if not x.dtype.is_floating_point:
            assert all(map(torch.equal, found, exact)), (x.dtype, x.shape)
            continue
        of_floats = spec["results"](x.double(), dim)
        for number, bound in enumerate(bounds(x, dim)):
            largest = torch.finfo(x.dtype).max
            fits = of_floats[number].abs() < largest
            away = (found[number].double() - of_floats[number]).abs()
            assert bool((away <= bound)[fits].all()), (x.dtype, x.shape, number)
        assert all(map(torch.equal, found[5:], exact[5:])), (x.dtype, x.shape)


def test_sums_of_exponentials_are_exact_where_the_others_add_nothing(program, spec):
    """Elements that are hidden, at -inf, before and behind the first that is not."""
    generator = torch.Generator().manual_seed(3)
    xs = [drawn(each, generator, 1.0) for each in spec["example_inputs"]]
    ways = [(x, dim) for x, (_, dim, _) in zip(xs, WAYS, strict=True) if x.is_floating_point()]
    for x, dim in ways:
        x.fill_(-math.inf)
        x.select(dim, 3).normal_(generator=generator).mul_(1e-30)  # less than a rounding of 1
        x.select(dim, 7).normal_(generator=generator)
    found = [each for each in program(*xs) if each[0].is_floating_point()]
    for (x, dim), rows in zip(ways, found, strict=True):
        expected = torch.logcumsumexp(x, dim)
        assert torch.equal(rows[3].narrow(dim, 0, 7), expected.narrow(dim, 0, 7)), x.dtype
        expected = torch.logcumsumexp(x.flip(dim), dim).flip(dim)
        assert torch.equal(rows[4].narrow(dim, 4, 4), expected.narrow(dim, 4, 4)), x.dtype


def test_sums_of_exponentials_before_a_far_larger_one_are_as_exact(program, spec):
    """A larger element behind them rounds none of the results before it."""
    generator = torch.Generator().manual_seed(4)
    xs = [drawn(each, generator, 1.0) for each in spec["example_inputs"]]
    ways = [(x, dim) for x, (_, dim, _) in zip(xs, WAYS, strict=True) if x.is_floating_point()]
    for x, dim in ways:
        x.select(dim, 7).fill_(550.0 if x.dtype.itemsize >= 4 else 55.0)
    found = [each for each in program(*xs) if each[0].is_floating_point()]
    for (x, dim), rows in zip(ways, found, strict=True):
        unit = torch.finfo(torch.float64 if x.dtype.itemsize >= 4 else torch.float32).eps
        expected = torch.logcumsumexp(x.double(), dim).narrow(dim, 0, 7)
        away = (rows[3].narrow(dim, 0, 7).double() - expected).abs()
        assert bool((away <= 16 * unit + torch.finfo(x.dtype).eps * expected.abs()).all()), x.dtype


def test_special_values_are_those_of_torch(program, spec):
    generator = torch.Generator().manual_seed(2)
    special = (math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0)
    for _ in range(4):
        xs = [drawn(each, generator, 1.0) for each in spec["example_inputs"]]
        for x in xs:
            if x.dtype.is_floating_point:
                x.round_()
                flat = x.view(-1)
                places = torch.randperm(flat.numel(), generator=generator)[: len(special)]
                flat[places] = torch.tensor(special, dtype=x.dtype)
        for x, (_, dim, _), found in zip(xs, WAYS, program(*xs), strict=True):
            for number, (mine, exact) in enumerate(
                zip(found, spec["results"](x, dim), strict=True)
            ):
                where = x.dtype, x.shape, number
                if not exact.dtype.is_floating_point or number >= 5:
                    torch.testing.assert_close(mine, exact, rtol=0, atol=0, equal_nan=True)
                    continue
                assert torch.equal(mine.isnan(), exact.isnan()), where
                assert torch.equal(mine == math.inf, exact == math.inf), where
                assert torch.equal(mine == -math.inf, exact == -math.inf), where


def test_no_number_of_threads_changes_a_bit(bundle, spec):
    generator = torch.Generator().manual_seed(3)
    xs = [drawn(each, generator, 1.0) for each in spec["example_inputs"]]
    found = []
    for threads in (1, 4):
        with load(bundle, threads=threads) as program:
            found.append(program(*xs))
    for one, four in zip(*found, strict=True):
        assert all(map(torch.equal, one, four))
