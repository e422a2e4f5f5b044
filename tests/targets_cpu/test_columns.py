"""Reductions along a dim that is not the last one, of every op and element type, on both widths of
vectors: strips of columns, parts of rows by programs, and reductions that share their loops."""

from __future__ import annotations

import math
import random

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

from aotc.aot.pipeline import BuildOptions, build
from aotc.runtime import load

# Fewer columns than a vector; a vector and a part; strips and all parts of one; several strips with
# few rows; rows that programs share; middle dims; one column of many rows.
SHAPES = [(300, 5), (77, 21), (130, 333), (40, 1500), (2500, 70), (3, 90, 41), (2, 700, 1), (5, 64)]
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int8", "uint8", "bool")
TYPES = (*FLOATS, *INTEGERS)
WAYS = [(shape, name) for at, shape in enumerate(SHAPES) for name in TYPES[at % 2 :: 2]] + [
    ((2500, 70), "bool"), ((130, 333), "int16"), ((2500, 333), "float32"), ((900, 300), "int8"),
]  # fmt: skip
SPEC = """
import torch

WAYS = {ways}

def results(x, dim):
    found = []
    if x.dtype == torch.bool:
        return [x.any(dim), x.all(dim), x.sum(dim), x.any(dim) & ~x.all(dim)]
    found += [x.sum(dim), x.amax(dim), x.amin(dim), (x.amax(dim), x.amin(dim), x.sum(dim))]
    found += [x.argmax(dim), x.argmin(dim), (x > 1).sum(dim), (x > 1).any(dim), (x > -4).all(dim)]
    found += [*x.max(dim)]
    if x.dtype.is_floating_point:
        found += [x.mean(dim), x.norm(dim=dim), x.logsumexp(dim), torch.var(x, dim)]
        found += [(x * 0.01 + 1).prod(dim), x.isnan().sum(dim)]
        found.append((x * x).sum(dim) / x.abs().amax(dim))
    else:
        found += [x.prod(dim), (x & 3).amax(dim)]
    return found

def model(*xs):
    return [results(x, len(shape) - 2) for x, (shape, _) in zip(xs, WAYS)]

torch.manual_seed(0)
example_inputs = tuple(
    (torch.randn(shape) * 3).round().to(getattr(torch, name)) for shape, name in WAYS
)
"""
TARGETS = ("cpu-x86-64-v3", "cpu-x86-64-v4")
# Each way for one target, the other half nightly: every shape and every type is there for both.
PARTS = [
    pytest.param((target, WAYS[part::2]), id=f"{target}-{part}", marks=marks)
    for at, target in enumerate(TARGETS)
    for part, marks in ((at, ()), (1 - at, pytest.mark.nightly))
]


@pytest.fixture(scope="module", params=PARTS)
def built(request, tmp_path_factory, cache):
    """The names of the model's file, its ways, and its bundle."""
    target, ways = request.param
    names: dict = {}
    text = SPEC.format(ways=ways)
    exec(text, names)
    folder = tmp_path_factory.mktemp("columns")
    path = folder / "columns.py"
    path.write_text(text)
    build(str(path), folder / "bundle", [target], BuildOptions(cache, tune="off"))
    return names, ways, folder / "bundle"


def drawn(shape, name, generator, kind):
    """Numbers, some of which are the special ones of `kind`."""
    dtype = getattr(torch, name)
    if name == "bool":
        return torch.rand(shape, generator=generator) < (0.02, 0.98, 0.5)[kind % 3]
    if not dtype.is_floating_point:
        low = 0 if name == "uint8" else -100
        return torch.randint(low, 100, shape, generator=generator).to(dtype)
    x = torch.randn(shape, generator=generator).to(dtype)
    special = ((), (math.nan,), (math.inf, -math.inf), (0.0, -0.0), (math.nan, math.inf, -0.0))
    places = random.Random(kind)
    for _ in range(7 if special[kind] else 0):
        place = tuple(places.randrange(size) for size in shape)
        x[place] = places.choice(special[kind])
    return x


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", range(5))
def test_reductions_are_torchs(built, kind, threads):
    spec, ways, bundle = built
    generator = torch.Generator().manual_seed(kind)
    inputs = [drawn(shape, name, generator, kind) for shape, name in ways]
    with load(bundle, threads=threads) as program:
        found = [program(*inputs) for _ in range(2)][-1]  # a second call finds its counters at 0
    for x, (shape, name), own in zip(inputs, ways, found, strict=True):
        wide = x.double() if x.dtype.is_floating_point else x
        dim = len(shape) - 2
        theirs, exact = leaves(spec["results"](x, dim)), leaves(spec["results"](wide, dim))
        for at, (one, other, true) in enumerate(zip(leaves(own), theirs, exact, strict=True)):
            assert (one.shape, one.dtype) == (other.shape, other.dtype), (shape, name, at)
            close(one, other, true, (shape, name, at))


def leaves(tree):
    return list(torch.utils._pytree.tree_leaves(tree))


def close(one, other, true, what):
    """Whether a result is no further from f64's than eager's, but for a few roundings."""
    if not one.is_floating_point():
        assert torch.equal(one, other), what
        return
    finite = true.isfinite()
    assert torch.equal(one.isnan(), other.isnan()), what
    odd = ~finite & ~true.isnan()
    assert torch.equal(one.double()[odd], other.double()[odd]), what
    if not finite.any():
        return
    scale = true[finite].abs().max().item() or 1.0
    away = [(each.double() - true)[finite].abs().max().item() for each in (one, other)]
    step = torch.finfo(one.dtype).eps * scale
    assert away[0] <= 2 * away[1] + 4 * step, (what, away, step)
