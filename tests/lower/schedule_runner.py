"""Runs whole schedules in Triton's interpreter or as native code, against the reference."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import kept_results
import numpy

from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.size import Extent, fixed, substitute
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import Candidate, KernelSpec, Scratch, lower
from aotc.aot.lower.spec import TensorMap
from aotc.aot.schedule import Group, schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.traits import TargetTraits

PROGRAM = Path(__file__).parent / "launch_kernels.py"
READERS = (PROGRAM, PROGRAM.with_name("gluon_as_triton.py"))


@dataclass(slots=True)
class Job:
    """Launches and buffers of one or more graphs, to run in one process of the interpreter."""

    launches: list[object] = field(default_factory=list)
    arrays: dict[str, numpy.ndarray] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)  # by the number of the launch
    sizes: Mapping[str, int] = field(default_factory=dict)  # of the dims, where graphs have some

    def add(
        self,
        graph: Graph,
        inputs: Sequence[numpy.ndarray],
        candidate: int | str | Callable[[KernelSpec], Candidate] = 0,
        traits: TargetTraits = CPU,
    ) -> list[tuple[str, tuple[int, ...]]]:
        """Schedule, lower and add a graph; gives the buffer name and shape of each output.

        `candidate` is a number, the name of a form whose first candidate is wanted, or a choice.
        """
        plan = schedule(graph, traits)
        names: dict[Node, str] = {}
        for node, array in zip(plan.graph.inputs, inputs, strict=True):
            self._store(names, node, array)
        for group, spec in zip(plan.groups, lower(plan, traits), strict=True):
            for node in group.reads:
                if node not in names:
                    self._store(names, node, plan.graph.constants[node.attr("name")].array)
            updated = {result: operand for operand, result in group.updates}
            for root in group.roots:
                if root.node in updated:  # written where the operand lies
                    names[root.node] = names[updated[root.node]]
                else:
                    self._store(names, root.node, self._poison(root.node))
            chosen = candidate(spec) if callable(candidate) else _chosen(spec, candidate)
            launch = self._launch(group, spec, names, chosen)
            launch["args"] += [self.sizes[dim.name] for dim in spec.sizes]
            launch["args"] += [self._scratch(row) for row in chosen.scratch]
            self.launches.append(launch)
        for node in plan.stored:
            if node not in names:  # without elements: no kernel writes it
                self._store(names, node, self._poison(node))
        pairs = zip(plan.graph.outputs, plan.stored, strict=True)
        return [(names[stored], self._shape(output)) for output, stored in pairs]

    def run(
        self, folder: Path, mode: str = "interpreter", threads: int = 0
    ) -> Mapping[str, numpy.ndarray]:
        """All buffers afterwards."""
        job = json.dumps({"buffers": self.dtypes, "launches": self.launches})
        is_native, results = mode == "native", folder / "results.npz"
        key = "" if is_native else kept_results.key_of(job, self.arrays, READERS)
        if is_native or not kept_results.found(key, results):
            (folder / "job.json").write_text(job)
            numpy.savez(folder / "buffers.npz", **self.arrays)
            _Launcher.of(mode, threads).launch(folder)
            errors = json.loads((folder / "errors.json").read_text())
            self.errors = {int(number): text for number, text in errors.items()}
            if not is_native and not errors:
                kept_results.keep(key, results)
        return dict(numpy.load(results))

    def error(self, launches: Iterable[int]) -> str:
        """Why the first of these launches that failed did; empty where none has."""
        return next((self.errors[number] for number in launches if number in self.errors), "")

    def _scratch(self, row: Scratch) -> str:
        """A buffer for scratch memory: zero, or full of NaN where a kernel must write it first."""
        name = f"{'zeroed' if row.is_zeroed else 'scratch'}{len(self.arrays)}"
        dtype = next(item for item in DTYPES.values() if f"*{item.triton}" == row.type)
        array = numpy.zeros(self.number(row.nbytes) // dtype.itemsize_bytes, dtype.numpy)
        if dtype.kind == "float" and not row.is_zeroed:
            array[...] = numpy.nan
        self.arrays[name], self.dtypes[name] = array, dtype.name
        return name

    def _store(self, names: dict[Node, str], node: Node, array: numpy.ndarray) -> None:
        names[node] = f"b{len(self.arrays)}"
        self.arrays[names[node]] = numpy.ascontiguousarray(array).reshape(self._shape(node))
        self.dtypes[names[node]] = node.dtype

    def number(self, extent: Extent) -> int:
        """An extent at the job's sizes."""
        if isinstance(extent, int):
            return extent
        return fixed(substitute(extent, {dim: self.sizes[dim.name] for dim in extent.dims()}))

    def _shape(self, node: Node) -> tuple[int, ...]:
        return tuple(map(self.number, node.shape))

    def _launch(
        self, group: Group, spec: KernelSpec, names: Mapping[Node, str], chosen: Candidate
    ) -> dict[str, Any]:
        nodes = [*group.reads, *(root.node for root in group.roots)]
        return {
            "source": spec.form(chosen).source,
            "function": spec.form(chosen).function,
            "grid": list(map(self.number, chosen.grid)),
            "config": dict(chosen.constexprs),
            "args": [names[node] for node in nodes],
            "starts": [group.start(node) for node in nodes],
            "maps": [self._map(row) for row in chosen.maps],
        }

    def _map(self, row: TensorMap) -> dict[str, Any]:
        found = asdict(row) | {"start": self.number(row.start)}
        for name in ("shape", "strides"):
            found[name] = list(map(self.number, getattr(row, name)))
        return found

    def _poison(self, node: Node) -> numpy.ndarray:
        """What a result holds before it is written."""
        dtype = DTYPES[node.dtype]
        array = numpy.zeros(self._shape(node), dtype.numpy)
        if dtype.numpy.startswith("float"):
            array[...] = numpy.nan
        elif node.dtype == "bf16":
            array[...] = 0x7FC0
        return array


