"""Code that asks whether a size is more than 1: torch.export has the answer of larger ones, so that
the dim begins at 2 where the numbers of 1 are others."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402  needs torch

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
AUTO = torch.export.Dim.AUTO


def resized(mode, **options):
    return lambda x: functional.interpolate(x, scale_factor=1.5, mode=mode, **options)


def chosen(x):
    return x * 2.0 if x.shape[-1] > 1 else x * 3.0


def raising(x):
    if x.shape[-1] == 1:
        raise ValueError("one")
    return x * 2.0


CASES = {
    "corners": (resized("linear", align_corners=True), (1, 2, 4), 1),
    "a choice": (chosen, (1, 2, 4), 2),
    "a model that raises": (raising, (1, 2, 4), 1),
    "centres": (resized("linear", align_corners=False), (1, 2, 4), 1),
    "nearest": (resized("nearest"), (1, 2, 4), 1),
    "softmax": (lambda x: x.softmax(-1), (3, 5), 1),
    "a norm": (lambda x: functional.normalize(x, dim=-1), (3, 5), 1),
    "statistics": (lambda x: x.std(-1), (3, 5), 1),
    "sorted": (lambda x: x.sort(-1).values, (3, 5), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_begin_where_the_program_has_the_model_s_numbers(name):
    model, shape, low = CASES[name]
    shapes = ({len(shape) - 1: AUTO},)
    captured = capture(spec_of(model, (torch.randn(shape),), dynamic_shapes=shapes))
    assert [dim.low for dim in captured.dims] == [low]


def test_each_size_is_asked_for_itself():
    def model(x, y):
        return chosen(x), y.softmax(-1)

    inputs, shapes = (torch.randn(2, 4), torch.randn(2, 5)), ({1: AUTO}, {1: AUTO})
    captured = capture(spec_of(model, inputs, dynamic_shapes=shapes))
    assert [dim.low for dim in captured.dims] == [2, 1]


def test_sizes_that_are_one_together():
    def model(x, y):
        return x.sum(-1) + (y.sum(-1) if x.shape[-1] * y.shape[-1] > 1 else y.sum(-1) * 5.0)

    inputs, shapes = (torch.randn(2, 4), torch.randn(2, 5)), ({1: AUTO}, {1: AUTO})
    captured = capture(spec_of(model, inputs, dynamic_shapes=shapes))
    assert [dim.low for dim in captured.dims] == [2, 2]
