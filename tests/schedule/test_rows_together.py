"""Reductions over the same rows of one tensor are one kernel, unless one waits for another."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import make
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from test_schedule import graph_of, kinds, operand


def _kinds(*outputs, traits=CPU):
    return kinds(schedule(graph_of(*outputs), traits))


def _deviation(x):
    away = x - b.reduce("sum", x, [1]) * (1 / x.shape[1])
    return b.reduce("sum", away * away, [1])


def test_a_sum_a_deviation_and_the_extremes_are_one_kernel():
    x = operand("x", 3, 30_000)
    extremes = [b.extreme(op, x, [1]) for op in ("max", "min")]
    outputs = [b.reduce("sum", x, [1]), _deviation(x), *extremes]
    (group,) = schedule(graph_of(*outputs), CPU).groups
    # What only its own nodes read, whether there is NaN, it does not store.
    assert [root.node for root in group.roots] == sorted(outputs, key=list(group.nodes).index)


@pytest.mark.parametrize("axis", [0, 1])
def test_columns_as_well_as_rows(axis):
    x = operand("x", 40, 50)
    assert _kinds(b.reduce("sum", x, [axis]), b.reduce("max", abs(x), [axis])) == ["row"]


def test_other_rows_and_other_tensors_stay_apart():
    x, y = operand("x", 40, 50), operand("y", 40, 50)
    assert _kinds(b.reduce("sum", x, [0]), b.reduce("max", x, [1])) == ["row", "row"]
    assert _kinds(b.reduce("sum", x, [1]), b.reduce("max", y, [1])) == ["row", "row"]


@pytest.mark.parametrize(("axis", "length"), [(1, 50), (0, 50), (1, 30_000)])
def test_a_gpu_has_one_kernel_too(axis, length):
    x = operand("x", 400, length)
    both = b.reduce("sum", x, [axis]), b.reduce("max", x, [axis])
    assert _kinds(*both, traits=GPUS[90]) == ["row"]


@pytest.mark.parametrize(
    ("shape", "traits"),
    [((40, 64), GPUS[90]), ((5, 8, 64), GPUS[90]), ((40, 64), CPU)],
    ids=["sm_90", "sm_90, reshaped", "cpu"],
)
def test_a_norm_is_stored_beside_its_statistics(shape, traits):
    """As graphs of training have it: the mean and the factor are kept for the backward graph. On a
    GPU the rows may have another shape than the result."""
    x, weight = operand("x", *shape), operand("weight", 1, 64)
    mean, factor, away = _normed(x)
    result = b.cast(b.reshape(away, (40, 64)) * weight, "bf16")
    (group,) = schedule(graph_of(mean, factor, result), traits).groups
    assert {root.node.type.numel for root in group.roots} == {40, 40 * 64}


def _normed(x):
    last = x.type.rank - 1
    mean = b.reduce("sum", x, [last]) * (1 / x.shape[last])
    away = x - mean
    squares = b.reduce("sum", away * away, [last]) * (1 / x.shape[last])
    factor = b.unary("rsqrt", squares + 1e-5)
    return mean, factor, away * factor


def test_a_norm_of_another_tensor_is_not_stored_beside_the_statistics():
    x, y = operand("x", 40, 64), operand("y", 40, 64)
    mean, factor, _ = _normed(x)
    found = schedule(graph_of(mean, factor, (y - mean) * factor), GPUS[90])
    assert kinds(found) == ["row", "pointwise"]


def test_one_that_waits_for_another_through_a_product_stays_apart():
    x = operand("x", 40, 40)
    sums = b.reduce("sum", x, [1])
    product = make("matmul", (b.expand(sums, (40, 40)), operand("w", 40, 40)), {})
    found = _kinds(sums, b.reduce("max", x + product, [1]))
    assert sorted(found) == ["matmul", "row", "row"]


def test_what_another_kernel_reads_is_stored():
    x = operand("x", 40, 50)
    mean = b.reduce("sum", x, [1]) * 0.02
    product = make("matmul", (b.expand(mean, (40, 50)) * 2.0, operand("w", 50, 30)), {})
    groups = schedule(graph_of(_deviation(x), b.reduce("max", x - mean, [1]), product), CPU).groups
    stored = {root.node for group in groups for root in group.roots}
    assert all(node in stored for group in groups for node in group.reads if node.inputs)


def test_two_pairs_that_would_wait_for_each_other_are_not_both_joined():
    x, y = operand("x", 40, 50), operand("y", 40, 50)
    first, last = b.reduce("sum", x, [1]), b.reduce("sum", y, [1])
    # The other of each pair waits for the first of the other pair.
    outputs = (
        first,
        last,
        b.reduce("max", x * b.reduce("max", y + first, [1]), [1]),
        b.reduce("max", y * b.reduce("min", x + last, [1]), [1]),
    )
    schedule(graph_of(*outputs), CPU)  # kernels have an order, else it raises `InternalError`


SPEC = """
import torch

def model(x, y, z):
    found = []
    for rows, dim in ((x, -1), (y, 0), (z, (0, 2))):
        found += [rows.mean(dim), rows.std(dim), rows.amax(dim), rows.amin(dim)]
        found += [rows.abs().sum(dim), torch.logsumexp(rows, dim)]
    return (*found, x.argmax(-1), x.softmax(-1), x.prod(-1))

example_inputs = (torch.randn(3, 30_007), torch.randn(900, 70), torch.randn(5, 4, 333))
"""


def test_their_numbers_beside_torch(tmp_path, cache):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from aotc.aot.pipeline import BuildOptions, build
    from aotc.runtime import load

    (tmp_path / "rows.py").write_text(SPEC)
    names: dict = {}
    exec(SPEC, names)
    build(str(tmp_path / "rows.py"), tmp_path / "bundle", ["cpu"], BuildOptions(cache, tune="off"))
    with load(tmp_path / "bundle") as program:
        for special in (0.0, math.nan, math.inf, -math.inf):
            xs = [torch.randn(each.shape) for each in names["example_inputs"]]
            for x in xs:
                x.view(-1)[x.numel() // 2] = special
            exact = names["model"](*(x.double() for x in xs))
            for number, (found, wide) in enumerate(zip(program(*xs), exact, strict=True)):
                scale = wide.abs()[wide.isfinite()].max().item() if wide.isfinite().any() else 1.0
                torch.testing.assert_close(
                    found.double(),
                    wide.double(),
                    # A sum of 30,007 in four chains of 16 lanes: 470 roundings and few more.
                    rtol=0 if number == 18 else 500 * 2**-24,
                    atol=0 if number == 18 else 500 * 2**-24 * scale,
                    equal_nan=True,
                    msg=lambda text, number=number: f"output {number}: {text}",
                )


@pytest.mark.parametrize("traits", [GPUS[90], CPU], ids=["sm_90", "cpu"])
@pytest.mark.parametrize("move", ["flip", "gather"])
def test_rows_that_are_moved_are_not_stored_beside_their_statistics(move, traits):
    """They need those of other rows."""
    x, places = operand("x", 40, 64), operand("places", 40, 64, dtype="i64")
    mean, factor, away = _normed(x)
    attrs = {"axes": (0,)} if move == "flip" else {"axis": 0}
    moved = make(move, (away, places) if move == "gather" else (away,), attrs)
    groups = schedule(graph_of(mean, factor, moved), traits).groups
    assert all(moved not in [root.node for root in group.roots] for group in groups
               if group.kind == "row")  # fmt: skip
