"""`build`: the nine stages from top to bottom, from a SPEC to a bundle for one or more targets."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy

from aotc.aot import contents, validation
from aotc.aot.capture.capture import Captured
from aotc.aot.capture.fallback import TorchOp
from aotc.aot.capture.spec import Spec
from aotc.aot.compile import Compiled, Resources, compile_for
from aotc.aot.entries import joined_dims, joined_states
from aotc.aot.errors import GoldenMismatch
from aotc.aot.front_end import capture_and_rewrite, wanted_targets
from aotc.aot.ir.graph import own_sources
from aotc.aot.ir.memory_order import each_in_memory
from aotc.aot.ir.size import Dim
from aotc.aot.options import BuildOptions
from aotc.aot.pack import BundleContents, TargetContents, TensorData, pack
from aotc.aot.pack.staging import check_free
from aotc.aot.refit import (
    WeightsProgram,
    adapter_programs,
    weights_program,
    with_weights_program,
)
from aotc.aot.signature import signature, states
from aotc.aot.sources import Sources
from aotc.aot.stages import Clock, Progress, Quiet, StageTime, write_texts
from aotc.aot.targets.target import Target
from aotc.aot.tasks.task import Executor
from aotc.aot.tune.compiling import Counts
from aotc.cache import Store
from aotc.cache.collect import collect_in_turn, note_misses
from aotc.runtime.bundle.plan import Plan
from aotc.runtime.comparison import Comparison

__all__ = ["BuildOptions", "BuildReport", "TargetReport", "build"]


@dataclass(frozen=True, slots=True)
class TargetReport:
    """What a build made for one target."""

    target: str
    kernels: int  # distinct ones
    launches: int  # a call of each entry
    measured: int  # kernels measured in this build
    code_bytes: int
    arena_bytes: int | None  # None where it is dynamic
    checks: tuple[Comparison, ...]  # empty where this machine cannot run the target
    entries: int = 1  # ways to call it

    def record(self) -> dict[str, Any]:
        """The report as plain data."""
        return {**asdict(self), "checks": [check.as_map() for check in self.checks]}


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build made and what it cost."""

    path: str
    digest: str
    targets: tuple[TargetReport, ...]
    compiled: int
    cache_hits: int
    failed: int  # candidates that did not compile, in whose place others were taken
    bundle_bytes: int
    stages: tuple[StageTime, ...]
    seconds: float
    dims: tuple[str, ...] = ()  # dynamic sizes, with their ranges
    specialised: tuple[str, ...] = ()  # dims that were asked to vary and are fixed all the same
    torch_ops: tuple[TorchOp, ...] = ()  # what torch runs at each call
    backends: tuple[str, ...] = ()  # native libraries that the plans call
    quantized: dict[str, Any] | None = None  # what `--quantize` stored, and the error that it cost
    weights_kernels: int = 0  # distinct ones of the weights program

    def record(self) -> dict[str, Any]:
        """The report as plain data, for `--json`; kernels and measured are sums over targets."""
        return {
            **asdict(self),
            "targets": [target.record() for target in self.targets],
            "machine": {
                "python": platform.python_version(),
                "implementation": sys.implementation.name,
                "numpy": numpy.__version__,
                "system": platform.platform(),
            },
            "kernels": sum(target.kernels for target in self.targets),
            "measured": sum(target.measured for target in self.targets),
        }


