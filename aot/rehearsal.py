"""Rehearsal: the finished code runs on the golden input in this process, before it is written.

So a bundle with wrong numbers never replaces a good one. A target that this machine cannot run is
not rehearsed, which the report and `provenance.json` say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy

from aotc.aot.contents import Plan, tolerances
from aotc.aot.ir.graph import Constant
from aotc.aot.ir.native_library import bound
from aotc.aot.ir.storage import Array
from aotc.aot.signature import signature, states
from aotc.aot.targets.target import Target
from aotc.runtime import drivers
from aotc.runtime.bundle.dynamic_plan import DynamicPlan
from aotc.runtime.bundle.plan import LaunchPlan
from aotc.runtime.bundle.weights import ALIGNMENT_BYTES
from aotc.runtime.comparison import Comparison, compare
from aotc.runtime.programs.device_segments import DeviceSegments
from aotc.runtime.programs.fallback import Fallback
from aotc.runtime.programs.segments import SegmentedExecutable

if TYPE_CHECKING:  # it imports torch, which `aotc tune` does without
    from aotc.aot.capture.capture import Captured


def runs_here(target: Target) -> bool:
    """Whether this machine can run a target's code."""
    features: frozenset[str] = drivers.load(target.device).features()
    return set(target.needs) <= features


def rehearse(
    captured: Captured,
    constants: Mapping[str, Constant],
    plan: Plan,
    library: bytes,
    target: Target,
) -> tuple[Comparison, ...]:
    """One check for each output and state, against the exported module's after its first call.

    Where a call decides sizes, also at those of the probes, against the model's own outputs.
    """
    weights = {name: aligned(constant.array) for name, constant in constants.items()}
    types = signature(captured.graph, captured.dims, captured.guards)
    precision = target.traits.dot_precision
    golden = captured.golden_inputs, captured.golden_outputs
    rows = [("", *golden, tolerances(captured, precision))]
    for probe in captured.probes:
        limits = tolerances(captured, precision, probe.roundings)
        rows.append((f" ({probe})", probe.inputs, probe.outputs, limits))
    checks: list[Comparison] = []
    for label, given, expected, limits in rows:
        inputs = [aligned(array) for array in given]
        outputs = [aligned(numpy.zeros_like(array)) for array in expected]
        shapes = [array.shape for array in inputs]
        returned = types.outputs_at(shapes)
        specs = (*returned, *states(captured.graph))
        if any(spec.shape != want.shape for spec, want in zip(specs, expected, strict=True)):
            checks += (Comparison(spec.name + label, math.inf, 0.0) for spec in specs)
            continue  # what is computed would not fit
        fixed = plan.at(types.bind(shapes)) if isinstance(plan, DynamicPlan) else plan
        kept = outputs[len(returned) :]
        run(target, library, fixed, weights, inputs, outputs[: len(returned)], kept)
        found = zip(specs, outputs, expected, limits, strict=True)
        checks += (
            Comparison(
                spec.name + label, compare(spec, *_bytes(got, want), limit).difference, limit
            )
            for spec, got, want, limit in found
        )
    return tuple(checks)


def _bytes(found: Array, expected: Array) -> tuple[bytes, bytes]:
    return found.tobytes(), expected.tobytes()


def run(
    target: Target,
    library: bytes,
    plan: LaunchPlan,
    weights: Mapping[str, Array],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    kept: Sequence[Array] = (),
) -> None:
    """One call of a plan; all arrays contiguous and aligned, `outputs` are written, and into `kept`
    what the states hold then, where they are asked for."""
    place = _run_on_device if target.device == "cuda" else _run_on_host
    place(library, plan, weights, inputs, outputs, kept)


def _run_on_host(
    library: bytes,
    plan: LaunchPlan,
    weights: Mapping[str, Array],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    kept: Sequence[Array],
) -> None:
    """Run on arrays in place."""
    addresses = {name: array.ctypes.data for name, array in weights.items()}
    driver = drivers.load("cpu")
    counts = (len(inputs), len(outputs))
    executable = driver.Executable(library, plan, addresses, *counts, natives=bound(plan.natives))
    if plan.calls:
        executable = SegmentedExecutable(executable, _ops(plan))
    with closing(executable), closing(executable.session()) as session:
        for place, array in enumerate((*inputs, *outputs)):
            session.addresses[place] = array.ctypes.data
        session.run()
        _read_states(session, kept)


def _ops(plan: LaunchPlan) -> Fallback:
    return Fallback(dict.fromkeys(call.op for call in plan.calls), "the rehearsal")


def _run_on_device(
    library: bytes,
    plan: LaunchPlan,
    weights: Mapping[str, Array],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    kept: Sequence[Array],
) -> None:
    """Run on copies in the device's memory."""
    spans = {name: (array.ctypes.data, array.nbytes) for name, array in weights.items()}
    sizes = [tuple(array.nbytes for array in arrays) for arrays in (inputs, outputs)]
    executable = drivers.load("cuda").Executable(library, plan, spans, *sizes)
    if plan.calls or plan.natives:
        ops = _ops(plan) if plan.calls else None
        executable = DeviceSegments(executable, ops, bound(plan.natives, ("cuda", 0)))
    with closing(executable), closing(executable.session()) as session:
        for place, array in enumerate(inputs):
            session.copy_in(place, array.ctypes.data)
        for place in range(len(inputs), len(inputs) + len(outputs)):
            session.stage(place)
        session.run(session.stream)
        for place, array in enumerate(outputs, len(inputs)):
            session.copy_out(place, array.ctypes.data)
        session.synchronize()
        _read_states(session, kept)


def _read_states(session: Any, kept: Sequence[Array]) -> None:
    for place, array in enumerate(kept):
        session.states.read(place, array.ctypes.data)


def aligned(array: Array) -> Array:
    """A copy that starts where the weights of a loaded bundle would."""
    block = numpy.empty(array.nbytes + ALIGNMENT_BYTES, numpy.uint8)
    start = -block.ctypes.data % ALIGNMENT_BYTES
    copy = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
