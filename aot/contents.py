"""What a build hands to `pack`: signature, weights, golden numbers, sources and facts."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from aotc.aot.extensions import extension
from aotc.aot.facts import graph_file
from aotc.aot.ir.control import nodes_within
from aotc.aot.ir.graph import Constant, Node, walk
from aotc.aot.ir.storage import Array
from aotc.aot.lower import KernelSpec
from aotc.aot.lower.matmul.choice import precision_of
from aotc.aot.lower.matmul.gpu_cost import machine_of
from aotc.aot.pack import BackendContents, Golden, TensorData
from aotc.aot.printable import printable
from aotc.aot.schedule.attention import ends_of
from aotc.aot.schedule.group import UNLAUNCHED, Group, Schedule
from aotc.aot.schedule.trace import LEAVES
from aotc.aot.sources import Lowered, Sources, print_sources
from aotc.aot.targets.families import tool_versions
from aotc.aot.targets.target import Target
from aotc.aot.traits import TargetTraits
from aotc.aot.tune.record import Choice
from aotc.aot.tune.tune import Tuning
from aotc.aot.version import installed_version
from aotc.runtime.bundle.launch_plan import STEP
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import Launch, Plan
from aotc.runtime.bundle.plan_parts import RANK_MARK

if TYPE_CHECKING:  # it imports torch, which `aotc tune` does without
    from aotc.aot.capture.capture import Captured

# Element type → how far an output may be from the exported model's, relative to the output's
# scale. Those of the narrow floats allow for a whole model's roundings, which differ between two
# orders of summation; integers must be equal.
TOLERANCES: Mapping[str, float] = {"f64": 1e-4, "f32": 1e-4, "f16": 1e-2, "bf16": 5e-2}
TF32_TOLERANCE = 1e-2  # of f32, where products are rounded as f16's are
# Of products on a GPU, by Triton's name of their precision: tensor cores take half as many numbers
# of TF32 as of bf16, those of f32 three times; multiply-adds are other units' work (data sheet of
# the H200: 989, 495 and 67 TFLOP/s).
PRODUCT_RATES: Mapping[str, float] = {"tf32": 1 / 2, "tf32x3": 1 / 6, "ieee": 1 / 15}
FEMTOSECONDS = 1_000_000  # of a nanosecond
SHOWN_LENGTH = 240  # of attributes: source texts of calls are no part of a graph's picture
ROUNDING_FACTOR = 3  # roundings of a model and, twice as large, those of our code


def tolerances_of(dot_precision: str) -> Mapping[str, float]:
    """`TOLERANCES` where dots of f32 have this precision."""
    return {**TOLERANCES, "f32": TF32_TOLERANCE} if dot_precision == "tf32" else TOLERANCES


@dataclass(frozen=True, slots=True)
class Part:
    """What the sources and facts of one target are written from."""

    target: Target
    scheduled: tuple[Schedule, ...]  # one a variant
    sources: Sources
    tuning: Tuning
    plan: Plan

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of all variants that become kernels."""
        return tuple(group for each in self.scheduled for group in each.launched)


def weights(constants: Mapping[str, Constant], plan: Plan) -> dict[str, TensorData]:
    """The constants that the plan's launches read, in the order of their first use."""
    names = dict.fromkeys(str(value) for space, value in plan.arguments() if space == "weight")
    return {name: tensor(constants[name].type.dtype, constants[name].array) for name in names}


def weights_of_ranks(constants: Mapping[str, Constant]) -> dict[str, TensorData]:
    """The parts of weights that the ranks of a split program behind the first have: no plan names
    them."""
    parts = {name: each for name, each in constants.items() if RANK_MARK in name}
    return {name: tensor(each.type.dtype, each.array) for name, each in parts.items()}


def backends(plans: Sequence[Plan], is_embedded: bool) -> tuple[BackendContents, ...]:
    """The native back ends that some plan calls, with their libraries where they are embedded."""
    found = [extension("native libraries").tied(name) for name in _backend_names(plans)]
    return tuple(BackendContents(each.entry, each.data if is_embedded else None) for each in found)


