"""Kernels that put rows in order: every way, every element type, beside torch's stable sort."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

from aotc.aot.pipeline import BuildOptions, build
from aotc.runtime import load

# (rows, elements, wanted): by rank, one after the other, by digits, a part of them, below a bound.
WAYS = ((3, 5, 5), (70, 40, 3), (3, 300, 300), (3, 300, 200), (3, 300, 20), (5, 2000, 40))
KINDS = ("float64", "bfloat16", "float16", "int32", "int16", "int8", "uint8")
SPEC = """
import torch

WAYS, KINDS = {ways}, {kinds}

def model(*xs):
    xs, found = list(xs), []
    for rows, count, wanted in WAYS:
        floats, integers = xs.pop(0), xs.pop(0)
        down = torch.sort(floats, dim=1, descending=True, stable=True).indices
        found += [down[:, :wanted] if wanted == count else torch.topk(floats, wanted).indices]
        found += [torch.sort(integers, dim=1, stable=True).indices[:, :wanted]]
        found += [torch.topk(integers, wanted, largest=False).indices]
    for x in xs:
        for descending in (False, True):
            found += [torch.sort(x, dim=1, descending=descending, stable=True).indices]
    return tuple(found)

torch.manual_seed(0)
example_inputs = tuple(
    torch.randn(rows, count) if kind == "float" else torch.randint(-99, 99, (rows, count))
    for rows, count, _ in WAYS
    for kind in ("float", "integer")
) + tuple((torch.randn(2, 130) * 9).abs().to(getattr(torch, kind)) for kind in KINDS)
"""


def drawn(example, generator):
    """Ties, NaN of both signs, infinities, zeros of both signs, and the ends of integers."""
    if not example.dtype.is_floating_point:
        ends = torch.iinfo(example.dtype)
        x = torch.randint(-5, 5, example.shape, generator=generator).to(example.dtype)
        x[0, 0], x[0, -1] = ends.max, ends.min
        return x
    x = (torch.randn(example.shape, generator=generator) * 9).round().to(example.dtype)
    columns = torch.randperm(example.shape[1], generator=generator)[:4]
    special = torch.tensor([math.nan, -math.nan, math.inf, -math.inf], dtype=example.dtype)
    x[0, columns] = special[: len(columns)]
    x[-1, columns[:2]] = torch.tensor([-0.0, 0.0], dtype=example.dtype)[: len(columns[:2])]
    return x


def expected(xs):
    """Stable orders; torch's topk leaves open which of equal elements it names."""
    xs, found = list(xs), []
    for _, _, wanted in WAYS:
        floats, integers = xs.pop(0), xs.pop(0)
        for x, descending in ((floats, True), (integers, False), (integers, False)):
            order = torch.sort(x, dim=1, descending=descending, stable=True).indices
            found.append(order[:, :wanted])
    for x in xs:
        for descending in (False, True):
            found.append(torch.sort(x, dim=1, descending=descending, stable=True).indices)
    return found


def test_every_way_and_every_type_beside_torch(tmp_path, cache):
    text = SPEC.format(ways=WAYS, kinds=KINDS)
    (tmp_path / "orders.py").write_text(text)
    names: dict = {}
    exec(text, names)
    build(
        str(tmp_path / "orders.py"), tmp_path / "bundle", ["cpu"], BuildOptions(cache, tune="off")
    )
    generator = torch.Generator().manual_seed(1)
    with load(tmp_path / "bundle") as program:
        for _ in range(20):
            xs = [drawn(example, generator) for example in names["example_inputs"]]
            for number, (found, order) in enumerate(zip(program(*xs), expected(xs), strict=True)):
                assert torch.equal(found, order), number
