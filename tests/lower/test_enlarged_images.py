"""Convolutions on GPUs that read an enlarged, moved or otherwise indexed image in place, of drawn
sizes, run as native code; and how their loops take the depth apart."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Constant, Graph, Node, make, walk
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen
from aotc.aot.lower import lower
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import operand, values, weight
from schedule_runner import Job

pytestmark = pytest.mark.triton
COUNT = 12
TOLERANCES = {"f32": 3e-5, "bf16": 2e-2, "f16": 3e-3}


def repeated(image: Node, factors: tuple[int, int]) -> Node:
    """Each pixel so many times along both axes: nearest neighbours."""
    count, channels, *sides = image.shape
    for axis, factor in zip((2, 3), factors, strict=True):
        apart = b.reshape(image, (*image.shape[: axis + 1], 1, *image.shape[axis + 1 :]))
        shape = [*apart.shape]
        shape[axis + 1] = factor
        sides[axis - 2] *= factor
        image = b.reshape(b.expand(apart, shape), (count, channels, *sides))
    return image


def looked_up(image: Node, tables: dict[str, Constant], chance: random.Random) -> Node:
    """Rows and columns of the image at places from tables, as enlarging by no whole number has."""
    for axis in (2, 3):
        extent = image.shape[axis]
        wanted = chance.randrange(extent, 2 * extent)
        places = numpy.arange(wanted) * extent // wanted
        name = f"places{axis}"
        index = make("constant", (), {"name": name, "dtype": "i64", "shape": (wanted,)})
        tables[name] = Constant(name, index.type, places)
        image = make("take", (image, index), {"axis": axis})
    return image


def drawn(seed: int) -> Graph:
    """A convolution of an image that lies channels last."""
    chance, tables = random.Random(seed), dict[str, Constant]()
    channels, filters = chance.choice((16, 32, 48, 64)), chance.choice((3, 16, 40))
    dtype = chance.choice(tuple(TOLERANCES))
    sides = chance.randrange(3, 9), chance.randrange(3, 9)
    data = operand("x", chance.randrange(1, 3), *sides, channels, dtype=dtype)
    image = b.permute(data, (0, 3, 1, 2))
    factors = chance.choice(((2, 2), (3, 1), (2, 3), (1, 4)))
    image = repeated(image, factors) if seed % 3 else looked_up(image, tables, chance)
    side, stride = chance.choice((1, 2, 3, 5)), chance.choice((1, 1, 2))
    attrs = {"stride": (stride,) * 2, "padding": (side // 2,) * 2, "dilation": (1, 1), "groups": 1}
    filter_shape = (filters, channels, side, side)
    found = make("convolution", (image, weight("w", *filter_shape, dtype=dtype)), attrs)
    graph = Graph((data,), (found,), ("x",), ("out",), {})
    constants = [node for node in walk(graph.outputs) if node.op == "constant"]
    made = {
        node.attr("name"): Constant(node.attr("name"), node.type, values(node.type, 3))
        for node in constants
        if node.attr("name") not in tables
    }
    return Graph((data,), (found,), ("x",), ("out",), {**made, **tables})


@pytest.mark.parametrize("first", [0, pytest.param(COUNT, marks=pytest.mark.nightly)])
def test_kernels_agree_with_the_reference(first, tmp_path):
    job, rows, chance = Job(), [], random.Random(first)
    for seed in range(first, first + COUNT):
        graph = drawn(seed)
        found = rewrite(graph, traits=GPUS[90])[0]
        inputs = [values(node.type, 5 + seed) for node in graph.inputs]
        start = len(job.launches)
        ((name, shape),) = job.add(
            found, inputs, lambda spec: chance.choice(spec.candidates), GPUS[90]
        )
        rows.append((seed, graph, inputs, name, shape, range(start, len(job.launches))))
    buffers = job.run(tmp_path, "native", 2)
    for seed, graph, inputs, name, shape, launches in rows:
        assert not job.error(launches), f"seed {seed}: {job.error(launches)}"
        (wanted,), (node,) = interpret(graph, inputs), graph.outputs
        wanted = widen(wanted, node.dtype)
        found = widen(buffers[name].reshape(shape), node.dtype)
        atol = TOLERANCES[node.dtype] * max(1.0, numpy.abs(wanted).max())
        numpy.testing.assert_allclose(found, wanted, rtol=0, atol=atol, err_msg=f"seed {seed}")


def test_loads_are_whole_vectors():
    """Triton knows what divides `start - start // 64 * 64`, and not of `start % 64`."""
    data = operand("x", 1, 16, 16, 64, dtype="bf16")
    image = repeated(b.permute(data, (0, 3, 1, 2)), (2, 2))
    attrs = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    found = make("convolution", (image, weight("w", 64, 64, 3, 3, dtype="bf16")), attrs)
    constants = {"w": Constant("w", found.inputs[1].type, values(found.inputs[1].type, 1))}
    graph = Graph((data,), (found,), ("x",), ("out",), constants)
    spec = lower(schedule(rewrite(graph, traits=GPUS[90])[0], GPUS[90]), GPUS[90])[-1]
    for form in spec.forms:
        assert "ca = start - start // 64 * 64 + tl.arange(0, BK)" in form.source
        assert not re.search(r"start % \d", form.source)
