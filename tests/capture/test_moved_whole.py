"""Ops that move elements in runs are imported so, not as look-ups of each place."""

from __future__ import annotations

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.torch

from aotc.aot.build import BuildOptions, build  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import load_spec  # noqa: E402
from aotc.aot.ir.reference import interpret  # noqa: E402
from aotc.runtime import load  # noqa: E402

SPEC = """
import torch
import torch.nn.functional as F

def model(x):
    return {body}

example_inputs = (torch.randn(2, 3, 11, 13),)
{more}
"""
BODIES = {
    "roll": "x.roll((4, -30), (1, 3))",
    "roll of all": "x.roll(17)",
    "reflection": 'F.pad(x, (3, 2, 10, 0), mode="reflect")',
    "reflection cut": 'F.pad(x, (3, -2, -1, 4), mode="reflect")',
    "replication": 'F.pad(x, (3, 0, 1, 25), mode="replicate")',
}
LOOKS_UP = {"take", "gather", "iota"}


@pytest.mark.parametrize("name", BODIES)
def test_no_place_is_looked_up(name, tmp_path):
    path = tmp_path / "spec.py"
    path.write_text(SPEC.format(body=BODIES[name], more=""))
    spec = load_spec(str(path))
    graph = capture(spec).graph
    assert not {node.op for node in graph.nodes()} & LOOKS_UP
    (x,) = spec.arguments
    numpy.testing.assert_array_equal(interpret(graph, [x.numpy()])[0], spec.module(x).numpy())


@pytest.mark.parametrize("name", BODIES)
def test_sizes_may_vary(name, tmp_path, cache):
    path, out = tmp_path / "spec.py", tmp_path / "it.aotc"
    dims = '{2: torch.export.Dim("h", min=11), 3: torch.export.Dim("w", min=5)}'
    path.write_text(SPEC.format(body=BODIES[name], more=f"dynamic_shapes = ({dims},)"))
    build(str(path), out, ("cpu",), BuildOptions(cache_folder=cache))
    model = load_spec(str(path)).module
    with load(out) as program:
        for height, width in ((11, 13), (12, 5), (40, 31)):
            x = torch.randn(2, 3, height, width)
            assert torch.equal(torch.from_numpy(numpy.asarray(program(x.numpy()))), model(x))
