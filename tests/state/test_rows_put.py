"""Rows put into states by several indices: written where they lie, as eager torch has them."""

import random

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc.aot.capture.distinct_values import distinct  # noqa: E402
from aotc.runtime import load  # noqa: E402
from aotc.runtime.errors import AssertionFailed  # noqa: E402

pytestmark = pytest.mark.torch
SPEC = """
import torch
from test_rows_put import Puts

model = Puts({seed}, {are_distinct})
rows, length = (torch.export.Dim(name, min=1, max=5) for name in ("rows", "length"))
example_inputs = (torch.tensor([3, 1, 0, 2, 6]), torch.randint(0, 7, (2, 3)))
dynamic_shapes = (None, {{0: rows, 1: length}})
"""


class Puts(torch.nn.Module):
    """`index_put` into buffers of four dims, with whole dims before, between and after indices."""

    def __init__(self, seed, are_distinct):
        super().__init__()
        self.are_distinct = are_distinct
        draw = random.Random(seed)
        self.forms = []
        for place in range(4):
            axes = sorted(draw.sample(range(4), draw.choice((2, 2, 3))))
            kinds = [draw.choice(("slots", "columns", "data", "rows")) for _ in axes]
            self.forms.append((f"state_{place}", dict(zip(axes, kinds, strict=True))))
            shape = [draw.choice((7, 9)) for _ in range(4)]
            self.register_buffer(f"state_{place}", torch.zeros(shape))

    def forward(self, slots, data):
        rows, length = data.shape
        if self.are_distinct:
            slots = distinct(slots, "a slot is there twice")
        index = {
            "slots": slots[:rows, None],
            "columns": torch.arange(length).expand(rows, length),
            "data": data,
            "rows": torch.arange(rows)[:, None],
        }
        for name, axes in self.forms:
            state = getattr(self, name)
            indices = [index[axes[axis]] if axis in axes else slice(None) for axis in range(4)]
            shape = state[tuple(indices)].shape
            # All that is written to one element differs: the last one wins.
            values = torch.arange(shape.numel(), dtype=torch.float32) + data.sum()
            state[tuple(indices)] = values.reshape(shape)
        return data.sum()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(each, marks=pytest.mark.nightly) for each in range(1, 25))]
)
@pytest.mark.parametrize("are_distinct", [False, True])
def test_states_are_those_of_eager(seed, are_distinct, tmp_path, cache, aotc):
    spec = tmp_path / "spec.py"
    spec.write_text(SPEC.format(seed=seed, are_distinct=are_distinct))
    code, _, errors = aotc("build", spec, "-o", tmp_path / "b", "--quiet", "--cache-dir", cache)
    assert code == 0, errors
    model = Puts(seed, are_distinct)
    draw = torch.Generator().manual_seed(seed)
    with load(tmp_path / "b") as program, program.session() as session:
        for rows, length in ((2, 3), (5, 5), (1, 1), (4, 2)):
            slots = torch.randperm(7, generator=draw)[:5]
            data = torch.randint(0, 7, (rows, length), generator=draw)
            model(slots, data)
            session(slots, data)
            for name, _ in model.forms:
                found = numpy.asarray(session.state.view(name))
                numpy.testing.assert_array_equal(found, getattr(model, name).numpy())
        if are_distinct:
            for wrong in ([0, 1, 2, 3, 1], [0, 1, 2, 3, -1]):
                with pytest.raises(AssertionFailed, match="a slot is there twice"):
                    session(torch.tensor(wrong), data)
                with pytest.raises(RuntimeError, match="a slot is there twice"):
                    model(torch.tensor(wrong), data)


def test_rows_that_cannot_meet_are_written_side_by_side(cache):
    """What is known of places: a slot alone names none twice, columns of one counter never meet."""
    from aotc.aot.capture.imports.distinct import DISTINCT
    from aotc.aot.capture.imports.indexing import _distinct
    from aotc.aot.ir import build
    from aotc.aot.ir.graph import make

    slots = make("input", (), {"name": "slots", "dtype": "i64", "shape": (3, 1)})
    columns = build.expand(build.iota((4,), 0), (3, 4))
    between = build.counter(3, 2, 5)
    as_three = [build.reshape(each, (*each.shape, 1)) for each in (slots, columns)]
    assert _distinct([slots, columns], (3, 4)) == 4
    assert _distinct([as_three[0], between, as_three[1]], (3, 4, 5)) == 20
    assert _distinct([build.iota((3, 1), 0), columns], (3, 4)) == 12
    assert _distinct([columns, slots], (3, 4)) == 4
    assert _distinct([slots], (3, 1)) == 1
    assert _distinct([build.cast(build.iota((3,), 0), "i8")], (3,)) == 1
    with DISTINCT.collecting():
        DISTINCT.add(slots)
        assert _distinct([slots, columns], (3, 4)) == 12
        assert _distinct([columns, slots], (3, 4)) == 12
        assert _distinct([build.slice_axis(slots, 0, 0, 2)], (2, 1)) == 2
        assert _distinct([slots * 2], (3, 1)) == 1
    halves = build.pointwise("floor_divide", build.iota((4,), 0), 2)
    assert _distinct([slots, build.expand(halves, (3, 4))], (3, 4)) == 1
