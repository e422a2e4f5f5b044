"""Runs a whole schedule through Triton's interpreter, for comparison with the reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy

from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import KernelSpec, lower
from aotc.aot.schedule import CPU, Schedule, schedule

PROGRAM = Path(__file__).parent / "interpret_kernels.py"


def run_graph(
    graph: Graph, inputs: Sequence[numpy.ndarray], folder: Path, candidate: int = 0
) -> list[numpy.ndarray]:
    """Outputs of the graph's kernels; the graph holds its constants."""
    plan = schedule(graph, CPU)
    return run_schedule(plan, lower(plan, CPU), inputs, folder, candidate)


def run_schedule(
    plan: Schedule,
    specs: Sequence[KernelSpec],
    inputs: Sequence[numpy.ndarray],
    folder: Path,
    candidate: int = 0,
) -> list[numpy.ndarray]:
    """Launches every group in turn; buffers start filled with what a reader must never see."""
    names: dict[Node, str] = {}
    arrays: dict[str, numpy.ndarray] = {}
    dtypes: dict[str, str] = {}

    def add(node: Node, array: numpy.ndarray) -> None:
        names[node] = f"b{len(names)}"
        arrays[names[node]] = numpy.ascontiguousarray(array)
        dtypes[names[node]] = node.dtype

    for node, array in zip(plan.graph.inputs, inputs, strict=True):
        add(node, array)
    launches = []
    for group, spec in zip(plan.groups, specs, strict=True):
        for node in group.reads:
            if node not in names:
                add(node, plan.graph.constants[node.attr("name")].array)
        for root in group.roots:
            add(root.node, _poison(root.node))
        chosen = spec.candidates[min(candidate, len(spec.candidates) - 1)]
        nodes = [*group.reads, *(root.node for root in group.roots)]
        launches.append(
            {
                "source": spec.source,
                "function": spec.function,
                "grid": chosen.grid,
                "config": dict(chosen.config),
                "args": [names[node] for node in nodes],
            }
        )
    results = _interpret(folder, dtypes, arrays, launches)
    pairs = zip(plan.graph.outputs, plan.stored, strict=True)
    return [results[names[stored]].reshape(output.shape) for output, stored in pairs]


def _poison(node: Node) -> numpy.ndarray:
    dtype = DTYPES[node.dtype]
    array = numpy.zeros(node.shape, dtype.numpy)
    if dtype.numpy.startswith("float"):
        array[...] = numpy.nan
    elif node.dtype == "bf16":
        array[...] = 0x7FC0
    return array


def _interpret(
    folder: Path,
    dtypes: Mapping[str, str],
    arrays: Mapping[str, numpy.ndarray],
    launches: Sequence[object],
) -> Mapping[str, numpy.ndarray]:
    (folder / "job.json").write_text(json.dumps({"buffers": dtypes, "launches": launches}))
    numpy.savez(folder / "buffers.npz", **arrays)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return numpy.load(folder / "results.npz")
