"""The CTC loss as a scan: numbers of torch's kernel, for texts and lengths of all kinds."""

from __future__ import annotations

import random

import numpy
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.decompositions.alignments import OF_INPUT, OF_TARGET  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.ir.reference import interpret  # noqa: E402

pytestmark = pytest.mark.torch


def compare(model, *given):
    captured = capture(spec_of(model, given))
    found, *_ = interpret(captured.graph, captured.golden_inputs)
    expected = model(*given).numpy()
    numpy.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    return captured


@pytest.mark.parametrize("seed", range(10))
def test_losses_are_eagers(seed):
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    frames, batch, classes = draw.randrange(1, 9), draw.randrange(1, 4), draw.randrange(2, 5)
    blank = draw.randrange(classes)
    lengths = [draw.randrange(4) for _ in range(batch)]
    labels = [each for each in range(classes) if each != blank]  # few, so that some come twice
    rows = [[draw.choice(labels) for _ in range(max(lengths) or 1)] for _ in range(batch)]
    is_row = draw.randrange(2) and sum(lengths)
    flat = [label for row, length in zip(rows, lengths, strict=True) for label in row[:length]]
    chances = torch.randn(frames, batch, classes, generator=generator).log_softmax(-1)
    inputs = [draw.randrange(1, frames + 1) for _ in range(batch)]
    how = {
        "blank": blank,
        "reduction": draw.choice(["none", "mean", "sum"]),
        "zero_infinity": bool(draw.randrange(2)),
    }
    targets = torch.tensor(flat if is_row else rows)
    if draw.randrange(2):
        compare(
            lambda x, t, i, o: functional.ctc_loss(x, t, i, o, **how),
            chances, targets, torch.tensor(inputs), torch.tensor(lengths),
        )  # fmt: skip
    else:
        given = tuple(inputs), tuple(lengths)
        compare(lambda x, t: functional.ctc_loss(x, t, *given, **how), chances, targets)


def test_one_text_without_a_batch():
    chances = torch.randn(7, 5).log_softmax(-1)
    given = torch.tensor(6), torch.tensor(3)
    compare(functional.ctc_loss, chances, torch.tensor([1, 1, 4]), *given)


def test_lengths_that_are_none_are_errors_of_the_call():
    chances = torch.randn(6, 2, 5).log_softmax(-1)
    lengths = torch.tensor([6, 5]), torch.tensor([3, 2])
    captured = compare(functional.ctc_loss, chances, torch.randint(1, 5, (2, 3)), *lengths)
    checked = [check.attr("operation") for check in captured.graph.checks]
    assert {OF_INPUT, OF_TARGET} <= set(checked)
