"""Places of extremes: torch's for NaN of both signs, infinities and zeros, whatever their order."""

from __future__ import annotations

import itertools

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.reference import interpret

torch = pytest.importorskip("torch")

SPECIAL = (float("nan"), -float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, -1e-45, 2.5)
DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_every_three_special_numbers(op, dtype):
    rows = torch.tensor(list(itertools.product(SPECIAL, repeat=3))).to(DTYPES[dtype])
    x = make("input", (), {"name": "x", "dtype": dtype, "shape": tuple(rows.shape)})
    graph = Graph((x,), (b.index_of_extreme(op, x, (1,)),), ("x",), ("place",), {})
    bits = rows.view(torch.int16).numpy().view("uint16") if dtype == "bf16" else rows.numpy()
    (found,) = interpret(graph, [bits])
    expected = getattr(torch, op)(rows, dim=1, keepdim=True)
    numpy.testing.assert_array_equal(found, expected.numpy())
    # One kernel's worth: a single reduction, of integers.
    (reduction,) = [node for node in graph.nodes() if node.op == op]
    assert reduction.inputs[0].dtype in ("i32", "i64")
