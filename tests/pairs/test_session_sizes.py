"""States whose sizes a session fixes, together with all else that a plan can hold: dynamic inputs,
an op of torch's, a native function and checked indices, in one bundle beside eager torch."""

from __future__ import annotations

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc import runtime  # noqa: E402
from aotc.runtime.errors import IndexOutOfRange, SessionSizeDiffers  # noqa: E402
from aotc.runtime.verify import verify  # noqa: E402
from tests.backends.conftest import compile_library  # noqa: E402, F401  a fixture

pytestmark = [pytest.mark.torch, pytest.mark.triton]
COLUMNS = 16


@torch.library.custom_op("aotc_pairs::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    """An op that has no import."""
    return x * 2


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


SPEC = """
import torch
from aotc import aot

positive = aot.native_op("many::positive", backend={many!r}, fake=lambda x: torch.empty_like(x))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(2, 6, 16))
        self.register_buffer("marks", torch.full((6,), -1))

    def forward(self, x, places):
        y = positive(x.abs()) + torch.ops.aotc_pairs.doubled(x)
        self.rows[:, places] = y
        self.marks.index_copy_(0, places, places)
        self.rows[:, :1] = y[:, :1] * 3
        held = torch.ops.aotc_pairs.doubled(self.rows)
        return torch.softmax(held.sum(1), -1), positive(self.rows.abs()).sum(2), self.marks.sum()


model = Model()
example_inputs = (torch.randn(2, 3, 16), torch.arange(3))
Dim = torch.export.Dim
batch, length, rows = Dim("batch", max=4), Dim("length", min=2, max=40), Dim("rows", max=40)
dynamic_shapes = ({{0: batch, 1: rows}}, {{0: rows}})
state_shapes = {{"rows": {{0: batch, 1: length}}, "marks": {{0: length}}}}
"""


def expected(rows, marks, x, places):
    """The outputs by eager torch, which changes the states."""
    y = (x.abs() + 1) + x * 2
    rows[:, places] = y
    marks.index_copy_(0, places, places)
    rows[:, :1] = y[:, :1] * 3
    return torch.softmax((rows * 2).sum(1), -1), (rows.abs() + 1).sum(2), marks.sum()


@pytest.fixture(scope="module")
def bundle(compile_library, cache, tmp_path_factory):  # noqa: F811
    from aotc.aot.cli.program import run

    folder = tmp_path_factory.mktemp("sizes")
    spec, out = folder / "spec.py", folder / "b"
    spec.write_text(SPEC.format(many=str(compile_library("many.cpp", "many"))))
    line = ["build", spec, "-o", out, "--quiet", "--cache-dir", cache, "--embed-backends"]
    assert run([str(word) for word in (*line, "--fallback", "torch")]) == 0
    return out


def follow(session, rows, marks, counts):
    generator, batch = torch.Generator().manual_seed(5), rows.shape[0]
    for count in counts:
        x = torch.randn(batch, count, COLUMNS, generator=generator)
        places = torch.randperm(rows.shape[1], generator=generator)[:count]
        found = session(x.numpy(), places.numpy())
        for one, other in zip(found, expected(rows, marks, x, places), strict=True):
            torch.testing.assert_close(torch.from_numpy(numpy.asarray(one)), other)
    for name, wanted in (("rows", rows), ("marks", marks)):
        torch.testing.assert_close(torch.from_dlpack(session.state.view(name)), wanted)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_bundle(bundle):
    assert {finding.status for finding in verify(bundle)} == {"ok"}
    for threads in (1, 2):
        with runtime.load(bundle, threads=threads) as program:
            for batch, length, counts in ((2, 6, (3, 1, 6)), (1, 2, (1, 2)), (4, 40, (40, 17))):
                rows, marks = torch.zeros(batch, length, COLUMNS), torch.full((length,), -1)
                with program.session(batch=batch, length=length) as session:
                    follow(session, rows, marks, counts)
                    fork, kept = session.fork(), (rows.clone(), marks.clone())
                    follow(session, rows, marks, (1,))
                    follow(fork, *kept, (2, 1))
                    fork.close()
                    wrong = numpy.zeros((batch, 1, COLUMNS), numpy.float32)
                    with pytest.raises(IndexOutOfRange, match=f"index {length} "):
                        session(wrong, numpy.array([length]))
                    with pytest.raises(SessionSizeDiffers, match=f"expected {batch},"):
                        session(numpy.zeros((3, 1, COLUMNS), numpy.float32), numpy.array([0]))
