"""Look-ups of places that are known and follow each other become parts joined; others stay."""

from __future__ import annotations

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.torch

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import load_spec  # noqa: E402
from aotc.aot.ir import build  # noqa: E402
from aotc.aot.ir.graph import Graph, make  # noqa: E402
from aotc.aot.ir.reference import interpret  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite  # noqa: E402
from aotc.aot.rewrites.runs import MOST_RUNS, _part, _split, join_runs  # noqa: E402
from aotc.aot.traits import TargetTraits  # noqa: E402

SPEC = """
import torch
import torch.nn.functional as F

def model(x):
    return {body}

example_inputs = (torch.randn(2, 3, 11, 13),)
{more}
"""
JOINED = {
    "roll": "x.roll((4, -30), (2, 3))",
    "roll of all": "x.roll(17)",
    "reflection": 'F.pad(x, (3, 2, 10, 0), mode="reflect")',
    "replication": 'F.pad(x, (3, 0, 1, 25), mode="replicate")',
    "reversed places": "x[:, :, torch.arange(10, 1, -1)]",
}
LOOKED_UP = {
    "every second": "x[..., torch.arange(6) * 2]",
    "places of a period": "x[..., torch.arange(40) % 5]",
    "rows": "x.roll(1, 1)",
    "nearest": "F.interpolate(x, size=(17, 6))",
    "places of data": "x.index_select(3, x[0, 0, 0].abs().long().clamp(max=5))",
}


def captured(folder, body, more=""):
    path = folder / "spec.py"
    path.write_text(SPEC.format(body=body, more=more))
    spec = load_spec(str(path))
    return spec, rewrite(capture(spec).graph, TargetTraits(), frozenset({"runs"}))[0]


@pytest.mark.parametrize("name", JOINED)
def test_runs_are_joined(name, tmp_path):
    spec, graph = captured(tmp_path, JOINED[name])
    assert "take" in {node.op for node in graph.nodes()}
    found, count = join_runs(graph)
    assert count
    assert "take" not in {node.op for node in found.nodes()}
    (x,) = spec.arguments
    numpy.testing.assert_array_equal(interpret(found, [x.numpy()])[0], spec.module(x).numpy())


@pytest.mark.parametrize("name", LOOKED_UP)
def test_other_places_are_looked_up(name, tmp_path):
    _, graph = captured(tmp_path, LOOKED_UP[name])
    assert join_runs(graph) == (graph, 0)


def test_places_of_sizes_that_vary_are_looked_up(tmp_path):
    more = 'dynamic_shapes = ({3: torch.export.Dim("w", min=5)},)'
    assert join_runs(captured(tmp_path, "x.roll(3, 3)", more)[1])[1] == 0
    assert join_runs(captured(tmp_path, "x.roll(3, 2)", more)[1])[1] == 1


@pytest.mark.parametrize("seed", range(30))
def test_runs_of_any_places_are_the_places(seed):
    """What is joined at random places is what is looked up there."""
    drawn = numpy.random.default_rng(seed)
    places = numpy.concatenate([
        start + step * numpy.arange(drawn.integers(1, 6))
        for start, step in zip(drawn.integers(6, 20, 4), drawn.integers(-1, 2, 4), strict=True)
    ]).tolist()  # fmt: skip
    runs = _split(places)
    assert [place for run in runs for place in run] == places
    assert len(runs) <= 2 * MOST_RUNS
    data = make("input", (), {"name": "x", "dtype": "f32", "shape": (3, 32)})
    joined = build.concat([_part(data, 1, run) for run in runs], 1)
    x = drawn.standard_normal((3, 32)).astype("float32")
    (found,) = interpret(Graph((data,), (joined,), ("x",), ("y",), {}), [x])
    numpy.testing.assert_array_equal(found, x[:, places])
