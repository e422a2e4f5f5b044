"""Embedding bags against torch: even and uneven bags, every mode, padding, weights of samples."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir.reference import interpret

torch = pytest.importorskip("torch")

from torch.nn.functional import embedding_bag  # noqa: E402

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite  # noqa: E402

pytestmark = pytest.mark.torch
GENERATOR = torch.Generator().manual_seed(5)
TABLE = torch.randn(12, 6, generator=GENERATOR)
BAGS = torch.randint(0, 12, (4, 3), generator=GENERATOR)
FLAT = BAGS.reshape(-1)
OFFSETS = torch.tensor([0, 2, 2, 9])  # one of them empty
PADDING = int(FLAT[1])
FACTORS = torch.rand(4, 3, generator=GENERATOR)

CASES = {
    "even sum": (lambda t, i: embedding_bag(i, t, mode="sum"), (TABLE, BAGS)),
    "even mean": (lambda t, i: embedding_bag(i, t, mode="mean"), (TABLE, BAGS)),
    "even max": (lambda t, i: embedding_bag(i, t, mode="max"), (TABLE, BAGS)),
    "weighted": (
        lambda t, i, w: embedding_bag(i, t, mode="sum", per_sample_weights=w),
        (TABLE, BAGS, FACTORS),
    ),
    "padded mean": (
        lambda t, i: embedding_bag(i, t, mode="mean", padding_idx=PADDING),
        (TABLE, BAGS),
    ),
    "uneven sum": (lambda t, i, o: embedding_bag(i, t, o, mode="sum"), (TABLE, FLAT, OFFSETS)),
    "uneven mean": (lambda t, i, o: embedding_bag(i, t, o, mode="mean"), (TABLE, FLAT, OFFSETS)),
    "uneven max": (lambda t, i, o: embedding_bag(i, t, o, mode="max"), (TABLE, FLAT, OFFSETS)),
    "last offset": (
        lambda t, i, o: embedding_bag(i, t, o, mode="sum", include_last_offset=True),
        (TABLE, FLAT, torch.tensor([0, 5, 12])),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bags_are_those_of_torch(name):
    model, inputs = CASES[name]
    captured = capture(spec_of(model, inputs))
    for graph in (captured.graph, rewrite(captured.graph)[0]):
        found = interpret(graph, captured.golden_inputs)
        numpy.testing.assert_allclose(found[0], captured.golden_outputs[0], rtol=1e-5, atol=1e-6)


def test_even_bags_are_no_matrix_of_members():
    model, inputs = CASES["even sum"]
    shapes = [node.shape for node in rewrite(capture(spec_of(model, inputs)).graph)[0].nodes()]
    assert max(map(len, shapes)) == 3
    assert (4, 12, 1) not in shapes
