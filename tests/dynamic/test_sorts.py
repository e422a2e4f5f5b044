"""Sorts along dims without an upper bound: one bundle, right at every length."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

from aotc.aot.pipeline import BuildOptions, build
from aotc.runtime import load

SORTS = """
import torch

def model(x):
    return *torch.sort(x, dim=1, descending=True, stable=True), x.median(1).values

example_inputs = (torch.randn(2, 12),)
dynamic_shapes = ({1: torch.export.Dim.AUTO},)
"""


def test_rows_of_any_length_are_sorted(tmp_path, cache):
    (tmp_path / "sorts.py").write_text(SORTS)
    names: dict = {}
    exec(SORTS, names)
    options = BuildOptions(cache, tune="off")
    report = build(str(tmp_path / "sorts.py"), tmp_path / "bundle", ["cpu"], options)
    assert all(check.is_ok for check in report.targets[0].checks)
    generator = torch.Generator().manual_seed(0)
    with load(tmp_path / "bundle") as program:
        for length in (1, 2, 255, 257, 1500):
            x = torch.randn(2, length, generator=generator).round(decimals=1)  # many ties
            x[0, length // 2] = math.nan
            for found, expected in zip(program(x), names["model"](x), strict=True):
                assert torch.equal(found.nan_to_num(99.0), expected.nan_to_num(99.0))
