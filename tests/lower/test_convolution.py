"""Convolutions as GPUs get them: rewritten, scheduled, lowered for sm_90 and interpreted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.convolution.candidates import Shape, convolution_candidates
from aotc.aot.lower.convolution.source import lower_convolution
from aotc.aot.lower.spec import Candidate
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.schedule import Group, schedule
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, op, operand, values, weight
from schedule_runner import Job

pytestmark = pytest.mark.triton
TOLERANCES = {"f32": 3e-5, "bf16": 2e-2}
CASES: dict[str, Callable[[], Node]] = {}


def case(function: Callable[[], Node]) -> Callable[[], Node]:
    CASES[function.__name__] = function
    return function


def convolved(data: Node, outputs: int, kernel: tuple[int, ...], name: str = "w", **attrs) -> Node:
    """A convolution of [N, C, …] with a bias; strides and so on are one or none by default."""
    rank, groups = len(kernel), attrs.pop("groups", 1)
    filters = weight(name, outputs, data.shape[1] // groups, *kernel, dtype=data.dtype)
    found = {"stride": (1,) * rank, "padding": (0,) * rank, "dilation": (1,) * rank} | attrs
    product = make("convolution", (data, filters), found | {"groups": groups})
    bias = weight(f"{name}_bias", 1, outputs, *[1] * rank, dtype=data.dtype)
    return op("add", product, bias)


@case
def same_padding():
    return op("relu", convolved(operand("x", 1, 16, 9, 7), 40, (3, 3), padding=(1, 1)))


@case
def same_padding_bf16():
    data = operand("x", 2, 32, 7, 7, dtype="bf16")
    return op("relu", convolved(data, 72, (3, 3), padding=(1, 1)))


@case
def strided():
    return convolved(operand("x", 1, 16, 10, 13), 24, (3, 3), padding=(1, 1), stride=(2, 2))


@case
def strided_points():
    return convolved(operand("x", 2, 32, 9, 8), 24, (1, 1), stride=(2, 2))


@case
def dilated():
    return convolved(operand("x", 1, 16, 12, 11), 24, (3, 3), padding=(2, 2), dilation=(2, 2))


@case
def uneven():
    attrs = {"padding": (2, 1), "stride": (1, 2), "dilation": (1, 2)}
    return convolved(operand("x", 1, 24, 9, 12), 24, (5, 3), **attrs)


@case
def odd_channels():
    return convolved(operand("x", 1, 20, 8, 8), 33, (3, 3), padding=(1, 1))


@case
def few_channels():
    data = operand("x", 2, 3, 17, 18, dtype="bf16")
    return op("relu", convolved(data, 32, (7, 7), padding=(3, 3), stride=(2, 2)))


@case
def few_channels_no_stride():
    return convolved(operand("x", 1, 3, 9, 10, dtype="bf16"), 24, (3, 3), padding=(1, 1))


@case
def one_channel():
    return convolved(operand("x", 1, 16, 9, 7), 1, (3, 3), padding=(1, 1))


@case
def one_position():
    return convolved(operand("x", 1, 16, 4, 4), 24, (4, 4))


@case
def one_number():
    return convolved(operand("x", 1, 16, 4, 4), 1, (4, 4))


@case
def residual():
    data = operand("x", 1, 64, 8, 8, dtype="bf16")
    first = op("relu", convolved(data, 64, (3, 3), "w1", padding=(1, 1)))
    second = convolved(first, 64, (3, 3), "w2", padding=(1, 1))
    return op("relu", op("add", second, data))


@case
def narrow():
    data = operand("x", 1, 32, 8, 9, dtype="bf16")
    first = op("relu", convolved(data, 16, (1, 1), "w1"))
    return convolved(first, 24, (3, 3), "w2", padding=(1, 1))


@case
def pooled():
    data = op("relu", convolved(operand("x", 2, 16, 12, 12), 32, (3, 3), padding=(1, 1)))
    padded = b.pad(data, (0, 0, 1, 1), (0, 0, 1, 1), -numpy.inf)
    attrs = {"axes": (2, 3), "sizes": (3, 3), "strides": (2, 2), "dilations": (1, 1)}
    peaks = b.drop(b.reduce("max", make("window", (padded,), attrs), (4, 5)), (4, 5))
    return op("add", convolved(peaks, 40, (1, 1), "w2"), b.mean(peaks, (1, 2, 3)))


@case
def grouped():
    data = operand("x", 2, 48, 7, 9)
    return op("relu", convolved(data, 40, (3, 3), padding=(1, 1), groups=2))


@case
def depthwise():
    data = operand("x", 2, 40, 7, 9)
    return op("relu", convolved(data, 40, (3, 3), padding=(1, 1), stride=(2, 1), groups=40))


@case
def one_axis():
    return convolved(operand("x", 2, 32, 50), 24, (5,), padding=(2,), stride=(2,))


@case
def three_axes():
    return convolved(operand("x", 1, 16, 3, 4, 5), 24, (3, 3, 3), padding=(1, 1, 1))


@case
def offsets_in_parts():
    """A result of one column, whose five runs of 18 elements do not make equal parts."""
    return convolved(operand("x", 2, 6, 6, 2), 1, (5, 3), padding=(2, 1))


def rewritten(build: Callable[[], Node]) -> Graph:
    return rewrite(graph_of([build()]), traits=GPUS[90])[0]


def inputs_of(graph: Graph) -> list[numpy.ndarray]:
    return [values(node.type, 100 + number) for number, node in enumerate(graph.inputs)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """For each case and form the output of its kernels, all run in one process."""
    job, names, launches = Job(), {}, {}
    for name, form in RUNS:
        graph = rewritten(CASES[name])
        first = len(job.launches)
        ((names[name, form], _),) = job.add(graph, inputs_of(graph), form, GPUS[90])
        launches[name, form] = range(first, len(job.launches))
    buffers = job.run(tmp_path_factory.mktemp("convolutions"))
    return {key: job.error(launches[key]) or buffers[name] for key, name in names.items()}


RUNS = [
    *((name, 0) for name in CASES),
    *((name, "windows_split") for name in ("dilated", "residual")),
    ("offsets_in_parts", "split_mnk"),
]


@pytest.mark.parametrize(("name", "form"), RUNS)
def test_kernels_agree_with_the_reference(name, form, results):
    graph = graph_of([CASES[name]()])
    (expected,) = interpret(graph, inputs_of(graph))
    found = results[name, form]
    if isinstance(found, str):
        pytest.fail(found)
    dtype = graph.outputs[0].dtype
    found, expected = widen(found, dtype).reshape(expected.shape), widen(expected, dtype)
    scale = numpy.abs(expected).max()
    numpy.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCES[dtype] * scale)


def convolutions_of(name: str) -> list[Group]:
    """The groups of a case whose first operand is windows."""
    found = schedule(rewritten(CASES[name]), GPUS[90]).groups
    return [group for group in found if group.label.startswith("convolution")]


# Pooled reads maxima, strided_points an image whose channels lie apart; a result of one row or
# column is a product's.
PRODUCTS = {"one_channel", "one_position", "one_number", "offsets_in_parts"}
OTHERS = {"depthwise", "pooled", "strided_points"} | PRODUCTS


@pytest.mark.parametrize("name", sorted(PRODUCTS))
def test_a_result_of_one_row_or_column_is_a_products(name):
    assert all(lower_convolution(group, GPUS[90]) is None for group in convolutions_of(name))


@pytest.mark.parametrize("name", sorted(CASES.keys() - OTHERS))
def test_convolutions_have_kernels_of_their_own(name):
    groups = convolutions_of(name)
    assert groups
    for group in groups:
        spec = lower_convolution(group, GPUS[90])
        assert spec is not None
        assert all("for st" in form.source for form in spec.forms)
        assert len(set(spec.candidates)) == len(spec.candidates)
        shared = max(_shared_bytes(each, group.root_op.dtype) for each in spec.candidates)
        assert shared <= GPUS[90].shared_bytes


def _shared_bytes(candidate: Candidate, dtype: str) -> int:
    config = dict(candidate.config)
    row = config["BK"] * DTYPES[dtype].itemsize_bytes * config["num_stages"]
    return (config["BM"] + config["BN"]) * row


def test_only_images_of_few_channels_or_channels_apart_are_copied():
    for name in ("same_padding_bf16", "residual", "few_channels"):
        kinds = [group.kind for group in schedule(rewritten(CASES[name]), GPUS[90]).groups]
        assert kinds.count("pointwise") == 1, name


def test_kernel_offsets_of_few_channels_share_a_step():
    for name, pack in (("few_channels", 32), ("few_channels_no_stride", 32), ("narrow", 16)):
        spec = lower_convolution(convolutions_of(name)[-1], GPUS[90])
        assert spec is not None
        assert [form.name for form in spec.forms] == ["windows_packed"]
        assert f"kernel_offset_a = ka // {pack}" in spec.forms[0].source
        assert {dict(each.config)["BK"] for each in spec.candidates} == {64, 128}


def test_borders_are_bits_before_the_loop():
    second = convolutions_of("residual")[1]
    spec = lower_convolution(second, GPUS[90])
    assert spec is not None
    before, loop = spec.forms[0].source.split("for step in range(")
    assert before.count("inside0 = ") == before.count("inside1 = ") == 1
    assert "(inside0 >> (kernel_offset // 3)) & (inside1 >> (kernel_offset % 3)) & 1" in loop
    assert "edge" not in loop


def test_few_tiles_of_a_long_loop_are_split():
    shape = Shape(1, 392, 512, 9, 512, "bf16", 2 * 392 * 512 * 2 + 9 * 512 * 512 * 2)
    first = convolution_candidates(shape, GPUS[90])[0]
    assert first.form == "windows_split"
    tiles = first.grid[0] * first.grid[1]
    partials, counters = first.scratch
    config = dict(first.config)
    assert partials.nbytes == tiles * config["SPLIT"] * config["BM"] * config["BN"] * 4
    assert (counters.nbytes, counters.is_zeroed) == (tiles * 4, True)
    wide = Shape(1, 25088, 64, 9, 64, "bf16", 7 << 20)
    assert {each.form for each in convolution_candidates(wide, GPUS[90])[:8]} == {"windows"}


def test_results_of_few_columns_have_narrow_tiles():
    """A tile of 64 columns would read as much of the weights as of the image; three of 512 × 512
    places take 76 µs for 98 (H200)."""
    for columns, rows, most in ((3, 1 << 18, 16), (18, 25088, 32), (64, 25088, 64)):
        nbytes = rows * (128 + columns) * 2 + 9 * 128 * columns * 2
        found = convolution_candidates(Shape(1, rows, columns, 9, 128, "bf16", nbytes), GPUS[90])
        widths = {dict(each.config)["BN"] for each in found}
        assert max(widths) < 2 * max(columns, 16)
        assert dict(found[0].config)["BN"] == most
