"""`if data: raise` and `assert data`: checks where the model goes on with one value alone."""

import numpy
import pytest

torch = pytest.importorskip("torch")

from capture.asserting_models import (  # noqa: E402
    asserted,
    both,
    caught,
    compared,
    either,
    negated,
    of_the_library,
    one_of,
    other,
    whole,
)

from aotc.aot import errors  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.ir.reference import interpret  # noqa: E402

pytestmark = pytest.mark.torch
X = torch.linspace(-1, 2, 12).reshape(3, 4)
HOLD = {
    compared: [
        "the model raises ValueError: `labels is not None and labels.max() >= LARGEST` holds",
    ],
    asserted: [
        "the model raises AssertionError: not in range",
        "the model raises AssertionError: not in range",
        "the model raises AssertionError: `not (labels < 0).any()` does not hold",
    ],
    negated: ["the model raises RuntimeError: `not bool((x < 9).all())` holds"],
    either: [
        "the model raises ValueError: out of range",
        "the model raises ValueError: out of range",
        "the model raises ValueError: labels",
    ],
    of_the_library: ["the model raises ValueError: var has negative entries"],
}  # fmt: skip


@pytest.mark.parametrize("model", HOLD, ids=lambda model: model.__name__)
def test_what_the_model_raises_on_is_checked_at_each_call(model):
    given = X, torch.arange(3)
    captured = capture(spec_of(model, given))
    assert [check.attr("operation") for check in captured.graph.checks] == HOLD[model]
    found, *_ = interpret(captured.graph, captured.golden_inputs)
    numpy.testing.assert_allclose(found, model(*given).numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "model", [both, one_of, whole, other, caught], ids=lambda each: each.__name__
)
def test_what_goes_on_with_both_values_is_refused(model):
    with pytest.raises(errors.ExportFailed, match="control flow depends on the value"):
        capture(spec_of(model, (X,)))