def backends_text(plans: Sequence[Plan], is_embedded: bool) -> tuple[str, ...]:
    """The same for people, a line each."""
    place = "in the bundle" if is_embedded else "to be found where it runs"
    entries = [extension("native libraries").tied(name).entry for name in _backend_names(plans)]
    return tuple(
        f"{each.name} {each.version}, sha256:{each.sha256.hex()[:12]}, {place}" for each in entries
    )


def _backend_names(plans: Sequence[Plan]) -> list[str]:
    return sorted({name for plan in plans for name in plan.named("native", "backend")})


def tensor(dtype: str, array: Array) -> TensorData:
    """A stored array as bytes; bf16 is uint16 bits."""
    contiguous = numpy.ascontiguousarray(array).reshape(array.shape)
    data = contiguous.reshape(-1).view(numpy.uint8).data if array.size else b""
    return TensorData(dtype, tuple(array.shape), data)


def golden(
    captured: Captured,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    precisions: Sequence[str],
) -> Golden:
    """The example and the exported model's answer, with the tolerances of this model.

    `precisions` are those of the targets' dots of f32.
    """
    return Golden(
        tuple(
            tensor(spec.dtype, array)
            for spec, array in zip(inputs, captured.golden_inputs, strict=True)
        ),
        tuple(
            tensor(spec.dtype, array)
            for spec, array in zip(outputs, captured.golden_outputs, strict=False)
        ),
        tolerances(captured, "tf32" if "tf32" in precisions else "ieee")[: len(outputs)],
    )


def tolerances(
    captured: Captured, dot_precision: str, roundings: Sequence[float] = ()
) -> tuple[float, ...]:
    """For each output and state: that of the narrowest float in the model; 0 for whole numbers.

    Or thrice what the model's own roundings amount to, where that is more: ours may carry twice as
    far as torch's, in the other direction. `roundings`: those at other sizes than the example's,
    beside its own.
    """
    graph = captured.graph
    limits = tolerances_of(dot_precision)
    widest = max(limits.get(node.type.dtype, 0.0) for node in nodes_within(graph))
    own = captured.golden_roundings
    if dot_precision == "tf32" and captured.convolution_precision == "tf32":
        own = tuple(map(max, own, captured.tf32_roundings()))
    rows = zip((*graph.returned, *graph.new_states), map(max, own, roundings or own), strict=True)
    return tuple(
        max(widest, ROUNDING_FACTOR * rounding) if node.type.dtype in TOLERANCES else 0.0
        for node, rounding in rows
    )


def provenance(name: str, parts: Sequence[Part]) -> dict[str, Any]:
    """Facts about the build for people, the same on every machine; others are in its report."""
    return {
        "model": name,
        "versions": {
            "torch": installed_version("torch", "a checkout"),
            **tool_versions(part.target.device for part in parts),
        },
        "targets": {part.target.name: _target_facts(part) for part in parts},
    }


def _operations(group: Group) -> Iterator[str]:
    """What a group computes, in order; of all results of a function on memory its name, once."""
    named = set()
    for node in group.nodes:
        if node.op == "placed":
            if (node.inputs, node.attr("function")) not in named:
                named.add((node.inputs, node.attr("function")))
                yield node.attr("function")
        elif node.kind not in ("view", *LEAVES):
            yield node.op


def product_rate(group: Group, traits: TargetTraits) -> float:
    """How fast the group's products can be on the units that do them: on a GPU beside those of
    bf16, on a CPU beside multiply-adds of f32."""
    root = group.root_op
    if not traits.is_gpu and root is not None and group.kind == "matmul":
        return dict(traits.product_rates).get(root.inputs[0].dtype, 1.0)
    if not traits.is_gpu or root is None or root.dtype not in ("f32", "f64"):
        return 1.0
    if group.kind == "attention":
        return PRODUCT_RATES[traits.precision_of(root.dtype)]
    if group.kind == "matmul":
        columns, depth = root.shape[-1], root.inputs[0].shape[-1]
        return PRODUCT_RATES[precision_of(root, columns, depth, traits)]
    return 1.0


