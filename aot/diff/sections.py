"""The sections of a comparison: each one says of a bundle names with texts or numbers.

Two bundles are the same where all sections are. `files` has the digest of every file, so that no
difference is left out; the sections before it say what it is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aotc.aot.facts.bundle_facts import PRECISIONS, BundleFacts, VariantPlan, as_map, variants
from aotc.aot.facts.graph_file import GraphFile, Variant
from aotc.runtime.bundle.control_steps import ControlStep
from aotc.runtime.bundle.native_plan import NativeLaunch
from aotc.runtime.bundle.plan import Launch
from aotc.runtime.bundle.torch_calls import TorchCall

Value = str | int | float | bool | None
Section = Mapping[str, Value]


def signature(facts: BundleFacts) -> Iterator[tuple[str, Value]]:
    """Inputs, outputs, structures, dynamic sizes and guards of each entry; states.

    The formulas of sizes stand in the shapes of outputs and in the guards.
    """
    for entry in facts.manifest.entries:
        for role, specs in (("input", entry.inputs), ("output", entry.outputs)):
            for place, spec in enumerate(specs):
                yield f"{entry.name} {role} {place}", f"{spec.name}: {_type(spec)}"
        yield f"{entry.name} arguments", str(entry.structure)
        for dim in entry.dims:
            where = "" if dim.input is None else f" at input {dim.input}, dim {dim.axis}"
            read = f" × {dim.scale} + {dim.offset}" if (dim.scale, dim.offset) != (1, 0) else ""
            yield f"{entry.name} size {dim.name}", f"{dim.low}..{dim.high}{where}{read}"
        for place, guard in enumerate(entry.guards):
            yield f"{entry.name} condition {place}", guard.text
    for spec in facts.manifest.states:
        yield f"state {spec.name}", _type(spec)
    for size in facts.manifest.session_dims:
        yield f"session size {size.name}", str(size)


def entry_points(facts: BundleFacts) -> Iterator[tuple[str, Value]]:
    """The ways to call it, with their number among the bundle's."""
    for place, entry in enumerate(facts.manifest.entries):
        yield entry.name, place


def settings(facts: BundleFacts) -> Iterator[tuple[str, Value]]:
    """How it was built: by what, for which machines, with which settings."""
    manifest = facts.manifest
    yield "producer", manifest.producer
    for name in manifest.features:
        yield f"feature {name}", True
    for place, target in enumerate(manifest.targets):
        yield f"target {target.name}", place
        yield f"target {target.name} needs", ", ".join((target.device, *target.needs))
        yield f"target {target.name} abi", target.abi
    for name in manifest.torch:
        yield f"torch runs {name}", True
    for each in manifest.backends:
        yield f"back end {each.name}", f"{each.version} sha256:{each.sha256.hex()}"
    for name, value in facts.provenance.items():
        if name != "targets":
            yield from _flat(name, value)
    for name in facts.plans:
        for key, what in PRECISIONS:
            yield f"target {name} precision of {what}", _value(facts.build_facts(name).get(key))


def ops(facts: BundleFacts) -> Iterator[tuple[str, Value]]:
    """How often each op stands in the graphs."""
    for label, file, variant in graphs_of(facts):
        counts = Counter(file.texts[node[0]] for node in variant.nodes)
        for op, count in sorted(counts.items()):
            yield f"{label}: {op}", count


def kernels(facts: BundleFacts) -> Iterator[tuple[str, Value]]:
    """The kernels by name: launches, the chosen form and config, what they take, their sources."""
    for target, plan in facts.plans.items():
        launches = Counter(
            step.kernel for row in plan.variants for step in row.steps if isinstance(step, Launch)
        )
        seen: Counter[str] = Counter()
        for number, kernel in enumerate(plan.kernels):
            seen[kernel.name] += 1
            again = f" #{seen[kernel.name]}" if seen[kernel.name] > 1 else ""
            label = f"{target}: {kernel.name}{again}"
            yield f"{label} launches", launches[number]
            yield f"{label} code", kernel.symbol
            for name, value in facts.kernel_facts(target, kernel.symbol).items():
                yield f"{label} {name}", _value(value)
            if kernel.image is not None:
                yield f"{label} threads", kernel.image.threads
        steps = (step for row in plan.variants for step in row.steps)
        calls = Counter(step_name(step) for step in steps if not isinstance(step, Launch))
        for name, count in sorted(calls.items()):
            yield f"{target}: {name} calls", count


def fusion(facts: BundleFacts) -> Iterator[tuple[str, Value]]:
    """Which operations each launch computes."""
    for label, file, variant in graphs_of(facts):
        for place, group in enumerate(variant.groups):
            ops = (file.texts[variant.nodes[node][0]] for node in group.nodes)
            yield f"{label}: launch {place}", f"{group.kind} {group.label}: {' '.join(ops)}"


