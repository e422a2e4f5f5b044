"""Rows that are written into states from where they lie: heads of one product, in any view."""

from __future__ import annotations

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc.runtime import load  # noqa: E402  needs torch

pytestmark = pytest.mark.torch
SPEC = """
import torch

HEADS, SIZE, LENGTH = 3, 4, 10
BATCH, STEPS = {batch}, {steps}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Linear(6, 4 * HEADS * SIZE)
        for number in range(7):
            cache = torch.zeros(BATCH, HEADS, LENGTH, SIZE)
            self.register_buffer(f"cache{{number}}", cache)

    def views(self, x):
        whole = self.wide(x)  # [BATCH, STEPS, 4 * HEADS * SIZE]
        heads = whole.view(BATCH, STEPS, 4, HEADS, SIZE)
        yield heads[:, :, 1].transpose(1, 2)
        yield heads[:, :, 3].transpose(1, 2) * 2.0
        yield whole.view(BATCH, STEPS, HEADS, 4 * SIZE)[..., 3 : 3 + SIZE].transpose(1, 2)
        yield whole.view(BATCH, STEPS, HEADS, SIZE, 4)[..., 2].transpose(1, 2)
        yield heads[:, :, 2].transpose(1, 2).flip(1)
        yield whole[:, :, None, 5 : 5 + SIZE].transpose(1, 2).expand(-1, HEADS, -1, -1)
        yield heads[:, :, 0, ::2].transpose(1, 2).repeat(1, 2, 1, 1)[:, :HEADS]

    def forward(self, x, places):
        for number, rows in enumerate(self.views(x)):
            getattr(self, f"cache{{number}}").index_copy_(2, places, rows)
        total = sum(getattr(self, f"cache{{number}}") for number in range(7))
        return total, self.wide(x)


torch.manual_seed(4)
model = Model()
example_inputs = (torch.randn(BATCH, STEPS, 6), torch.arange(STEPS))
"""


@pytest.mark.parametrize(("batch", "steps"), [(1, 1), (2, 1), (2, 3)])
def test_states_hold_the_rows_of_their_views(batch, steps, tmp_path, cache):
    from aotc.aot.cli.program import run

    spec = tmp_path / "model.py"
    spec.write_text(SPEC.format(batch=batch, steps=steps))
    line = ["build", spec, "-o", tmp_path / "b", "--quiet", "--cache-dir", cache]
    assert run([str(word) for word in line]) == 0
    names: dict = {}
    exec(spec.read_text(), names)
    generator = torch.Generator().manual_seed(9)
    with load(tmp_path / "b") as program:
        kernels = [program.plan.kernels[each.kernel].name for each in program.plan.at().launches]
        session = program.session()
        for places in ([4, 9, 0], [2, 3, 4], [9, 4, 1]):
            x = torch.randn(batch, steps, 6, generator=generator)
            at = torch.tensor(places[:steps])
            expected = names["model"](x, at)
            for found, right in zip(session(x.numpy(), at.numpy()), expected, strict=True):
                numpy.testing.assert_allclose(found, right.detach().numpy(), rtol=1e-5, atol=1e-6)
    written = sum("scatter_rows" in name for name in kernels)
    assert written == 4  # three of them write two states