def _work(group: Group) -> dict[str, int | bool]:
    """Bytes and operations of a call; the most, where data says how many keys attention reads."""
    root = group.root_op
    are_most = root is not None and root.kind == "attention" and ends_of(root) is not None
    return {
        "bytes": group.bytes,
        "arithmetic": group.operations,
        **({"are_most": True} if are_most else {}),
    }


def _target_facts(part: Part) -> dict[str, Any]:
    return {
        "dot_precision": part.target.traits.dot_precision,
        "convolution_precision": part.target.traits.convolution_precision,
        "groups": [
            {
                "name": spec.name,
                "kind": group.kind,
                "operations": " ".join(_operations(group)),
                **_work(group),
                "product_rate": product_rate(group, part.target.traits),
            }
            for spec, group in zip(part.sources.specs, part.groups, strict=True)
        ],
        "kernels": {
            tuned.binary.symbol: {
                "choice": str(Choice.of(tuned.candidate)),
                "code_bytes": len(tuned.binary.code),
                **tuned.binary.facts,
            }
            for tuned in part.tuning.kernels.values()
        },
        "tuning": [str(line) for line in part.tuning.lines],
    }


def sources(parts: Sequence[Part]) -> dict[str, bytes]:
    """Source and spec of each distinct kernel and the buffer assignment, to be tuned elsewhere."""
    return print_sources([part.sources for part in parts])


def graphs(parts: Sequence[Part]) -> dict[str, bytes]:
    """The graphs of each target and the groups that its launches compute."""
    texts: dict[str, int] = {}
    targets = tuple(
        graph_file.TargetGraphs(
            part.target.name,
            round(part.target.traits.byte_ns * FEMTOSECONDS),
            round(part.target.traits.operation_ns * FEMTOSECONDS),
            tuple(
                _variant(schedule, variant, part.target.traits, texts)
                for schedule, variant in zip(part.scheduled, part.sources.variants, strict=True)
            ),
        )
        for part in parts
    )
    file = graph_file.GraphFile(graph_file.VERSION, tuple(texts), targets)
    return {graph_file.NAME: graph_file.print_graphs(file)}


def _variant(
    schedule: Schedule, variant: Lowered, traits: TargetTraits, texts: dict[str, int]
) -> graph_file.Variant:
    known = (*schedule.graph.nodes(), *walk(tuple(_named(schedule))))
    numbers = {node: number for number, node in enumerate(dict.fromkeys(known))}

    def number_of(text: str) -> int:
        return texts.setdefault(_short(text), len(texts))

    def places(nodes: Iterable[Node]) -> tuple[int, ...]:
        return tuple(numbers[node] for node in nodes)

    nodes = tuple(
        (
            number_of(node.op),
            number_of(_attributes(node)),
            number_of(str(node.type)),
            number_of(node.source or ""),
            places(node.inputs),
        )
        for node in numbers
    )
    specs = iter(variant.specs)

    def row(group: Group) -> graph_file.Group:
        work: Group | KernelSpec = group if group.kind in UNLAUNCHED else next(specs)
        return graph_file.Group(
            group.kind,
            _short(group.label, 256),
            places(group.nodes),
            places(group.reads),
            places(root.node for root in group.roots),
            work.bytes,
            work.operations,
            round(_estimate_ns(group, work.bytes, work.operations, traits)),
        )

    groups = tuple(map(row, schedule.steps))
    names = zip(schedule.graph.output_names, schedule.graph.outputs, strict=True)
    outputs = tuple((_short(name, 256), numbers[node]) for name, node in names)
    ranges = tuple((dim.name, dim.low, dim.high) for dim in variant.dims)
    return graph_file.Variant(variant.entry, ranges, nodes, outputs, groups)


def _attributes(node: Node) -> str:
    """Those that the type does not say."""
    hidden = ("dtype", "shape") if not node.inputs else ()
    return ", ".join(f"{name}={value!r}" for name, value in node.attrs if name not in hidden)


