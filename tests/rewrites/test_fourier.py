"""Fourier transforms of rows: the kernel for GPUs and the products of other targets give them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.butterflies import factors
from aotc.aot.ir.complex_pairs import roots, transformed
from aotc.aot.ir.graph import Constant, Graph, make
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.types import TensorType
from aotc.aot.rewrites import fourier
from aotc.aot.rewrites.memory import place_ops
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent.parent / "lower"))

from schedule_runner import Job

pytestmark = [pytest.mark.triton, pytest.mark.slow]
TRAITS = GPUS[90]
# Length, rows, results that are wanted, sign, whether data are real, and whether results are.
TRANSFORMS = [
    (128, 9, 65, -1, True, False), (128, 7, 128, 1, False, False), (256, 3, 129, -1, True, False),
    (256, 5, 256, -1, False, False), (512, 5, 257, -1, True, False), (512, 3, 512, 1, False, True),
    (1024, 2, 1024, -1, False, False), (2048, 3, 1025, -1, True, False),
    (4096, 1, 4096, 1, False, False), (4096, 2, 7, -1, False, False), (8, 300, 8, -1, False, False),
    (16, 77, 9, -1, True, False), (32, 5, 32, 1, False, True), (64, 1000, 33, -1, True, False),
]  # fmt: skip
# Those of passes through memory.
BY_PASSES = [
    (2, 5, 2, -1, False, False), (3, 9, 2, -1, True, False), (4, 7, 4, 1, False, False),
    (400, 3, 201, -1, True, False), (14, 300, 14, 1, False, True), (5, 1, 5, -1, False, False),
    (7, 4, 7, -1, False, False), (343, 3, 172, -1, True, False), (24, 1000, 24, -1, False, False),
    (720, 5, 720, 1, False, False), (9, 130, 5, -1, True, False), (1000, 2, 7, -1, False, False),
    (2187, 2, 2187, -1, False, False), (3920, 1, 3920, 1, False, True), (21, 17, 3, 1, True, False),
]  # fmt: skip
ROUNDINGS = 4e-7  # of the root of the mean square of a result, at most


def _graph(length, rows, keep, sign, takes_reals, gives_reals):
    values = numpy.stack(roots(sign, numpy.arange(length), length)).astype("float32")
    turns = Constant("turns", TensorType("f32", values.shape), values)
    names = ("re",) if takes_reals else ("re", "im")
    inputs = [
        make("input", (), {"name": name, "dtype": "f32", "shape": (rows, length)}) for name in names
    ]
    data = (inputs[0], None if takes_reals else inputs[1])
    node = build.constant("turns", turns.type)
    found = [part for part in transformed(data, node, keep, sign, gives_reals) if part is not None]
    outputs = ("out_re", "out_im")[: len(found)]
    return Graph(tuple(inputs), tuple(found), names, outputs, {"turns": turns})


def _expected(given, keep, sign):
    data = given[0].astype("float64") + (1j * given[1] if len(given) == 2 else 0)
    whole = numpy.fft.fft(data) if sign < 0 else numpy.fft.ifft(data, norm="forward")
    return [whole.real[:, :keep], whole.imag[:, :keep]]


ALL = [*TRANSFORMS, *BY_PASSES]
SETS = [ALL[::3], pytest.param(ALL, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("transforms", SETS, ids=["some", "all"])
def test_butterflies_of_every_length(tmp_path, transforms):
    random, job, cases = numpy.random.default_rng(3), Job(), []
    for case in transforms:
        graph = _graph(*case)
        given = [random.standard_normal(node.shape).astype("float32") for node in graph.inputs]
        served, count = fourier.expand_unserved(graph)
        assert count == 0
        placed, _ = place_ops(served)
        cases.append((case, given, interpret(graph, given), job.add(placed, given, 0, TRAITS)))
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    for case, given, meant, places in cases:
        for (name, shape), meaning, expected in zip(
            places, meant, _expected(given, case[2], case[3]), strict=False
        ):
            scale = numpy.sqrt(numpy.square(expected).mean() * 2)
            assert abs(meaning - expected).max() < ROUNDINGS * scale, case
            assert abs(buffers[name].reshape(shape) - expected).max() < 4 * ROUNDINGS * scale, case


@pytest.mark.parametrize(
    "case",
    [
        (110, 3, 56, -1, True, False), (13, 9, 7, -1, True, False), (11, 7, 11, 1, False, False),
        (61, 3, 61, 1, False, True), (77, 3, 20, -1, False, False),
    ],
)  # fmt: skip
def test_products_of_every_length(case):
    graph, random = _graph(*case), numpy.random.default_rng(4)
    given = [random.standard_normal(node.shape).astype("float32") for node in graph.inputs]
    found, count = fourier.expand_unserved(graph)
    assert count == len(graph.outputs)
    lengths = {node.inputs[1].shape[-1] for node in found.nodes() if node.op == "fourier"}
    assert all(length < case[0] and factors(length) for length in lengths)
    for result, expected in zip(
        interpret(found, given), _expected(given, *case[2:4]), strict=False
    ):
        assert abs(result - expected).max() < 1e-5 * abs(expected).max()


def test_other_lengths_and_types_have_no_kernel():
    graph = _graph(110, 3, 56, -1, True, False)
    assert fourier.expand_unserved(graph)[1] == 2
    convolved, _ = fourier.expand_unserved(_graph(1021, 2, 1021, -1, False, False))
    lengths = {node.inputs[1].shape[-1] for node in convolved.nodes() if node.op == "fourier"}
    assert lengths == {2048}  # of the convolution that it becomes


def test_what_is_not_finite_spreads_over_its_row(tmp_path):
    graph, random = _graph(256, 3, 256, -1, False, False), numpy.random.default_rng(5)
    given = [random.standard_normal((3, 256)).astype("float32") for _ in range(2)]
    given[0][1, 17] = numpy.nan
    placed, _ = place_ops(fourier.expand_unserved(graph)[0])
    job = Job()
    places = job.add(placed, given, 0, TRAITS)
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    for name, shape in places:
        is_finite = numpy.isfinite(buffers[name].reshape(shape)).all(1)
        assert is_finite.tolist() == [True, False, True]


def test_parts_in_turn_are_read_where_they_lie(tmp_path):
    """Complex numbers as torch has them: no copy of either part, nor of every second row."""
    random, job, cases = numpy.random.default_rng(5), Job(), []
    for shape, step in (((9, 128), 1), ((3, 2, 256), 1), ((10, 512), 2)):
        x = make("input", (), {"name": "x", "dtype": "f32", "shape": (*shape, 2)})
        rows = build.slice_axis(x, 0, 0, shape[0], step)
        re, im = (
            build.reshape(build.slice_axis(rows, len(shape), at, at + 1), rows.shape[:-1])
            for at in range(2)
        )
        length = shape[-1]
        values = numpy.stack(roots(-1, numpy.arange(length), length)).astype("float32")
        turns = Constant("turns", TensorType("f32", values.shape), values)
        found = transformed((re, im), build.constant("turns", turns.type), length, -1, False)
        graph = Graph((x,), (_complex(found),), ("x",), ("y",), {"turns": turns})
        given = [random.standard_normal(x.shape).astype("float32")]
        cases.append((given[0][::step], job.add(_one_call(graph), given, 0, TRAITS)))
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    for data, ((name, shape),) in cases:
        _check(buffers[name].reshape(shape), numpy.fft.fft(_wide(data)))


def _complex(parts):
    """Both parts as torch has complex numbers."""
    rank = parts[0].type.rank
    return build.concat([build.reshape(part, (*part.shape, 1)) for part in parts], rank)


def _wide(pairs):
    return pairs[..., 0].astype("float64") + 1j * pairs[..., 1]


def _check(found, expected):
    parts = (found[..., 0], found[..., 1]) if found.ndim > expected.ndim else (found,)
    for part, wanted in zip(parts, (expected.real, expected.imag), strict=False):
        scale = numpy.sqrt(numpy.square(abs(expected)).mean())
        assert abs(part - wanted).max() < 4 * ROUNDINGS * scale


def _one_call(graph, calls=1):
    """The graph with its transforms on memory, which is all that it computes."""
    found = rewrite(graph, TRAITS)[0]
    kinds = [group.kind for group in schedule(found, TRAITS).groups]
    assert kinds == ["call"] * calls
    return found


def _turned(data, length, sign, is_real=False):
    """A transform along the last axis, and the table that it reads."""
    values = numpy.stack(roots(sign, numpy.arange(length), length)).astype("float32")
    turns = Constant(f"turns.{length}.{sign}", TensorType("f32", values.shape), values)
    node = build.constant(turns.name, turns.type)
    return transformed(data, node, length, sign, is_real), {turns.name: turns}


@pytest.mark.parametrize(
    ("shape", "calls"),
    [
        pytest.param((3, 128, 128), 2, marks=pytest.mark.nightly),
        ((2, 256, 128), 2),
        ((2, 128, 4, 3), 2),
    ],
)
def test_columns_are_transformed_where_they_lie(tmp_path, shape, calls):
    """Those of a plane after its rows; those beside which there are few, in copies."""
    x = make("input", (), {"name": "x", "dtype": "f32", "shape": (*shape, 2)})
    parts = [build.reshape(build.slice_axis(x, len(shape), at, at + 1), shape) for at in range(2)]
    constants = {}
    axes = (2, 1) if len(shape) == 3 else (1,)
    for axis in axes:
        order = [each for each in range(len(shape)) if each != axis] + [axis]
        rows = [build.permute(part, order) for part in parts]
        found, own = _turned(rows, shape[axis], -1)
        constants |= own
        parts = [build.permute(part, numpy.argsort(order).tolist()) for part in found]
    graph = Graph((x,), (_complex(parts),), ("x",), ("y",), constants)
    found = _one_call(graph, calls if len(axes) == 2 else 1)
    given = [numpy.random.default_rng(7).standard_normal(x.shape).astype("float32")]
    job = Job()
    ((name, shape_of_y),) = job.add(found, given, 0, TRAITS)
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    _check(buffers[name].reshape(shape_of_y), numpy.fft.fftn(_wide(given[0]), axes=axes))


@pytest.mark.parametrize("length", [pytest.param(128, marks=pytest.mark.nightly), 512])
def test_spectra_of_reals_are_read_as_halves_and_stored_with_real_ends(tmp_path, length):
    rows, half = 5, length // 2 + 1
    random, job = numpy.random.default_rng(11), Job()
    pairs = make("input", (), {"name": "s", "dtype": "f32", "shape": (rows, half, 2)})
    given = [random.standard_normal(pairs.shape).astype("float32")]
    parts = []
    for at, is_odd in enumerate((False, True)):
        part = build.reshape(build.slice_axis(pairs, 2, at, at + 1), (rows, half))
        mirrored = make("flip", (build.slice_axis(part, 1, 1, length // 2),), {"axes": (1,)})
        parts.append(build.concat([part, -mirrored if is_odd else mirrored], 1))
    (re, _), constants = _turned(parts, length, 1, is_real=True)
    graph = Graph((pairs,), (re,), ("s",), ("x",), constants)
    ((name, shape),) = job.add(_one_call(graph), given, 0, TRAITS)
    data = make("input", (), {"name": "d", "dtype": "f32", "shape": (rows, length)})
    reals = [random.standard_normal(data.shape).astype("float32")]
    (re, im), constants = _turned((data, None), length, -1)
    re, im = (build.slice_axis(part, 1, 0, half) for part in (re, im))
    im = build.pad(build.slice_axis(im, 1, 1, half - 1), (0, 1), (0, 1), 0.0)
    graph = Graph((data,), (_complex((re, im)),), ("d",), ("y",), constants)
    ((spectrum, spectrum_shape),) = job.add(rewrite(graph, TRAITS)[0], reals, 1, TRAITS)
    buffers = job.run(tmp_path, "native", 4)
    assert not job.errors
    wanted = numpy.fft.irfft(_wide(given[0]), length, norm="forward")
    _check(buffers[name].reshape(shape), wanted)
    found = buffers[spectrum].reshape(spectrum_shape)
    _check(found, numpy.fft.rfft(reals[0].astype("float64")))
    assert not found[:, (0, -1), 1].any()
