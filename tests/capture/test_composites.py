"""Ops that torch takes apart by questions to the data, and ops on elements that it keeps whole."""

from __future__ import annotations

import math

import numpy
import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.decompositions.composites import COUNTED, REPEATED  # noqa: E402
from aotc.aot.capture.decompositions.elements import ELEMENTS  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.ir.reference import interpret  # noqa: E402

pytestmark = pytest.mark.torch
aten = torch.ops.aten
DATA = torch.randn(4, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
COUNTS, SHARES = torch.arange(10) % 3 + 1, DATA[0].abs()
LENGTHS = torch.tensor([2, 3, 0, 5])
PLACES = torch.arange(30).reshape(3, 10) * 7 % 9


def segments(how):
    def model(x):
        first = torch.segment_reduce(x.t(), how, lengths=LENGTHS, unsafe=True)
        given = {"offsets": torch.tensor([0, 4, 4, 9]), "initial": 0.5, "unsafe": True}
        second = torch.segment_reduce(x[0], how, **given)
        given["offsets"] = torch.tensor([1, 4, 4, 9])
        third = torch.segment_reduce(x[0], how, **given)
        rows = torch.tensor([[1, 9], [10, 0], [3, 3], [0, 0]])
        return first, second, third, torch.segment_reduce(x, how, lengths=rows, axis=1, unsafe=True)

    return model


MODELS = {
    "covariances": lambda x: (torch.cov(x), torch.cov(x, correction=0), torch.cov(x[0])),
    "correlations": lambda x: (torch.corrcoef(x), torch.corrcoef(x[0])),
    "weighed": lambda x: (
        torch.cov(x, fweights=COUNTS),
        torch.cov(x, aweights=SHARES),
        torch.cov(x, fweights=COUNTS, aweights=SHARES, correction=2),
    ),
    "counts": lambda x: (
        torch.bincount(PLACES[0], minlength=12),
        torch.bincount(PLACES[1], weights=x[0], minlength=9),
        torch.bincount(PLACES[2].to(torch.uint8), minlength=9),
    ),
    "repeated": lambda x: (
        torch.repeat_interleave(x[0], COUNTS, output_size=19),
        torch.repeat_interleave(x, torch.tensor([2, 0, 1, 3]), 0, output_size=6),
    ),
    "places": lambda x: (
        (x > 0).nonzero_static(size=9),
        (PLACES % 2).nonzero_static(size=40, fill_value=7),
        x[:0].nonzero_static(size=2),
    ),
    **{f"segments {how}": segments(how) for how in ("sum", "mean", "max", "min", "prod")},
}


def compare(model, *given):
    captured = capture(spec_of(model, given))
    found = interpret(captured.graph, captured.golden_inputs)
    expected = model(*given)
    for one, other in zip(found, expected, strict=False):  # checks follow
        assert str(one.dtype) == str(other.numpy().dtype)
        numpy.testing.assert_allclose(one, other.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_eagers(name):
    compare(MODELS[name], DATA)


def test_a_number_that_is_not_counted_is_an_error_of_the_call():
    captured = capture(spec_of(lambda i: torch.bincount(i, minlength=9), (PLACES[0],)))
    assert COUNTED in [check.attr("operation") for check in captured.graph.checks]


def test_numbers_of_repetitions_are_checked():
    model = lambda x, i: torch.repeat_interleave(x, i, output_size=19)  # noqa: E731
    captured = capture(spec_of(model, (DATA[0], COUNTS)))
    assert REPEATED in [check.attr("operation") for check in captured.graph.checks]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_parts_of_floats_are_exact(dtype):
    few = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1, -2, 0.5])
    tiny = torch.finfo(dtype).smallest_normal * torch.tensor([1, -0.5, 0.25, 0.99])
    data = torch.cat([few.to(dtype), tiny.to(dtype), (DATA.flatten() * 1000).to(dtype)])
    found = ELEMENTS[aten.frexp.Tensor](data)
    for one, other in zip(found, torch.frexp(data), strict=True):
        assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_as_a_quantiser_has_them(dtype):
    data = (DATA * 3).to(dtype)
    scales, zeros = torch.tensor([0.1, 0.3, 0.03, 1.0]), torch.tensor([0, 3, 1, 2])
    zeros = zeros.to(torch.int32)
    calls = {
        aten.fake_quantize_per_tensor_affine_cachemask.default: (data, 0.05, 3, -128, 127),
        aten.fake_quantize_per_channel_affine_cachemask.default: (data, scales, zeros, 0, 0, 15),
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: (
            data, scales[0], zeros[1], torch.ones(1, dtype=torch.long), -8, 7,
        ),
    }  # fmt: skip
    for op, given in calls.items():
        for one, other in zip(ELEMENTS[op](*given), op(*given), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