def _estimate_ns(group: Group, nbytes: int, operations: int, traits: TargetTraits) -> float:
    """The cost model's figures: a launch, and the slower of its bytes and its operations."""
    operation_ns = traits.operation_ns
    root = group.root_op if traits.is_gpu else None
    is_product = group.kind in ("matmul", "attention") or (root is not None and root.op == "placed")
    if root is not None and is_product and root.inputs[0].dtype in ("f16", "bf16"):
        machine = machine_of(traits)
        operation_ns = 1 / (machine.dot_operations * machine.multiprocessors)
    work_ns = max(nbytes * traits.byte_ns, operations * operation_ns)
    return traits.launch_ns + work_ns


def _named(schedule: Schedule) -> Iterator[Node]:
    """Every node that some group computes, reads or stores."""
    for group in (*schedule.groups, *schedule.steps):
        yield from (*group.reads, *group.nodes, *(root.node for root in group.roots))


def _short(text: str, limit: int = graph_file.TEXT_LENGTH) -> str:
    """Printable text within a limit; what is longer ends with its digest, so that two that differ
    stay apart."""
    plain = printable(text, kept="")
    if len(plain) <= min(limit, SHOWN_LENGTH):
        return plain
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{plain[: min(limit, SHOWN_LENGTH) - 18]}… {digest}"


def debug(texts: Mapping[str, str], parts: Sequence[Part]) -> dict[str, bytes]:
    """The numbered text of each stage, and for each kernel its source down to assembly."""
    files = {f"debug/{name}": text.encode() for name, text in texts.items()}
    for part in parts:
        folder = "debug/kernels" if len(parts) == 1 else f"debug/kernels/{part.target.name}"
        for stem, spec in _stems(part.sources.specs).items():
            tuned = part.tuning.kernels[spec.digest]
            files[f"{folder}/{stem}.py"] = spec.form(tuned.candidate).source.encode()
            for suffix, text in tuned.binary.texts.items():
                files[f"{folder}/{stem}.{suffix}"] = text.encode()
    return files


def specs_text(specs: Sequence[KernelSpec]) -> str:
    """All kernels as one file, in the order of their launches, each distinct one once."""
    parts = []
    for stem, spec in _stems(specs).items():
        rows = "".join(f"# candidate {row}\n" for row in spec.candidates)
        texts = "\n".join(form.source for form in spec.forms)
        parts.append(f"# {stem}: {spec.bytes} bytes, {spec.operations} operations\n{rows}{texts}")
    return "\n".join(parts)


def plan_text(plan: Plan) -> str:
    """The launch plan of fixed shapes, one step a line; others as JSON."""
    fixed = plan.fixed
    if fixed is None:
        return json.dumps(plan.to_map(), indent=1, sort_keys=True) + "\n"
    lines = [f"arena {fixed.arena_bytes} bytes, scratch {fixed.scratch_bytes} bytes"]
    lines += [f"{row.offset:>12} {row.nbytes:>12}  {row.name}" for row in fixed.buffers]
    for step in fixed.steps:
        if type(step) is Launch:
            arguments = " ".join(f"{space}:{value}" for space, value in step.args)
            grid = "×".join(map(str, step.grid))
            lines.append(f"{fixed.kernels[step.kernel].name} {grid} {arguments}")
        else:
            lines.append(json.dumps(STEP.write(step), sort_keys=True))
    return "\n".join(lines) + "\n"


def json_file(name: str, record: Mapping[str, Any]) -> dict[str, bytes]:
    """A JSON file of the bundle, readable and with sorted names."""
    return {name: json.dumps(record, indent=2, sort_keys=True).encode() + b"\n"}


def _stems(specs: Sequence[KernelSpec]) -> dict[str, KernelSpec]:
    """A file stem for each distinct kernel: place of its first launch and name."""
    found: dict[str, KernelSpec] = {}
    seen: set[str] = set()
    for place, spec in enumerate(specs):
        if spec.digest not in seen:
            seen.add(spec.digest)
            found[f"{place:03d}-{spec.name}"] = spec
    return found


def source_facts(spec: str) -> dict[str, str]:
    """The digest of the file that a SPEC names, or of its module's; empty where it has none."""
    location = spec.partition(":")[0]
    path: str | None = location
    if not location.endswith((".py", ".pt2")):
        found = importlib.util.find_spec(location)
        path = None if found is None else found.origin
    if path is None or not Path(path).is_file():
        return {}
    with Path(path).open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}
