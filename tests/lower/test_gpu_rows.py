"""GPU forms of pointwise and row kernels give the reference's numbers, run as native code here.

Programs of the form `shared` wait for each other: the pool gets more threads than a row has
programs, so that all of them run at once as they do on a GPU.
"""

from __future__ import annotations

import random
import sys
from math import prod
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import kernel_file, lower
from aotc.aot.lower.row.source import levels_of, lower_row
from aotc.aot.lower.row.statistics import Moments, statistics
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, layer_norm, op, operand, softmax, values, weight
from cases import CASES
from schedule_runner import Job

pytestmark = [pytest.mark.triton, pytest.mark.slow]
TRAITS = GPUS[90]
THREADS = 24  # more than programs wait for each other in any case below
TOLERANCES = {"f32": 3e-5, "f64": 1e-12, "bf16": 2e-2, "f16": 3e-3}


def _log_softmax_of_a_label():
    """Cross-entropy: each row's log-probability of its label."""
    x, labels = operand("x", 33, 20011), operand("labels", 33, 1, dtype="i64")
    return [op("gather", b.log_softmax(x, (1,)), labels, axis=1)]


def _of_large_numbers():
    """Neither the sum nor the variance is finite."""
    x = op("mul", op("abs", operand("x", 3, 20011)), 7e37)
    return [b.standardize(x, [1], 1e-5) + 0.5, b.scaled_mean(x, [1], 0.5)]


def _columns_of_one_matrix():
    """Means, deviations, powers and shares of long columns: kernels of few rows are parted."""
    x = op("gelu", operand("x", 9000, 40))
    return [b.standardize(x, [0], 1e-5), softmax(x, 0), op("sub", x, b.reduce("max", x, [0]))]


def _powers_beside_their_shares():
    """What lies between the two reductions of a softmax is an output too."""
    x = operand("x", 9000, 40)
    powers = op("exp", op("sub", x, b.reduce("max", x, [0])))
    return [op("div", powers, b.reduce("sum", powers, [0])), powers]


def _elements_beside_their_column_sums():
    """A gradient that is stored, and its sums over long columns: a batch norm's way back."""
    x = op("gelu", operand("x", 90000, 40))
    return [b.reduce("sum", x, [0]), b.reduce("sum", op("mul", x, x), [0]), x]


def _groups_of_channels():
    """A norm of groups of channels that are the last axis in memory."""
    planes = b.permute(operand("x", 1, 64, 96, 24, dtype="bf16"), (0, 3, 1, 2))
    groups = op("cast", b.reshape(planes, (1, 6, 4, 64, 96)), dtype="f32")
    normed = b.reshape(b.standardize(groups, [2, 3, 4], 1e-5), (1, 24, 64, 96))
    return [op("cast", op("gelu", normed), dtype="bf16")]


def _norm_of_groups(groups, run, height, width, batch=2):
    """Statistics of groups of channels that are the last axis in memory, far from 0."""
    x = operand("x", batch, height, width, groups * run)
    planes = b.permute(op("add", x, 40.0), (0, 3, 1, 2))
    return [
        b.standardize(b.reshape(planes, (batch, groups, run * height * width)), [2], 1e-5),
        b.reduce("sum", b.reshape(planes, (batch, groups, run, height * width)), [2, 3]),
        b.reduce("max", b.reshape(planes, (batch, groups, run, height * width)), [2, 3]),
    ]


def _groups_of_the_last_axis():
    """The same where the run of channels is the innermost reduced axis."""
    x = operand("x", 70, 20, 40, 4)
    return [b.reduce("sum", x, [0, 1, 3]), b.reduce("min", x, [0, 1, 3])]


