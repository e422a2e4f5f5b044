"""Runs whole schedules in Triton's interpreter or as native code, against the reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy

from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import KernelSpec, lower
from aotc.aot.schedule import CPU, Group, schedule

PROGRAM = Path(__file__).parent / "launch_kernels.py"


@dataclass(slots=True)
class Job:
    """Launches and buffers of one or more graphs, to run in one process of the interpreter."""

    launches: list[object] = field(default_factory=list)
    arrays: dict[str, numpy.ndarray] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)  # by the number of the launch

    def add(
        self, graph: Graph, inputs: Sequence[numpy.ndarray], candidate: int = 0
    ) -> list[tuple[str, tuple[int, ...]]]:
        """Schedule, lower and add a graph; gives the buffer name and shape of each output."""
        plan = schedule(graph, CPU)
        names: dict[Node, str] = {}
        for node, array in zip(plan.graph.inputs, inputs, strict=True):
            self._store(names, node, array)
        for group, spec in zip(plan.groups, lower(plan, CPU), strict=True):
            for node in group.reads:
                if node not in names:
                    self._store(names, node, plan.graph.constants[node.attr("name")].array)
            for root in group.roots:
                self._store(names, root.node, _poison(root.node))
            self.launches.append(_launch(group, spec, names, candidate))
        pairs = zip(plan.graph.outputs, plan.stored, strict=True)
        return [(names[stored], output.shape) for output, stored in pairs]

    def run(self, folder: Path, mode: str = "interpreter") -> Mapping[str, numpy.ndarray]:
        """All buffers afterwards."""
        job = {"buffers": self.dtypes, "launches": self.launches}
        (folder / "job.json").write_text(json.dumps(job))
        numpy.savez(folder / "buffers.npz", **self.arrays)
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(folder), mode],
            env={**os.environ, "TRITON_INTERPRET": str(int(mode == "interpreter"))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        errors = json.loads((folder / "errors.json").read_text())
        self.errors = {int(number): text for number, text in errors.items()}
        return dict(numpy.load(folder / "results.npz"))

    def _store(self, names: dict[Node, str], node: Node, array: numpy.ndarray) -> None:
        names[node] = f"b{len(self.arrays)}"
        self.arrays[names[node]] = numpy.ascontiguousarray(array).reshape(node.shape)
        self.dtypes[names[node]] = node.dtype


def run_graph(
    graph: Graph, inputs: Sequence[numpy.ndarray], folder: Path, mode: str = "interpreter"
) -> list[numpy.ndarray]:
    """Outputs of the graph's kernels; the graph holds its constants."""
    job = Job()
    outputs = job.add(graph, inputs)
    results = job.run(folder, mode)
    assert not job.errors, "\n".join(job.errors.values())
    return [results[name].reshape(shape) for name, shape in outputs]


def _launch(
    group: Group, spec: KernelSpec, names: Mapping[Node, str], candidate: int
) -> dict[str, object]:
    chosen = spec.candidates[min(candidate, len(spec.candidates) - 1)]
    nodes = [*group.reads, *(root.node for root in group.roots)]
    return {
        "source": spec.form(chosen).source,
        "function": spec.form(chosen).function,
        "grid": chosen.grid,
        "config": dict(chosen.constexprs),
        "args": [names[node] for node in nodes],
    }


def _poison(node: Node) -> numpy.ndarray:
    dtype = DTYPES[node.dtype]
    array = numpy.zeros(node.shape, dtype.numpy)
    if dtype.numpy.startswith("float"):
        array[...] = numpy.nan
    elif node.dtype == "bf16":
        array[...] = 0x7FC0
    return array