def sizes(facts: BundleFacts) -> Iterator[tuple[str, Value]]:
    """Bytes of weights, code and memory of a call."""
    weights = facts.manifest.weights
    yield "weights bytes", 0 if weights is None else weights.nbytes
    for row in facts.manifest.targets:
        yield f"{row.name} code bytes", facts.manifest.file(row.library).nbytes
    for each in variants(facts):
        label = _label(each)
        yield f"{label} arena bytes", each.plan.arena_bytes
        yield f"{label} scratch bytes of a thread", each.plan.scratch_bytes
        yield f"{label} steps", len(each.plan.steps)


def times(facts: BundleFacts) -> Iterator[tuple[str, Value]]:
    """What tuning measured, and what the cost model expects of each variant."""
    for target in facts.plans:
        rows: Counter[str] = Counter()
        for line in facts.tuned(target):
            rows[line.digest] += 1
            again = f" #{rows[line.digest]}" if rows[line.digest] > 1 else ""
            yield f"{target}: measured µs of {line.digest[:16]}{again}", line.time_us
    for label, _, variant in graphs_of(facts):
        yield f"{label}: estimated ns", sum(group.estimate_ns for group in variant.groups)


def numbers(facts: BundleFacts) -> Iterator[tuple[str, Value]]:
    """Golden inputs and outputs by digest, and the tolerance of each output."""
    for entry, golden in facts.golden.items():
        for role, arrays in (("input", golden.inputs), ("output", golden.outputs)):
            for name, data in arrays.items():
                digest = hashlib.sha256(data).hexdigest()
                yield f"{entry} {role} {name}", f"sha256:{digest[:16]}"
        for name, tolerance in golden.tolerances.items():
            yield f"{entry} tolerance {name}", tolerance


def weights(facts: BundleFacts) -> Iterator[tuple[str, Value]]:
    """The stored tensors with their types, and a digest of the whole."""
    for name, tensor in facts.tensors.items():
        yield name, f"{tensor.dtype}{list(tensor.shape)}"
    if facts.manifest.weights is not None:
        digest = hashlib.sha256(b"".join(facts.manifest.weights.chunks)).hexdigest()
        yield "digest of all", f"sha256:{digest[:16]}"


def files(facts: BundleFacts) -> Iterator[tuple[str, Value]]:
    """Size and digest of every file but the weights, and the bundle digest."""
    yield "bundle digest", f"sha256:{facts.digest}"
    for entry in facts.files:
        yield entry.name, f"{entry.nbytes} bytes sha256:{entry.sha256.hex()[:16]}"


SECTIONS: Mapping[str, Callable[[BundleFacts], Iterator[tuple[str, Value]]]] = {
    "signature": signature,
    "entries": entry_points,
    "settings": settings,
    "ops": ops,
    "fusion": fusion,
    "kernels": kernels,
    "sizes": sizes,
    "times": times,
    "numbers": numbers,
    "weights": weights,
    "files": files,
}


def step_name(step: TorchCall | NativeLaunch | ControlStep) -> str:
    """What runs between kernels, by name."""
    if isinstance(step, ControlStep):
        return f"control {step.word}"
    if isinstance(step, TorchCall):
        return f"torch {step.op}"
    return f"{step.backend}.{step.function}"


def _type(spec: Any) -> str:
    return f"{spec.dtype}[{', '.join(map(str, spec.shape))}]{spec.order_text}"


def _label(each: VariantPlan) -> str:
    return f"{each.label} {each.entry}"


def graphs_of(facts: BundleFacts) -> Iterator[tuple[str, GraphFile, Variant]]:
    """The graphs of all variants of all targets, each with a label."""
    if facts.graphs is None:
        return
    for target in facts.graphs.targets:
        for variant in target.variants:
            entries = facts.manifest.entries
            entry = entries[variant.entry].name if variant.entry < len(entries) else "?"
            ranges = (
                f"{name} = {low}" if low == high else f"{name} = {low}..{high}"
                for name, low, high in variant.ranges
            )
            yield f"{', '.join([target.name, *ranges])} {entry}", facts.graphs, variant


def _flat(name: str, value: Any) -> Iterator[tuple[str, Value]]:
    """The leaves of nested maps and lists, by their paths."""
    if isinstance(value, dict):
        for key, each in as_map(value).items():
            yield from _flat(f"{name} {key}", each)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _flat(f"{name} {place}", each)
    else:
        yield name, _value(value)


def _value(value: Any) -> Value:
    return value if isinstance(value, (str, int, float, bool)) else str(value)
