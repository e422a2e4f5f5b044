"""Fourier transforms of rows on processors: the kernel of passes, beside numpy's in f64."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.butterflies import factors, passes
from aotc.aot.ir.complex_pairs import roots, transformed
from aotc.aot.ir.graph import Constant, Graph, make
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.types import TensorType
from aotc.aot.rewrites import fourier
from aotc.aot.rewrites.memory import place_ops
from aotc.aot.targets.cpu.target import CPU

sys.path.insert(0, str(Path(__file__).parent.parent / "lower"))

from schedule_runner import Job

pytestmark = [pytest.mark.triton, pytest.mark.slow]
ROUNDINGS = {"f32": 6e-7, "f64": 1e-15}  # of the root of the mean square of a result, at most
# Length, rows, results that are wanted, sign, whether data are real, and whether results are.
TRANSFORMS = [
    (9, 5, 9, -1, False, False), (20, 3, 20, 1, False, True), (16, 33, 16, -1, False, False),
    (50, 2, 26, -1, True, False), (75, 4, 38, -1, True, False), (81, 3, 81, 1, False, False),
    (96, 3, 49, -1, True, False), (96, 2, 96, -1, True, False), (100, 3, 7, 1, False, False),
    (125, 3, 125, -1, False, False), (128, 3, 65, -1, True, False), (225, 2, 225, 1, False, True),
    (400, 3, 201, -1, True, False), (480, 2, 480, -1, False, False), (512, 1, 512, 1, False, True),
    (45, 3, 45, 1, False, True), (1000, 2, 1000, 1, False, False), (1024, 40, 513, -1, True, False),
    (1024, 2, 1024, -1, True, False), (2048, 3, 2048, -1, False, False),
    (4096, 1, 100, 1, True, True), (65536, 1, 65536, -1, False, False),
    (118098, 1, 118098, 1, False, False), (131072, 1, 131072, 1, False, False),
]  # fmt: skip


def _input(name, dtype, shape):
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def _graph(length, rows, keep, sign, takes_reals, gives_reals, dtype="f32", strided=False):
    """Parts in tensors of their own, or in turn in one."""
    values = numpy.stack(roots(sign, numpy.arange(length), length))
    turns = Constant("turns", TensorType(dtype, values.shape), values.astype(f"float{dtype[1:]}"))
    if strided:
        names, inputs = ("pairs",), [_input("pairs", dtype, (rows, length, 2))]
        data = [
            build.reshape(build.slice_axis(inputs[0], 2, at, at + 1), (rows, length))
            for at in range(2)
        ]
    else:
        names = ("re",) if takes_reals else ("re", "im")
        data = inputs = [_input(name, dtype, (rows, length)) for name in names]
    pair = (data[0], None if takes_reals else data[1])
    node = build.constant("turns", turns.type)
    found = [part for part in transformed(pair, node, keep, sign, gives_reals) if part is not None]
    outputs = ("out_re", "out_im")[: len(found)]
    return Graph(tuple(inputs), tuple(found), names, outputs, {"turns": turns})


def _given(graph, generator):
    return [
        generator.standard_normal(node.shape).astype(f"float{node.dtype[1:]}")
        for node in graph.inputs
    ]


def _expected(data, keep, sign):
    whole = numpy.fft.fft(data) if sign < 0 else numpy.fft.ifft(data, norm="forward")
    return [whole.real[:, :keep], whole.imag[:, :keep]]


def _complex(given):
    wide = [each.astype("float64") for each in given]
    if wide[0].ndim == 3:
        wide = [wide[0][..., 0], wide[0][..., 1]]
    return wide[0] + 1j * wide[1] if len(wide) == 2 else wide[0]


def _placed(graph):
    served, count = fourier.expand_on_cpu(graph)
    assert count == 0
    ops = {node.op for node in served.nodes()}
    assert "placed" in ops
    assert not {"fourier", "matmul"} & ops
    return place_ops(served)[0]


def _check(cases, folder):
    """Cases of a name, a graph, its inputs, and what results are expected."""
    job, places = Job(), []
    for _, graph, given, _ in cases:
        places.append(job.add(_placed(graph), given, 0, CPU))
    buffers = job.run(folder, "native", 2)
    assert not job.errors
    for (name, graph, given, expected), found in zip(cases, places, strict=True):
        limit = ROUNDINGS[graph.outputs[0].dtype]
        scale = numpy.sqrt(sum(numpy.square(each).mean() for each in expected))
        meant = interpret(_placed(graph), given)
        for (buffer, shape), meaning, exact in zip(found, meant, expected, strict=False):
            assert abs(meaning - exact).max() < limit * scale, name
            assert abs(buffers[buffer].reshape(shape) - exact).max() < 4 * limit * scale, name


@pytest.mark.parametrize(
    ("dtype", "transforms"),
    [
        ("f32", TRANSFORMS[::2]),
        pytest.param("f32", TRANSFORMS[1::2], marks=pytest.mark.nightly),
        pytest.param("f64", TRANSFORMS, marks=pytest.mark.nightly),
    ],
)
def test_passes_of_every_radix(dtype, transforms, tmp_path):
    generator, cases = numpy.random.default_rng(3), []
    for case in transforms:
        graph = _graph(*case, dtype=dtype)
        given = _given(graph, generator)
        cases.append((case, graph, given, _expected(_complex(given), case[2], case[3])))
    _check(cases, tmp_path)


SHORT = [  # of rows that are transformed beside each other
    (9, 33, 9, -1), (12, 32, 12, 1), (12, 100, 5, -1), (15, 47, 15, -1), (16, 64, 16, 1),
    (18, 41, 18, -1), (20, 70, 13, 1), (24, 1000, 24, -1), (25, 35, 25, 1), (32, 50, 32, -1),
    (64, 40, 64, -1), (81, 37, 81, 1), (96, 33, 96, -1), (100, 45, 60, 1),
]  # fmt: skip


@pytest.mark.parametrize("strided", [False, True], ids=["apart", "pairs"])
def test_short_rows_beside_each_other(strided, tmp_path):
    generator, cases = numpy.random.default_rng(6), []
    for length, rows, keep, sign in SHORT:
        case = (length, rows, keep, sign, False, False)
        graph = _graph(*case, strided=strided)
        given = _given(graph, generator)
        cases.append((case, graph, given, _expected(_complex(given), keep, sign)))
        call = next(node for node in _placed(graph).nodes() if node.op == "placed")
        are_beside = call.type.rank == 3
        assert are_beside == (strided or length >= 16)
    _check(cases, tmp_path)


def _drawn(draw):
    smooth = [n for n in range(9, 3000) if factors(n) is not None]
    if draw.random() < 0.3:
        smooth = [n for n in smooth if n <= 120]
    length, takes_reals = draw.choice(smooth), draw.random() < 0.4
    gives_reals = not takes_reals and draw.random() < 0.3
    limit = fourier.SHORTEST[fourier._numbers(not takes_reals, gives_reals)]
    length = length if length >= limit else limit * 2
    while factors(length) is None:
        length += 1
    keep = draw.choice((length, length, length // 2 + 1, draw.randint(1, length)))
    rows = draw.randint(1, 90 if length <= 120 else 6)
    return length, rows, keep, draw.choice((-1, 1)), takes_reals, gives_reals


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 9))]


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_transforms(seed, tmp_path):
    draw, generator, cases = random.Random(seed), numpy.random.default_rng(seed), []
    for _ in range(12):
        case = _drawn(draw)
        strided = not case[4] and draw.random() < 0.5
        graph = _graph(*case, dtype=draw.choice(("f32", "f32", "f64")), strided=strided)
        given = _given(graph, generator)
        cases.append((case, graph, given, _expected(_complex(given), case[2], case[3])))
    _check(cases, tmp_path)


def test_parts_in_turn_are_read_where_they_lie():
    graph = _placed(_graph(128, 3, 128, -1, False, False, strided=True))
    (call, *_) = [node for node in graph.nodes() if node.op == "placed"]
    places = call.attr("operands")
    assert [(start, strides) for _, start, _, strides in places[1:]] == [
        (0, (256, 2)),
        (1, (256, 2)),
    ]


def _back_to_reals(length, rows):
    """Of the first half of a spectrum, as `capture/imports/fourier.py` makes the rest of it."""
    from aotc.aot.capture.imports.fourier import fourier as captured
    from aotc.aot.capture.imports.fourier import hermitian

    made = {}

    def table(values, dtype):
        kind = TensorType(dtype, values.shape)
        made["turns"] = Constant("turns", kind, values.astype("float32"))
        return build.constant("turns", kind)

    inputs = [_input(name, "f32", (rows, length // 2 + 1)) for name in ("re", "im")]
    whole = hermitian((inputs[0], inputs[1]), 1, length)
    found, _ = captured(whole, (1,), 1, table, is_real=True)
    return Graph(tuple(inputs), (found,), ("re", "im"), ("out",), made)


def test_spectra_of_reals_are_transformed_back_from_their_half(tmp_path):
    generator, cases = numpy.random.default_rng(5), []
    for length, rows in ((16, 3), (50, 5), (96, 1), (400, 3), (1024, 9), (2000, 2), (45, 2)):
        graph = _back_to_reals(length, rows)
        given = _given(graph, generator)
        exact = numpy.fft.irfft(_complex(given), length, norm="forward")
        cases.append((length, graph, given, [exact]))
        (call,) = [node for node in _placed(graph).nodes() if node.op == "placed"]
        taken = length // 2 + 1 if length % 2 == 0 else length
        assert call.attr("operands")[1][2][-1] == taken
    _check(cases, tmp_path)


def _columns(outer, length, inner, sign, is_real, step, dtype):
    """Along the middle dim of three; with a step of 2 of parts in turn."""
    shape = (outer, length, inner)
    if step == 2:
        names, inputs = ("pairs",), [_input("pairs", dtype, (*shape, 2))]
        parts = [
            build.reshape(build.slice_axis(inputs[0], 3, at, at + 1), shape) for at in range(2)
        ]
    else:
        names = ("re",) if is_real else ("re", "im")
        parts = inputs = [_input(name, dtype, shape) for name in names]
    moved = [build.move_axis(part, 1, 2) for part in parts]
    values = numpy.stack(roots(sign, numpy.arange(length), length))
    turns = Constant("turns", TensorType(dtype, values.shape), values.astype(f"float{dtype[1:]}"))
    node = build.constant("turns", turns.type)
    found = transformed((moved[0], None if is_real else moved[1]), node, length, sign, False)
    back = tuple(build.move_axis(part, 2, 1) for part in found)
    return Graph(tuple(inputs), back, names, ("out_re", "out_im"), {"turns": turns})


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_columns_are_transformed_where_they_lie(dtype, tmp_path):
    generator, cases = numpy.random.default_rng(8), []
    for case in (
        (2, 128, 32, -1, False, 1), (3, 9, 16, 1, False, 2), (1, 400, 50, -1, False, 2),
        (2, 96, 17, 1, False, 1), (1, 1000, 100, -1, False, 1), (2, 75, 33, -1, True, 1),
        (40, 16, 48, -1, False, 2), (1, 4096, 16, 1, False, 1),
    ):  # fmt: skip
        graph = _columns(*case, dtype)
        given = _given(graph, generator)
        wide = [each.astype("float64") for each in given]
        wide = [wide[0][..., 0], wide[0][..., 1]] if case[5] == 2 else wide
        data = wide[0] + 1j * wide[1] if len(wide) == 2 else wide[0]
        sign = case[3]
        exact = (
            numpy.fft.fft(data, axis=1) if sign < 0 else numpy.fft.ifft(data, None, 1, "forward")
        )
        cases.append((case, graph, given, [exact.real, exact.imag]))
        placed = _placed(graph)
        assert "copy" not in {node.op for node in placed.nodes()}
        (first, *_) = [node for node in placed.nodes() if node.op == "placed"]
        assert first.attr("operands")[1][3][-1] > 2
    _check(cases, tmp_path)


def test_columns_that_are_repeated_are_copied(tmp_path):
    """Of a tensor that is one row of columns, or one batch, for all."""
    x = _input("x", "f32", (1, 64, 32))
    many = build.move_axis(build.expand(x, (3, 64, 32)), 1, 2)
    values = numpy.stack(roots(-1, numpy.arange(64), 64)).astype("float32")
    turns = Constant("turns", TensorType("f32", values.shape), values)
    node = build.constant("turns", turns.type)
    re, im = transformed((many, None), node, 64, -1, False)
    graph = Graph((x,), (re, im), ("x",), ("re", "im"), {"turns": turns})
    given = _given(graph, numpy.random.default_rng(2))
    whole = numpy.repeat(given[0].astype("float64"), 3, 0).transpose(0, 2, 1)
    exact = numpy.fft.fft(whole)
    _check([("repeated", graph, given, [exact.real, exact.imag])], tmp_path)


def test_what_is_not_finite_stays_in_its_row(tmp_path):
    cases = [(256, False), (256, True), (225, True)]
    job, generator, places = Job(), numpy.random.default_rng(5), []
    for length, takes_reals in cases:
        graph = _graph(length, 3, length // 2 + 1, -1, takes_reals, False)
        given = _given(graph, generator)
        given[0][1, 17] = numpy.nan
        places.append(job.add(_placed(graph), given, 0, CPU))
    buffers = job.run(tmp_path, "native", 2)
    assert not job.errors
    for (name, shape), *_ in places:
        is_finite = numpy.isfinite(buffers[name].reshape(shape)).all(1)
        assert is_finite.tolist() == [True, False, True]


def test_ends_of_spectra_of_reals_are_zero_whatever_the_data(tmp_path):
    graph = _graph(128, 2, 65, -1, True, False)
    im, (data,) = graph.outputs[1], graph.inputs
    cleared = build.pad(build.slice_axis(im, 1, 1, 64), (0, 1), (0, 1), 0.0)
    graph = graph.with_outputs((graph.outputs[0], cleared), graph.constants)
    placed = _placed(graph)
    assert "pad" not in {node.op for node in placed.nodes()}
    given = [numpy.random.default_rng(1).standard_normal(data.shape).astype("float32")]
    given[0][1, 3] = numpy.inf
    job = Job()
    places = job.add(placed, given, 0, CPU)
    buffers = job.run(tmp_path, "native", 1)
    name, shape = places[1]
    assert (buffers[name].reshape(shape)[:, [0, 64]] == 0).all()
    assert (interpret(placed, given)[1][:, [0, 64]] == 0).all()


def test_other_lengths_have_no_kernel():
    for length, takes_reals in ((8, False), (48, True), (77, False)):
        found, count = fourier.expand_on_cpu(_graph(length, 3, length, -1, takes_reals, False))
        assert count == 2
        assert not {"fourier", "placed"} & {node.op for node in found.nodes()}
    convolved, _ = fourier.expand_on_cpu(_graph(1021, 2, 1021, -1, False, False))
    calls = [node for node in convolved.nodes() if node.op == "placed"]
    assert {call.attr("operands")[0][2][-1] for call in calls} == {2048}


def test_passes_multiply_to_their_length():
    for length in filter(factors, range(2, 5000)):
        done = 1
        for each in passes(length):
            assert each.done == done
            done *= each.radix
        assert done == length
