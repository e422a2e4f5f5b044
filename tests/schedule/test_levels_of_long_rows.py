"""Few long rows on a GPU: each kernel goes over them once, so that many programs share a row."""

from __future__ import annotations

import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.lower.row.source import levels_of, row_shape, statistics
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS

TRAITS = GPUS[90]


def log_sum_exp(x):
    peak = build.extreme("max", x, (1,))
    total = build.reduce("sum", build.unary("exp", x - peak), (1,))
    return [build.unary("log", total) + peak]


def deviation_of_scaled(x):
    """Of three passes: a mean, the greatest distance from it, the sum of squares of the scaled."""
    distance = x - build.mean(x, (1,))
    peak = build.extreme("max", build.unary("abs", distance), (1,))
    scaled = distance / peak
    return [build.unary("sqrt", build.reduce("sum", scaled * scaled, (1,))) * peak]


def variance(x):
    distance = x - build.mean(x, (1,))
    return [build.reduce("sum", distance * distance, (1,)) * 0.5]


def kernels(make_outputs, rows, extent, dtype="f32"):
    x = make("input", (), {"name": "x", "dtype": dtype, "shape": (rows, extent)})
    outputs = tuple(make_outputs(x))
    names = tuple(f"out{at}" for at in range(len(outputs)))
    return schedule(Graph((x,), outputs, ("x",), names, {}), TRAITS).groups


def passes(group):
    """Over a row."""
    return row_shape(group, statistics(levels_of(group), group.rounded)).levels


@pytest.mark.parametrize("extent", [50_021, 300_007])
@pytest.mark.parametrize("rows", [1, 3, 16])
@pytest.mark.parametrize("made", [log_sum_exp, deviation_of_scaled, variance])
def test_each_kernel_goes_over_a_row_once(made, rows, extent):
    groups = kernels(made, rows, extent)
    assert all(group.kind == "row" and passes(group) == 1 for group in groups)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_one_pass_gives_stays_one_kernel(dtype):
    """A mean with a variance, and a maximum with a sum of exponentials where it is a number."""
    assert len(kernels(variance, 16, 50_021, dtype)) == 1


def test_many_rows_are_not_cut():
    assert len(kernels(deviation_of_scaled, 4096, 50_021)) == 1
