"""Ways to run a program through the compiler, each as its users do.

A way gives the results of each environment; what it raises is classified by `trial.py`.
"""

from __future__ import annotations

import json
import linecache
import os
import random
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy
import torch

from aotc import kernels
from aotc.aot.capture.capture import capture
from aotc.aot.capture.spec import load_spec
from aotc.aot.dynamo import aotc
from aotc.aot.folders import make_owned
from aotc.aot.lower import Candidate, KernelSpec
from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import build
from aotc.aot.rewrites.rewrite import rewrite_each
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.tasks.workers import Workers
from aotc.aot.traits import TargetTraits
from aotc.runtime import load
from aotc.runtime.errors import InputError
from fuzz import guards
from fuzz.program import Program
from fuzz.run import CALLS_WITH_STATE, gradients
from fuzz.values import BOUNDS, place_bound

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

import launch_kernels
import schedule_runner

Results = list[list[torch.Tensor]]  # by environment


class GoldenCheckRefuses(Exception):
    """A build would be refused: its check of the golden numbers fails."""

    def __init__(self, results: Results, detail: str) -> None:
        super().__init__(detail)
        self.results = results


class SizesRefused(Exception):
    """A call at other sizes than the example's is refused by a typed error."""

    def __init__(self, results: Results, error: InputError) -> None:
        super().__init__(f"{error.code}: {error}")
        self.results = results


@dataclass(slots=True)
class Bench:
    """A folder, a cache and the worker of one process; used for one program after another."""

    folder: Path
    cache: Path
    workers: Workers
    count: int = 0
    judging: Callable[[], None] = lambda: None  # called as the program has run

    @classmethod
    def opened(cls, cache: Path) -> Bench:
        """A bench whose programs share a cache with those of other processes."""
        guards.put_up()
        os.environ["AOTC_CACHE_DIR"] = str(cache)
        os.environ["AOTC_JOBS"] = "1"
        os.environ["TRITON_CACHE_DIR"] = str(cache / "triton")
        os.environ["AOTC_THREADS"] = "2"
        folder = Path(make_owned("fuzz")[0])  # its lock is held as long as this process lives
        return cls(folder, cache, Workers(1, keep=folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        guards.take_down()
        self.workers.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def written(self, program: Program) -> Path:
        """The program as a file of its own."""
        self.count += 1
        path = self.folder / f"program_{self.count}.py"
        path.write_text(program.source(), encoding="utf-8")
        return path

    def forget(self, path: Path) -> None:
        """Remove a program's file, and what Python keeps of it."""
        path.unlink(missing_ok=True)
        linecache.cache.pop(str(path), None)
        sys.modules.pop(f"aotc_spec_{path.stem}", None)


def built(program: Program, bench: Bench, target: str) -> Results:
    """`aotc build`, then `aotc.load` and calls with torch's tensors."""
    path, out = bench.written(program), bench.folder / "bundle"
    options = BuildOptions(bench.cache, tune="off", force=True, allow_mismatch=True)
    try:
        report = build(str(path), out, [target], options, executor=bench.workers)
        with closing(load(out)) as loaded:
            results = _called(program, loaded)
    finally:
        bench.forget(path)
        shutil.rmtree(out, ignore_errors=True)
    failed = [each for row in report.targets for each in row.checks if not each.is_ok]
    if failed:
        detail = f"{failed[0].name}: {failed[0].difference:.3g}, limit {failed[0].tolerance:.3g}"
        raise GoldenCheckRefuses(results, detail)
    return results


def _called(program: Program, loaded: Any) -> Results:
    results: Results = []
    for environment in range(program.environments):
        inputs = program.values(environment, program.inputs)
        found: list[torch.Tensor] = []
        try:
            for _ in range(CALLS_WITH_STATE if program.states else 1):
                given = loaded(*inputs)
                found += [each.clone() for each in given]
        except InputError as error:
            if not environment:
                raise
            raise SizesRefused(results, error) from error
        results.append(found)
        if program.states:
            break  # the states hold what the example's calls left
    return results


def compiled(program: Program, bench: Bench, target: str) -> Results:
    """`torch.compile(…, backend="aotc")`, with gradients where the program asks for them."""
    torch._dynamo.reset()
    path = bench.written(program)
    namespace: dict[str, Any] = {}
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), namespace)
        model = namespace["build_model"]() if program.states else namespace["model"]
        call = torch.compile(
            model,
            backend=aotc,  # the name asks for an installed package
            dynamic=bool(program.dims),
            fullgraph=True,
            options={"fallback": "error", "target": target, "threads": 2},
        )
        results: Results = []
        for environment in range(program.environments):
            inputs = program.values(environment, program.inputs)
            found: list[torch.Tensor] = []
            for _ in range(CALLS_WITH_STATE if program.states else 1):
                found += _once(program, call, inputs)
            results.append(found)
        return results
    finally:
        bench.forget(path)
        torch._dynamo.reset()


def _once(
    program: Program, call: Callable[..., Any], inputs: list[torch.Tensor]
) -> list[torch.Tensor]:
    own = [each.clone() for each in inputs]
    if not program.has_gradients:
        return [each.clone() for each in call(*own)]
    for tensor in own:
        tensor.requires_grad_(tensor.is_floating_point())
    outputs = list(call(*own))
    return [*(each.detach().clone() for each in outputs), *gradients(own, outputs)]