def build(
    spec: str | Sequence[Spec],
    out: str | os.PathLike[str],
    targets: Sequence[str],
    options: BuildOptions,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> BuildReport:
    """Compile the model that `spec` names, or is, into a bundle at `out`, best target first.

    Nothing is written at `out` unless every stage ends well and the code gives the exported
    model's numbers on the golden input, on each target that this machine can run. `executor` is
    used where there is one, and stays; else the build has its own. Raises the families of
    `aot/errors.py`, and EnvironmentFault for a full disk or a missing permission.
    """
    started_s, clock = time.time(), Clock(progress or Quiet())
    check_free(os.fspath(out), options.force)
    wanted = wanted_targets(targets, options)
    clock.has_targets = len(wanted) > 1
    store = Store(options.cache_folder, options.cache_layers)
    counts = Counts()
    try:
        with options.executor() if executor is None else nullcontext(executor) as own:
            resources = Resources(own, store, counts)
            captured, compiled, weights = _compile(spec, wanted, options, resources, clock)
            adapters = None
            if options.adapters:
                adapters = adapter_programs(compiled, weights, options, resources, clock)
        dims = joined_dims([each.dims for each in captured])
        checks = [_validate(captured, dims, each, options, clock) for each in compiled]
        with clock.stage("pack"):
            whole = _contents(spec, captured, dims, compiled, options, clock)
            parts = (captured, compiled, weights, adapters, options.has_weights)
            whole = with_weights_program(whole, *parts)
            packed = pack(whole, out, options.force)
            clock.detail = f"{len(packed.files)} files, digest {packed.digest[:12]}"
    finally:
        if options.dump is not None:
            write_texts(options.dump, clock.texts)
        note_misses(store, started_s)
    store.send()
    if store.counters.misses:
        collect_in_turn(store, options.cache_max_bytes)
    return BuildReport(
        path=packed.path,
        digest=packed.digest,
        targets=tuple(map(_target_report, compiled, checks)),
        compiled=counts.compiled,
        cache_hits=counts.cache_hits,
        failed=counts.failed,
        bundle_bytes=packed.nbytes,
        stages=tuple(clock.rows),
        seconds=time.time() - started_s,
        dims=_texts(dims),
        specialised=tuple(name for each in captured for name in each.specialised),
        torch_ops=tuple(op for each in captured for op in each.torch_ops),
        backends=contents.backends_text([each.plan for each in compiled], options.embed_backends),
        quantized=_quantized(captured),
        weights_kernels=0 if weights is None else len(weights.compiled.tuning.kernels),
    )


@own_sources()
def _compile(
    spec: str | Sequence[Spec],
    targets: Sequence[Target],
    options: BuildOptions,
    resources: Resources,
    clock: Clock,
) -> tuple[tuple[Captured, ...], list[Compiled], WeightsProgram | None]:
    """The stages from capture to plan; from schedule on once for each target."""
    model = capture_and_rewrite(spec, targets, options, resources.executor, resources.store, clock)
    compiled = []
    examples = [each_in_memory(each.golden_inputs, each.orders.inputs) for each in model.captured]
    for target, graphs in model.graphs:
        clock.target = target.name
        parts = (target, graphs, options, resources, clock)
        compiled.append(compile_for(*parts, examples=examples))
    clock.target = ""
    weights, tensors = weights_program(compiled, options, resources, clock)
    compiled = [replace(each, computed=tensors) for each in compiled]
    return model.captured, compiled, weights


def _validate(
    captured: Sequence[Captured],
    dims: Sequence[Dim],
    compiled: Compiled,
    options: BuildOptions,
    clock: Clock,
) -> tuple[Comparison, ...]:
    """Run the code on the golden inputs, where this machine can; raises GoldenMismatch."""
    if not validation.runs_here(compiled.target.device, compiled.needs, options.ranks):
        return ()
    constants = compiled.constants
    names = joined_states([each.graph for each in captured]).names
    checks: list[Comparison] = []
    clock.target = compiled.target.name
    with clock.stage("validate"):
        for number, each in enumerate(captured):
            entry = validation.PlanEntry(number, tuple(dims), names)
            arguments = (compiled.plan, compiled.library, compiled.target)
            label = f"{each.entry}." if len(captured) > 1 else ""
            for check in validation.validate(each, constants, *arguments, entry):
                checks.append(Comparison(label + check.name, check.difference, check.tolerance))
        clock.detail = f"{len(checks)} comparisons"
    clock.target = ""
    for check in checks:
        if not check.is_ok and not options.allow_mismatch:
            raise GoldenMismatch(
                name=check.name, difference=check.difference, tolerance=check.tolerance
            )
    return tuple(checks)


def _target_report(compiled: Compiled, checks: tuple[Comparison, ...]) -> TargetReport:
    return TargetReport(
        target=compiled.target.name,
        kernels=len(compiled.plan.kernels),
        launches=sum(_launches(compiled.sources).values()),
        entries=len(_launches(compiled.sources)),
        measured=compiled.tuning.measured,
        code_bytes=len(compiled.library),
        arena_bytes=_arena_bytes(compiled.plan),
        checks=checks,
    )


def _texts(dims: Sequence[Dim]) -> tuple[str, ...]:
    return tuple(f"{dim.name} = {dim.low}..{dim.high}" for dim in dims)


def _launches(sources: Sources) -> dict[int, int]:
    """Launches of each entry, in its last range of sizes."""
    return {variant.entry: len(variant.specs) for variant in sources.variants}


def _arena_bytes(plan: Plan) -> int | None:
    """Size of the arena; None where it is dynamic."""
    return None if plan.fixed is None else plan.fixed.arena_bytes


def _quantized(captured: Sequence[Captured]) -> dict[str, Any] | None:
    """What `--quantize` did, of weights that all entries share."""
    found = captured[0].quantized
    return None if found is None else dict(found)


def _target_contents(compiled: Compiled) -> TargetContents:
    row = compiled.target
    return TargetContents(row.name, row.device, compiled.needs, compiled.plan, compiled.library)


def _contents(
    spec: str | Sequence[Spec],
    captured: Sequence[Captured],
    dims: Sequence[Dim],
    compiled: Sequence[Compiled],
    options: BuildOptions,
    clock: Clock,
) -> BundleContents:
    types = [signature(each.graph, each.dims, each.guards, dims, each.orders) for each in captured]
    kept = states([each.graph for each in captured], dims)
    parts = [
        contents.Part(each.target, each.scheduled, each.sources, each.tuning, each.plan)
        for each in compiled
    ]
    facts = {
        **contents.provenance(captured[0].name, parts),
        "source": contents.source_facts(spec) if isinstance(spec, str) else {},
        "rewrites": {each.name: each.digest for each in options.rewrites},
        "round_intermediates": options.round_intermediates,
        "torch_ops": [asdict(op) for each in captured for op in each.torch_ops],
    }
    quantized = _quantized(captured)
    if quantized is not None:
        facts["quantized"] = quantized
    extras = {
        **contents.sources(parts),
        **contents.graphs(parts),
        **contents.json_file("provenance.json", facts),
    }
    if options.debug:
        extras |= contents.debug(clock.texts, parts)
    precisions = [part.target.traits.least_precision for part in parts]
    return BundleContents(
        entries=tuple(
            own.entry(each.entry, each.structure) for own, each in zip(types, captured, strict=True)
        ),
        targets=tuple(map(_target_contents, compiled)),
        weights=_weights(compiled),
        golden={
            each.entry: contents.golden(each, own.inputs, own.outputs, precisions)
            for own, each in zip(types, captured, strict=True)
        },
        extras=extras,
        backends=contents.backends([each.plan for each in compiled], options.embed_backends),
        states=kept.states,
        session_dims=kept.dims,
        session_sizes=kept.rows,
        ranks=options.ranks,
    )


def _weights(compiled: Sequence[Compiled]) -> dict[str, TensorData]:
    """The constants that some target's launches read."""
    found: dict[str, TensorData] = {}
    for each in compiled:
        found |= contents.weights(each.constants, each.plan)
        found |= contents.weights_of_ranks(each.constants)
    return found