class _Launcher:
    """A process that launches one job after the other, kept for the next one: it takes seconds to
    load torch and Triton, most jobs less. One that a job ends is replaced."""

    kept: ClassVar[dict[Hashable, _Launcher]] = {}  # the least recently used one first
    most = 2

    def __init__(self, mode: str, threads: int) -> None:
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # as long as this
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), mode, str(threads)],
            env={**os.environ, "TRITON_INTERPRET": str(int(mode == "interpreter"))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    @classmethod
    def of(cls, mode: str, threads: int) -> _Launcher:
        """One that was started in what this process is in now."""
        own = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        key = (mode, threads, frozenset(own.items()))
        found = cls.kept.pop(key, None) or cls(mode, threads)
        cls.kept[key] = found
        while len(cls.kept) > cls.most:
            cls.kept.pop(next(iter(cls.kept))).end()
        return found

    def launch(self, folder: Path) -> None:
        """Run a folder's job; fails with what the process wrote where it does not answer."""
        at = self._errors.seek(0, os.SEEK_END)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{json.dumps(str(folder))}\n")
            self._process.stdin.flush()
        if self._process.stdout.readline() != "done\n":
            for key in [key for key, each in self.kept.items() if each is self]:
                del self.kept[key]
            self.end()
            self._errors.seek(at)
            raise AssertionError(self._errors.read()[-4000:])

    def end(self) -> None:
        """Idempotent."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


@atexit.register
def _end_all() -> None:
    while _Launcher.kept:
        _Launcher.kept.popitem()[1].end()


def run_graph(
    graph: Graph, inputs: Sequence[numpy.ndarray], folder: Path, mode: str = "interpreter"
) -> list[numpy.ndarray]:
    """Outputs of the graph's kernels; the graph holds its constants."""
    job = Job()
    outputs = job.add(graph, inputs)
    results = job.run(folder, mode)
    assert not job.errors, "\n".join(job.errors.values())
    return [results[name].reshape(shape) for name, shape in outputs]


def _chosen(spec: KernelSpec, candidate: int | str) -> Candidate:
    if isinstance(candidate, int):
        return spec.candidates[min(candidate, len(spec.candidates) - 1)]
    found = [row for row in spec.candidates if row.form == candidate]
    return (found or list(spec.candidates))[0]


def of_form(start: str) -> Callable[[KernelSpec], Candidate]:
    """What chooses the first candidate without tensor maps whose form begins so, else the first
    without."""

    def chosen(spec: KernelSpec) -> Candidate:
        plain = [row for row in spec.candidates if not row.maps]
        return next((row for row in plain if row.form.startswith(start)), plain[0])

    return chosen


def floats_of(node: Node, generator: numpy.random.Generator) -> Any:
    """Random numbers of an f32 or bf16 input as its memory has them."""
    numbers = generator.standard_normal(node.shape).astype("float32")
    is_short = node.dtype == "bf16"
    return (numbers.view("uint32") >> 16).astype("uint16") if is_short else numbers