def _norm_beside_its_statistics(*shape):
    """A norm as training has it: mean and factor are results too, the rows of another shape."""
    x, last = operand("x", *shape), len(shape) - 1
    count = shape[-1]
    mean = op("mul", b.reduce("sum", x, [last]), 1 / count)
    away = op("sub", x, mean)
    squares = b.reduce("sum", op("mul", away, away), [last])
    factor = op("rsqrt", op("add", op("mul", squares, 1 / count), 1e-5))
    normed = b.reshape(op("mul", away, factor), (x.type.numel // count, count))
    result = op("mul", normed, weight("w", 1, count))
    return [mean, factor, op("cast", result, dtype="bf16")]


ROWS = {
    "norm_beside_its_statistics": lambda: _norm_beside_its_statistics(33, 768),
    "norm_of_rows_of_another_shape": lambda: _norm_beside_its_statistics(3, 5, 100),
    "norm_beside_its_statistics_of_long_rows": lambda: _norm_beside_its_statistics(3, 20011),
    "sum_and_largest_of_short_rows": lambda: [
        b.reduce("sum", operand("x", 50, 300), [1]),
        b.reduce("max", operand("x", 50, 300), [1]),
    ],
    "columns_of_one_matrix": _columns_of_one_matrix,
    "powers_beside_their_shares": _powers_beside_their_shares,
    "elements_beside_their_column_sums": _elements_beside_their_column_sums,
    "groups_of_channels": _groups_of_channels,
    "groups_of_four": lambda: _norm_of_groups(32, 4, 32, 24),
    "groups_of_ten": lambda: _norm_of_groups(36, 10, 16, 15),
    "groups_of_the_last_axis": _groups_of_the_last_axis,
    "softmax_of_a_long_row": lambda: [softmax(operand("x", 3, 20011), 1)],
    "softmax_of_long_halves": lambda: [softmax(operand("x", 2, 32768, dtype="bf16"), 1)],
    "layer_norm_of_a_long_row": lambda: [
        op("mul", layer_norm(operand("x", 3, 20011)), weight("w", 1, 20011))
    ],
    "standardized_long_rows": lambda: [b.standardize(operand("x", 3, 20011), [1], 1e-5)],
    "standardized_columns": lambda: [b.standardize(operand("x", 2, 1500, 40), [1], 1e-5)],
    "standardized_large_numbers": _of_large_numbers,
    "softmax_of_one_row": lambda: [softmax(operand("x", 40000), 0)],
    "log_softmax_of_a_label": _log_softmax_of_a_label,
    "sum_and_largest_of_a_row": lambda: [
        b.reduce("sum", operand("x", 2, 30001), [1]),
        b.reduce("max", operand("x", 2, 30001), [1]),
    ],
    "search_of_a_long_row": lambda: [
        b.reduce("argmax", operand("x", 5, 30001), [1]),
        b.reduce("argmin", operand("x", 5, 30001), [1]),
    ],
    "search_of_equals": lambda: [b.reduce("argmax", operand("n", 3, 9000, dtype="i64"), [1])],
    "sum_of_columns": lambda: [b.reduce("sum", operand("x", 2, 3000, 40), [1])],
    "largest_of_columns": lambda: [b.reduce("max", operand("x", 5000, 77, dtype="bf16"), [0])],
    "softmax_of_long_columns": lambda: [softmax(operand("x", 2, 1500, 40), 1)],
    "norm_of_window_sums": lambda: _norm_of_window_sums(40, 5, "bf16"),
    "norm_of_window_sums_f32": lambda: _norm_of_window_sums(24, 4, "f32"),
    "flags_of_a_long_row": lambda: [b.reduce("any", operand("f", 2, 9001, dtype="bool"), [1])],
}
GPU_CASES = {**CASES, **ROWS}
FORMS = ("", "streamed", "parts", "shared", "shared_streamed")


def _forms(name: str) -> list[int | str]:
    """Which candidates of a case to run: the pick, and the first of each further form."""
    graph = graph_of(GPU_CASES[name]())
    plan = schedule(graph, TRAITS)
    if any(group.kind not in ("pointwise", "row") for group in plan.groups):
        return []
    specs = lower(plan, TRAITS)
    found = {row.form for spec in specs for row in spec.candidates[1:]}
    return [0, *(form for form in FORMS if form in found)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """For each case and form the outputs of its kernels, all run in one process."""
    job, names, launches = Job(), {}, {}
    for name, build in GPU_CASES.items():
        graph = graph_of(build())
        for form in _forms(name):
            first = len(job.launches)
            names[name, form] = job.add(graph, _inputs(graph), form, TRAITS)
            launches[name, form] = range(first, len(job.launches))
    buffers = job.run(tmp_path_factory.mktemp("rows"), "native", THREADS)
    for name, array in buffers.items():
        assert not (name.startswith("zeroed") and array.any()), "a kernel leaves its counters set"
    return {
        key: job.error(launches[key]) or [buffers[name].reshape(shape) for name, shape in outputs]
        for key, outputs in names.items()
    }


def _inputs(graph):
    return [values(node.type, 100 + number) for number, node in enumerate(graph.inputs)]


def test_a_standardized_row_is_read_once_for_its_mean_and_variance():
    graph = graph_of(ROWS["standardized_long_rows"]())
    (group,) = schedule(graph, TRAITS).groups
    ((moments,),) = statistics(levels_of(group))
    assert isinstance(moments, Moments)


@pytest.mark.parametrize("shape", [lambda *axes: axes, lambda *axes: (prod(axes),)])
@pytest.mark.parametrize(("run", "columns"), [(4, "r*128 + w"), (10, "r*320 + w*10 + c")])
def test_neighbours_of_a_group_are_read_with_it(run, columns, shape):
    """Consecutive lanes read consecutive elements, and each element once."""
    planes = b.permute(operand("x", 1, 64, 96, 32 * run), (0, 3, 1, 2))
    groups = b.reshape(planes, (1, 32, *shape(run, 64, 96)))
    graph = graph_of([b.reduce("sum", groups, [*range(2, groups.type.rank)])])
    (spec,) = lower(schedule(graph, TRAITS), TRAITS)
    assert {form.name for form in spec.forms} >= {"parts", "streamed"}
    for form in spec.forms:
        (load,) = [line for line in form.source.splitlines() if "tl.load(in0" in line]
        assert columns in load


def _norm_of_window_sums(channels, side, dtype):
    """A depthwise convolution and a norm over its channels, as in ConvNeXt."""
    x = b.pad(operand("x", 8, side, side, channels, dtype=dtype), (0, 3, 3, 0), (0, 3, 3, 0), 0.0)
    windows = op("window", x, axes=(1, 2), sizes=(7, 7), strides=(1, 1), dilations=(1, 1))
    factors = operand("w", 1, 1, 1, channels, 7, 7, dtype=dtype)
    sums = b.reduce("sum", op("mul", windows, factors), (4, 5))
    sums = op("cast", b.reshape(sums, (8, side, side, channels)), dtype="f32")
    return [op("cast", b.standardize(sums, [3], 1e-5), dtype=dtype)]


@pytest.mark.parametrize(
    ("channels", "side", "dtype", "elements"),
    [(96, 56, "bf16", 32), (192, 28, "bf16", 16), (384, 14, "bf16", 16), (384, 14, "f32", 16),
     (96, 56, "f32", 16), (768, 7, "bf16", 4), (768, 7, "f32", 4)],
)  # fmt: skip
def test_threads_of_window_sums_have_weights_without_asking_others(channels, side, dtype, elements):
    """Where there are many rows; few of them are spread over more threads. Nothing else is
    stored."""
    (*_, group) = schedule(graph_of(_norm_of_window_sums(channels, side, dtype)), TRAITS).groups
    assert group.kind == "row"
    assert len(group.roots) == 1
    config = dict(lower_row(group, TRAITS).candidates[0].config)
    block, warps = config["RBLOCK"], config["num_warps"]
    assert config["XBLOCK"] * block == elements * 32 * warps
    vector = 16 // DTYPES[dtype].itemsize_bytes
    assert elements == 4 or block < 32 * warps or block == vector * 32 * warps


def test_products_of_window_sums_join_their_sums():
    """Nothing else is fused in a norm, whose differences are computed at several places."""
    (group,) = schedule(graph_of(_norm_of_window_sums(96, 5, "bf16")), TRAITS).groups
    spec = lower_row(group, TRAITS)
    assert spec.forms[0].source.count("tl.fma(") == 48
    assert kernel_file.products_apart(group)


def test_products_that_are_read_again_join_no_sum():
    """A product less itself is 0, also where a window's sum reads it."""
    x = b.pad(operand("x", 2, 7, 7, 32), (0, 1, 1, 0), (0, 1, 1, 0), 0.0)
    windows = op("window", x, axes=(1, 2), sizes=(3, 3), strides=(1, 1), dilations=(1, 1))
    product = op("mul", windows, operand("w", 1, 1, 1, 32, 3, 3))
    first = b.slice_axis(b.slice_axis(product, 4, 0, 1), 5, 0, 1)
    sums = b.reshape(b.reduce("sum", product, (4, 5)), (2, 7, 7, 32))
    sums = op("sub", sums, b.reshape(first, (2, 7, 7, 32)))
    found = schedule(graph_of([b.standardize(sums, [3], 1e-5)]), TRAITS)
    specs = zip(found.groups, lower(found, TRAITS), strict=True)
    having = [spec for group, spec in specs if product in group.nodes]
    assert having
    for spec in having:
        assert not any("tl.fma(" in form.source for form in spec.forms)


def _window_sums(images, sides, channels, side, dtype):
    """A depthwise convolution whose weights lie along the channels, as they are stored."""
    low = (0, side // 2, side // 2, 0)
    x = b.pad(operand("x", images, *sides, channels, dtype=dtype), low, low, 0.0)
    found = {"sizes": (side, side), "strides": (1, 1), "dilations": (1, 1)}
    factors = b.permute(weight("w", side, side, channels, dtype=dtype), (2, 0, 1))
    factors = b.reshape(factors, (1, 1, 1, channels, side, side))
    sums = op("mul", op("window", x, axes=(1, 2), **found), factors)
    return b.reshape(b.reduce("sum", sums, (4, 5)), (images, *sides, channels))


@pytest.mark.parametrize(
    ("channels", "dtype", "lanes", "elements"),
    [(96, "bf16", 32, 16), (64, "bf16", 64, 16), (672, "bf16", 32, 16), (96, "f32", 32, 8)],
)
def test_tiles_of_window_sums_have_more_threads_than_lanes(channels, dtype, lanes, elements):
    graph = graph_of([_window_sums(8, (28, 28), channels, 3, dtype)])
    (spec,) = lower(schedule(graph, TRAITS), TRAITS)
    config = dict(spec.candidates[0].config)
    assert config["YBLOCK"] == lanes < 32 * config["num_warps"]
    assert config["XBLOCK"] * lanes == elements * 32 * config["num_warps"]


def test_drawn_window_sums_agree_with_the_reference(tmp_path):
    """By themselves and in norms, in any of their configs."""
    chance, job, rows = random.Random(0), Job(), []
    for seed in range(12):
        sides, channels = (chance.randrange(3, 9), chance.randrange(3, 9)), chance.randrange(4, 70)
        dtype, side = chance.choice(("f32", "bf16", "f16")), chance.choice((3, 5, 7))
        node = _window_sums(chance.randrange(1, 3), sides, channels, side, dtype)
        if seed % 2:
            node = b.cast(b.standardize(b.cast(node, "f32"), [3], 1e-5), dtype)
        graph = graph_of([node])
        first = len(job.launches)
        ((name, shape),) = job.add(
            graph, _inputs(graph), lambda spec: chance.choice(spec.candidates), TRAITS
        )
        rows.append((seed, graph, name, shape, range(first, len(job.launches))))
    buffers = job.run(tmp_path, "native", THREADS)
    for seed, graph, name, shape, launches in rows:
        assert not job.error(launches), f"seed {seed}: {job.error(launches)}"
        (node,), (wanted,) = graph.outputs, interpret(graph, _inputs(graph))
        wanted = widen(wanted, node.dtype)
        found = widen(buffers[name].reshape(shape), node.dtype)
        atol = TOLERANCES[node.dtype] * numpy.abs(wanted).max()
        numpy.testing.assert_allclose(found, wanted, rtol=0, atol=atol, err_msg=f"seed {seed}")


def test_sums_of_few_columns_store_nothing_else():
    """A kernel of both has a program for each block of columns, which is two of them here."""
    graph = graph_of(_elements_beside_their_column_sums())
    groups = [group for group in schedule(graph, TRAITS).groups if group.kind == "row"]
    assert groups
    assert all(root.node.type.numel == 40 for group in groups for root in group.roots)


@pytest.mark.parametrize("columns", [40, 3072])
def test_gradients_are_not_stored_by_the_kernel_of_their_sums(columns):
    """96 programs would compute what 132 multiprocessors have nothing else to do beside."""
    u, g = (operand(name, 8192, columns, dtype="bf16") for name in "ug")
    slope = op("tanh", b.cast(u, "f32"))
    gradient = b.cast(op("mul", b.cast(g, "f32"), slope), "bf16")
    groups = schedule(graph_of([b.reduce("sum", gradient, [0]), gradient]), TRAITS).groups
    assert {group.kind: len(group.roots) for group in groups} == {"pointwise": 1, "row": 1}


@pytest.mark.parametrize("name", GPU_CASES)
def test_kernels_agree_with_the_reference(name, results):
    graph = graph_of(GPU_CASES[name]())
    forms = [form for case, form in results if case == name]
    if not forms:
        pytest.skip("has kernels of other kinds")
    expected = interpret(graph, _inputs(graph))
    for form in forms:
        outputs = results[name, form]
        if isinstance(outputs, str):
            pytest.fail(f"{form}: {outputs}")
        for node, found, wanted in zip(graph.outputs, outputs, expected, strict=True):
            found, wanted = widen(found, node.dtype), widen(wanted, node.dtype)
            tolerance = TOLERANCES.get(node.dtype, 0.0)
            scale = numpy.abs(numpy.where(numpy.isfinite(wanted), wanted, 0)).max(initial=1e-30)
            numpy.testing.assert_allclose(
                found, wanted, rtol=0, atol=tolerance * scale, err_msg=f"form {form!r}"
            )
