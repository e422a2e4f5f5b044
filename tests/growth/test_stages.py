"""The work of each stage grows with its graph: Python's calls a node, counted at two sizes.

Counted are calls of functions and methods in Python and in C, which no load of the machine changes.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, Node, make
from aotc.aot.ir.types import TensorType
from aotc.aot.lower import lower
from aotc.aot.plan import assign_buffers
from aotc.aot.plan.arena import Lifetime, assign_offsets
from aotc.aot.rewrites import fold
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.schedule import schedule
from aotc.aot.schedule.cost import is_worth_a_buffer
from aotc.aot.stages import Clock, Heap
from aotc.aot.targets.families import find_target

SMALL, LARGE = 120, 480  # nodes, about
LIMIT = 1.3  # calls a node at the large size over those at the small one
SHAPE = (32, 64)


def given(name: str = "x", shape: tuple[int, ...] = SHAPE) -> Node:
    return make("input", (), {"name": name, "dtype": "f32", "shape": shape})


def graph_of(outputs: list[Node], constants: dict[str, Constant] | None = None) -> Graph:
    names = tuple(f"y{number}" for number in range(len(outputs)))
    return Graph((given(),), tuple(outputs), ("x",), names, constants or {})


def chain(count: int) -> Graph:
    """A value with a skip over every fourth operation."""
    data = skip = given()
    for number in range(count):
        if number % 4 == 3:
            data, skip = data + skip, data
        else:
            data = build.unary("sin", data) if number % 2 else data * 1.01
    return graph_of([data])


def nested_skips(count: int) -> Graph:
    """The first values are read again by the last, the way down and up of a UNet."""
    data, kept = given(), []
    for number in range(count // 4):
        data = build.softmax(build.unary("sin" if number % 2 else "cos", data), (1,))
        kept.append(data)
    for other in reversed(kept):
        data = build.unary("tanh", data + other)
    return graph_of([data])


def branches(count: int) -> Graph:
    """Short branches from one value, joined at the end."""
    parts = [
        build.unary("exp", build.unary("sin", given()) * (1.0 + number))
        for number in range(count // 3)
    ]
    return graph_of([build.concat(parts, 0)])


def outputs(count: int) -> Graph:
    """Each value is an output too, twice, once under another shape."""
    data, found = given(), []
    for number in range(count // 2):
        data = build.unary("sin" if number % 2 else "cos", data)
        found += [data, build.reshape(data, (64, 32))]
    return graph_of(found)


def layers(count: int) -> Graph:
    """Products with weights, norms and residual sums."""
    data, constants = given(), {}
    for number in range(count // 20):
        name = f"weight{number}"
        kind = TensorType("f32", (64, 64))
        constants[name] = Constant(name, kind, numpy.full((64, 64), number, "float32") + EYE)
        product = build.matmul(build.standardize(data, (1,), 1e-5), build.constant(name, kind))
        data = data + build.unary("tanh", product)
    return graph_of([data], constants)


EYE = numpy.eye(64, dtype="float32")
GRAPHS: tuple[Callable[[int], Graph], ...] = (chain, nested_skips, branches, outputs, layers)


def calls(work: Callable[[], object]) -> tuple[int, object]:
    """How many calls `work` makes, and its result."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return count, result


def stages(graph: Graph) -> dict[str, float]:
    """Calls a node of each stage that follows on the capture, but for compilers."""
    traits, nodes = find_target("cpu").traits, len(graph.nodes())
    found: dict[str, float] = {}
    found["rewrite"], (graph, _) = calls(lambda: rewrite(graph))
    found["schedule"], scheduled = calls(lambda: schedule(graph, traits))
    found["lower"], _ = calls(lambda: lower(scheduled, traits))
    found["assign_buffers"], _ = calls(lambda: assign_buffers(scheduled))
    return {stage: count / nodes for stage, count in found.items()}


@pytest.mark.parametrize("make_graph", GRAPHS, ids=lambda each: each.__name__)
def test_no_stage_works_more_for_a_node_of_a_larger_graph(make_graph):
    rewrite(make_graph(40))  # what is done once in a process
    small, large = stages(make_graph(SMALL)), stages(make_graph(LARGE))
    assert {
        stage: f"{small[stage]:.0f} → {large[stage]:.0f}"
        for stage in small
        if large[stage] > LIMIT * small[stage] + 1
    } == {}


def counted(count: int) -> Graph:
    """Arithmetic over places, too large for a table, each value of which is read twice."""
    data = build.cast(build.iota((2000,), 0), "f32")
    for _ in range(count // 2):
        data = data * 0.5 + data
    return graph_of([given(shape=(2000,)) + data])


def test_counted_values_are_evaluated_once_each():
    counts = [calls(lambda size=size: fold.fold(counted(size)))[0] / size for size in (12, 48)]
    assert counts[1] < LIMIT * counts[0]


def lives(count: int) -> list[Lifetime]:
    """Buffers that are read by one of the next launches."""
    return [Lifetime("", 64 + 64 * (at % 7), at, at + 1 + at % 3) for at in range(count)]


def test_placing_a_buffer_looks_at_those_that_live_with_it():
    counts = [
        calls(lambda size=size: assign_offsets(lives(size)))[0] / size for size in (250, 1000)
    ]
    assert counts[1] < LIMIT * counts[0]


def test_a_price_looks_at_as_many_nodes_as_decide_it():
    traits = find_target("cpu").traits
    counts = []
    for size in (200, 800):
        (node,) = chain(size).outputs
        question = (node, 64 * node.type.numel, 2, frozenset(), traits)
        counts.append(calls(lambda question=question: is_worth_a_buffer(*question)))
    assert counts[0] == counts[1]
    assert counts[0][1] is True


def test_a_stage_collects_only_what_it_makes_itself(monkeypatch):
    monkeypatch.setattr("aotc.aot.stages._heap", Heap())
    gc.unfreeze()  # the suite freezes what its collection has made
    try:
        model = [object()]
        with Clock().stage("rewrite"):
            assert not any(each is model for each in gc.get_objects())
            with Clock().stage("plan"):
                made = [model]
            assert any(each is made for each in gc.get_objects())
            assert not any(each is model for each in gc.get_objects())
        assert any(each is model for each in gc.get_objects())
    finally:
        gc.freeze()


def test_what_a_caller_has_frozen_stays_so(monkeypatch):
    """And is counted once: Python walks frozen objects to count them."""
    monkeypatch.setattr("aotc.aot.stages._heap", Heap())
    model, counts = [object()], []
    gc.freeze()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counts.append(1) or 1)
    for _ in range(3):
        with Clock().stage("rewrite"):
            pass
    assert not any(each is model for each in gc.get_objects())
    assert len(counts) == 1
