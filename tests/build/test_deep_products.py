"""Products of many terms of one sign: their roundings do not grow with the depth."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, scaled_dot_product_attention

from aotc.aot.dynamo import aotc
from aotc.aot.pipeline import BuildOptions, build
from aotc.runtime import load
from aotc.runtime.drivers.cpu.driver import features

pytestmark = [pytest.mark.torch, pytest.mark.triton]
MOST_UNITS = 16  # in the last place; one long sum of 16,384 terms is off by 1,000
TARGETS = ["cpu-x86-64-v3", "cpu-x86-64-v4"]
drawn = functools.partial(torch.randn, generator=torch.Generator().manual_seed(7))


def near_one(*shape: int) -> torch.Tensor:
    """Numbers that nearly repeat along the last dim, so that roundings of their sums agree."""
    noise = torch.rand(shape, generator=torch.Generator().manual_seed(len(shape)))
    return 1 + drawn(*shape[:-1], 1).abs() + noise / 1000


def units_off(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest relative difference, in units of the last place of f32 at 1."""
    return float(((found - exact) / exact).abs().max()) * 2**23


def check_target(target: str) -> None:
    if target == "cpu-x86-64-v4" and "avx512f" not in features():
        pytest.skip("needs AVX-512")


def attention(depth: int) -> tuple[torch.Tensor, ...]:
    values = near_one(1, 2, 16, depth).mT.contiguous()
    return drawn(1, 2, 20, 16), torch.zeros(1, 2, depth, 16), values


def windows(depth: int) -> tuple[torch.Tensor, ...]:
    channels = depth // 8
    return near_one(1, 10, 10, channels).permute(0, 3, 1, 2), torch.ones(24, channels, 3, 3)


CASES = {
    "rows": (torch.matmul, lambda depth: (torch.ones(33, depth), near_one(70, depth).mT)),
    "few rows": (torch.matmul, lambda depth: (near_one(3, depth), torch.ones(depth, 40))),
    "a row": (torch.matmul, lambda depth: (near_one(1, depth), torch.ones(depth, 65))),
    "batches": (torch.matmul, lambda depth: (near_one(3, 9, depth), torch.ones(3, depth, 20))),
    "attention": (scaled_dot_product_attention, attention),
    "windows": (conv2d, windows),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("depth", [1000, 4099, 16384])
@pytest.mark.parametrize("case", CASES)
def test_of_inputs(case, depth, target):
    check_target(target)
    compute, inputs = CASES[case]
    given = inputs(depth)
    torch._dynamo.reset()
    options = {"target": target, "fallback": "error"}
    found = torch.compile(lambda *given: compute(*given), backend=aotc, options=options)(*given)
    exact = compute(*(each.double() for each in given))
    own, eager = (units_off(each, exact) for each in (found, compute(*given)))
    print(f"{case}, {depth} terms, {target}: {own:.1f} units, eager {eager:.1f}")  # pytest -s
    assert own <= MOST_UNITS


SPEC = """
import torch

model = torch.nn.Linear({depth}, 48, bias=False)
torch.nn.init.ones_(model.weight)
example_inputs = (torch.ones({rows}, {depth}),)
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_of_weights(rows, target, tmp_path, cache):
    check_target(target)
    depth = 16384
    (tmp_path / "spec.py").write_text(SPEC.format(rows=rows, depth=depth))
    options = BuildOptions(cache_folder=cache)
    build(str(tmp_path / "spec.py"), tmp_path / "out", (target,), options)
    given = near_one(rows, depth)
    exact = nn.functional.linear(given.double(), torch.ones(48, depth).double())
    with load(tmp_path / "out") as program:
        assert units_off(program(given), exact) <= MOST_UNITS
