"""Plans of the examples: no launch writes what a later one still reads, or what it reads itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.aot.ir.graph import Constant
from aotc.aot.ir.text import parse_graph
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import lower
from aotc.aot.plan import ChosenKernel, plan
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.runtime.bundle.plan import Plan

GRAPHS = sorted((Path(__file__).parents[1] / "schedule" / "graphs").glob("*.txt"))


def planned(path: Path):
    graph = parse_graph(path.read_text(), fill=lambda name, kind: Constant(name, kind, None))
    found = schedule(graph, CPU)
    chosen = [
        ChosenKernel(f"k{spec.digest[:16]}", spec.name, spec.candidates[0].grid)
        for spec in lower(found, CPU)
    ]
    return found, plan(found, chosen, 4096).at()


@pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.stem)
def test_every_read_finds_what_was_stored_for_it(path):
    found, result = planned(path)
    owner: dict[int, object] = {}  # 64-byte line of the arena → the node whose bytes it holds
    for group, launch in zip(found.groups, result.launches, strict=True):
        nodes = [*group.reads, *(root.node for root in group.roots)]
        assert len(launch.args) == len(nodes)
        for node, (space, value) in zip(group.reads, launch.args, strict=False):
            if space == "arena":
                first = value - group.start(node) * DTYPES[node.dtype].itemsize_bytes
                lines = range(first // 64, -(-(first + node.type.nbytes) // 64))
                assert first % 64 == 0
                assert all(owner[line] is node for line in lines)
        stores = launch.args[len(group.reads) :]
        assert not set(stores) & set(launch.args[: len(group.reads)])
        for root, (space, value) in zip(group.roots, stores, strict=True):
            assert space in ("arena", "output")
            if space == "arena":
                assert value + root.node.type.nbytes <= result.arena_bytes
                for line in range(value // 64, -(-(value + root.node.type.nbytes) // 64)):
                    owner[line] = root.node
    outputs = {value for row in result.launches for space, value in row.args if space == "output"}
    assert outputs == set(range(len(found.graph.outputs)))


def test_equal_kernels_are_listed_once():
    _, result = planned(next(path for path in GRAPHS if path.stem == "bert"))
    assert len(result.kernels) < len(result.launches) / 2
    assert len({kernel.symbol for kernel in result.kernels}) == len(result.kernels)


def test_plans_are_the_runtimes_own():
    _, result = planned(next(path for path in GRAPHS if path.stem == "small_cnn"))
    again = Plan.from_msgpack(Plan.of(result).to_msgpack())
    assert again.at() == result