def unfused(program: Program, bench: Bench, target: str) -> Results:
    """A build in which every value is an output, so that no kernel keeps one to itself."""
    names = [step.name for step in program.steps if step.name and step.name not in program.outputs]
    whole = replace(program, outputs=(*program.outputs, *names))
    count = len(program.outputs)
    try:
        return [each[:count] for each in built(whole, bench, target)]
    except (GoldenCheckRefuses, SizesRefused) as refused:
        refused.results = [each[:count] for each in refused.results]
        raise


def gpu_forms(program: Program, bench: Bench, target: str) -> Results:
    """The kernels that a GPU gets, each in a form that can run as native code here."""
    return _launched(program, bench, "cuda", GPUS[90], _native_form)


def in_bounds(program: Program, bench: Bench, target: str) -> Results:
    """The kernels of the CPU, each address held against the buffer that it is of."""
    return _launched(program, bench, "cpu", CPU, 0)


def _launched(
    program: Program,
    bench: Bench,
    device: str,
    traits: TargetTraits,
    form: int | Callable[[KernelSpec], Candidate],
) -> Results:
    """The kernels launched one by one by `aotc.kernels`, which checks where they read and write."""
    path = bench.written(program)
    folder = bench.folder / "forms"
    folder.mkdir(exist_ok=True)
    try:
        captured = capture(load_spec(str(path)))
        graph, _ = rewrite_each(captured.graph, {device: traits})[device]
        job = schedule_runner.Job()
        names = job.add(graph, captured.golden_inputs, form, traits)
        (folder / "job.json").write_text(
            json.dumps({"buffers": job.dtypes, "launches": job.launches})
        )
        numpy.savez(folder / "buffers.npz", **job.arrays)
        with kernels.on_cpu():
            launch_kernels.launch_all(folder, debug="memory", sanitize_overflow=False)
        errors = json.loads((folder / "errors.json").read_text())
        if errors:
            raise FormFailed(next(iter(errors.values())))
        results = dict(numpy.load(folder / "results.npz"))
    finally:
        bench.forget(path)
        shutil.rmtree(folder, ignore_errors=True)
    rows = zip(names, graph.returned, strict=False)  # what is checked of the data follows them
    return [[_tensor(results[name].reshape(shape), node.dtype) for (name, shape), node in rows]]


class FormFailed(Exception):
    """A kernel launched by itself does not run as native code, or leaves its buffers."""


def _native_form(spec: KernelSpec) -> Candidate:
    """Any candidate whose programs neither wait for each other nor read by descriptors."""
    found = [
        row
        for row in spec.candidates
        if not row.maps
        and not row.form.startswith("shared")
        and "_descriptor(" not in spec.form(row).source
        and "gluon" not in spec.form(row).source
    ]
    first = {row.form: row for row in reversed(found)}
    if not first:
        raise NoNativeForm(spec.name)
    return random.Random(spec.digest).choice(list(first.values()))


class NoNativeForm(Exception):
    """No form of a kernel for GPUs can run as native code."""


def _tensor(array: numpy.ndarray, dtype: str) -> torch.Tensor:
    if dtype == "bf16":
        return torch.from_numpy(array.view(numpy.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def bad_data(
    program: Program, bench: Bench, target: str
) -> list[tuple[Program, list[torch.Tensor] | InputError]]:
    """A build called with places out of range, then with good ones: what each call gives."""
    path, out = bench.written(program), bench.folder / "bundle"
    options = BuildOptions(bench.cache, tune="off", force=True, allow_mismatch=True)
    found: list[tuple[Program, list[torch.Tensor] | InputError]] = []
    try:
        build(str(path), out, [target], options, executor=bench.workers)
        with closing(load(out)) as loaded:
            for variant in (*bad_variants(program), program):
                try:
                    given = loaded(*variant.values(0, variant.inputs))
                    found.append((variant, [each.clone() for each in given]))
                except InputError as error:
                    found.append((variant, error))
    finally:
        bench.forget(path)
        shutil.rmtree(out, ignore_errors=True)
    return found


def bad_variants(program: Program) -> list[Program]:
    """The program with one place of one input out of range: a little, on either side, or far."""
    found = []
    for at, given in enumerate(program.inputs):
        bound = place_bound(given.text)
        if bound is None or 0 in given.shape:
            continue
        low, high = BOUNDS[given.dtype]
        rng = random.Random(given.seed)
        bad = rng.choice((bound, bound + 9, -1, -bound - 1, 2**33, -(2**62)))
        if not low <= bad <= high:
            bad = high if bad > 0 else low
        if -bound <= bad < bound:
            continue  # the type has no place out of range
        place = rng.choice((0, -1))
        text = f"{given.text}.flatten().index_fill(0, torch.tensor([{place}]), {bad})"
        changed = replace(given, text=f"{text}.reshape({{shape}})")
        inputs = (*program.inputs[:at], changed, *program.inputs[at + 1 :])
        found.append(replace(program, inputs=inputs))
    return found[:3]


WAYS: Mapping[str, Callable[[Program, Bench, str], Results]] = {
    "build": built,
    "compile": compiled,
    "unfused": unfused,
    "gpu-forms": gpu_forms,
    "in-bounds": in_bounds,
}
