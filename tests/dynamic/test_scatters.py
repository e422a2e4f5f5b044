"""Scatters whose dims vary, built for each instruction set: right at every size, and refused where
eager raises."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

from aotc.aot.pipeline import BuildOptions, build
from aotc.runtime import load
from aotc.runtime.drivers.cpu import driver
from aotc.runtime.errors import InputError

SCATTERS = """
import torch

def model(x, i, y, row, j):
    added = torch.scatter_add(x, 0, i, y)
    put = torch.index_put(x, (j, j), y[0, 0] + row[0])
    return added, torch.select_scatter(added, row, 0, 1), put, torch.scatter(x, 1, i % 3, 2.0)

example_inputs = (
    torch.randn(5, 7), torch.randint(0, 4, (5, 7)), torch.randn(5, 7), torch.randn(7),
    torch.arange(5),
)
dynamic_shapes = tuple({d: torch.export.Dim.AUTO for d in range(x.dim())} for x in example_inputs)
"""


def arguments(rows, columns, deep, wide, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(rows, columns, generator=generator),
        torch.randint(0, 4, (deep, wide), generator=generator),
        torch.randn(rows, columns, generator=generator),
        torch.randn(columns, generator=generator),
        torch.arange(min(rows, columns)),
    )


@pytest.mark.parametrize(("row", "feature"), [("x86-64-v3", "avx2"), ("x86-64-v4", "avx512vl")])
def test_scatters_of_any_sizes(row, feature, tmp_path, cache):
    if feature not in driver.features():
        pytest.skip(f"this machine has no {feature}")
    (tmp_path / "scatters.py").write_text(SCATTERS)
    names: dict = {}
    exec(SCATTERS, names)
    options = BuildOptions(cache, tune="off")
    build(str(tmp_path / "scatters.py"), tmp_path / "bundle", [f"cpu-{row}"], options)
    with load(tmp_path / "bundle") as program:
        for sizes in ((5, 7, 5, 7), (9, 8, 5, 3), (4, 70, 4, 65), (33, 4, 20, 4)):
            given = arguments(*sizes)
            for found, expected in zip(program(*given), names["model"](*given), strict=True):
                torch.testing.assert_close(found, expected)
        x, i, y, _, j = arguments(5, 7, 5, 7)
        for wrong in (torch.randn(8), torch.randn(6)):
            with pytest.raises(InputError):
                program(x, i, y, wrong, j)
