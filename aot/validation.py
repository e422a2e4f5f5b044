"""Validation: the finished code runs on the golden input in this process, before it is written.

So a bundle with wrong numbers never replaces a good one. A target that this machine cannot run is
not validated, which the report says.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy

from aotc.aot.contents import ROUNDING_FACTOR, tolerances
from aotc.aot.extensions import bound_natives
from aotc.aot.ir.graph import Constant, Graph
from aotc.aot.ir.memory_order import Orders, each_from_memory, each_in_memory
from aotc.aot.ir.size import Dim
from aotc.aot.ir.storage import Array
from aotc.aot.signature import signature, states
from aotc.aot.targets.target import Target
from aotc.runtime import drivers
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import LaunchPlan, Plan
from aotc.runtime.bundle.weights import ALIGNMENT_BYTES
from aotc.runtime.comparison import Comparison, as_f64, compare
from aotc.runtime.errors import SizeInvalid
from aotc.runtime.programs.fallback import Fallback

if TYPE_CHECKING:  # it imports torch, which `aotc tune` does without
    from aotc.aot.capture.capture import Captured
    from aotc.aot.capture.random_inputs import Trial
    from aotc.aot.capture.rounding_sensitivity import Undecided


def runs_here(device: str, needs: Sequence[str], ranks: int = 1) -> bool:
    """Whether this machine can run code with such needs, of a program on so many devices."""
    driver = drivers.load(device)
    if ranks > 1:
        return not driver.missing(needs, 0, ranks)
    features: frozenset[str] = driver.features()
    return set(needs) <= features


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """Which entry of a plan is run: its number, the dims of all entries and the names of their
    states, in the order of the plan."""

    number: int = 0
    dims: tuple[Dim, ...] = ()
    states: tuple[str, ...] = ()


def validate(
    captured: Captured,
    constants: Mapping[str, Constant],
    plan: Plan,
    library: bytes,
    target: Target,
    entry: PlanEntry | None = None,
) -> tuple[Comparison, ...]:
    """One check for each output and state of each call, against the model's own numbers.

    The example comes first, and after it, in a row, the random inputs; where a call
    decides sizes, also inputs at those of the probes, each by itself. entry: None where there is
    one.
    """
    weights = {name: aligned(constant.array) for name, constant in constants.items()}
    own = tuple(state.name for state in captured.graph.states)
    entry = entry or PlanEntry(states=own)
    numbers = tuple(map(entry.states.index, own))
    types = signature(captured.graph, captured.dims, captured.guards, entry.dims)
    traits = target.traits
    precision, has_tf32 = traits.least_precision, traits.convolution_precision == "tf32"
    limits = tolerances(captured, precision)
    golden = captured.golden_inputs, captured.golden_outputs
    rows = [[_Row("", *golden, limits, captured.undecided, has_tf32=has_tf32)]]
    rows[0] += [_row_of(each, limits, has_tf32) for each in captured.trials]
    for probe in captured.probes:
        limits = tolerances(captured, precision, probe.roundings)
        parts = (f" ({probe})", probe.inputs, probe.outputs, limits, probe.undecided)
        rows.append([_Row(*parts, sizes=dict(probe.sizes), has_tf32=has_tf32)])
    if plan.ranks > 1:  # whose states lie in parts
        rows = [[each.of_outputs(captured.graph) for each in calls] for calls in rows]
    checks: list[Comparison] = []
    of_states = states([captured.graph], captured.dims)
    for calls in rows:
        shapes = [array.shape for array in calls[0].inputs]
        session = {dim.name: calls[0].sizes.get(dim.name, dim.default) for dim in of_states.dims}
        returned = types.outputs_at(shapes, session)
        specs = returned if plan.ranks > 1 else (*returned, *of_states.at(session))
        shaped = zip(specs, calls[0].expected, strict=True)
        if any(spec.shape != want.shape for spec, want in shaped):
            checks += (Comparison(spec.name + calls[0].label, math.inf, 0.0) for spec in specs)
            continue  # what is computed would not fit
        dims = types.bind(shapes, session)[: plan.dims]
        fixed = _plan_at(plan, dims, entry.number, calls[0])
        if fixed is None:
            continue
        own_states = numbers[: len(specs) - len(returned)]
        arrays = [_arrays(call, captured.orders, len(returned), own_states) for call in calls]
        run_in_a_row(target, library, fixed, weights, arrays)
        for call, each in zip(calls, arrays, strict=True):
            results = each_from_memory(each.results, captured.orders.outputs)
            checks += _compared(call, specs, results)
    return tuple(checks)


def _arrays(call: _Row, orders: Orders, outputs: int, states: tuple[int, ...]) -> Arrays:
    """Those of a call in the order of their memory."""
    results = each_in_memory(call.expected, orders.outputs)
    return Arrays(
        tuple(map(aligned, each_in_memory(call.inputs, orders.inputs))),
        tuple(aligned(numpy.zeros_like(array)) for array in results),
        outputs,
        states,
    )


def _plan_at(plan: Plan, dims: Sequence[int], entry: int, row: _Row) -> LaunchPlan | None:
    """None for a probe of sizes that are too large for the target: a call of these raises too."""
    try:
        return plan.at(dims, entry)
    except SizeInvalid as error:
        if not row.sizes:
            raise
        warnings.warn(f"not checked{row.label}: {error}", stacklevel=3)
        return None


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A call's inputs with what is expected of it."""

    label: str
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    limits: tuple[float, ...]
    undecided: Undecided | None
    spreads: Callable[[], tuple[float, ...]] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)  # of a probe
    has_tf32: bool = False  # in convolutions of f32

    def of_outputs(self, graph: Graph) -> _Row:
        """The same without what is expected of states; all elements of outputs count."""
        count = len(graph.returned)
        expected, limits = self.expected[:count], self.limits[:count]
        return replace(self, expected=expected, limits=limits, undecided=None, spreads=None)


def _row_of(trial: Trial, limits: tuple[float, ...], has_tf32: bool) -> _Row:
    numbers = trial.inputs, trial.outputs, limits, trial.undecided, trial.spreads
    return _Row(f" ({trial.name})", *numbers, has_tf32=has_tf32)


def _compared(
    row: _Row, specs: Sequence[TensorSpec], results: Sequence[Array]
) -> Iterator[Comparison]:
    """The checks of a call. Where numbers differ, the model is asked how far its own roundings
    carry them there, and which elements they decide: these are left out, with a warning. A check
    that fails names the element that is furthest away."""
    checks = [_check(*each) for each in zip(specs, results, row.expected, row.limits, strict=True)]
    limits = list(row.limits)
    if row.spreads is not None and not all(check.is_ok for check in checks):
        spreads = row.spreads()
        limits = [max(limit, ROUNDING_FACTOR * each)
                  for limit, each in zip(limits, spreads, strict=True)]  # fmt: skip
        checks = [Comparison(each.name, each.difference, limit)
                  for each, limit in zip(checks, limits, strict=True)]  # fmt: skip
    masks: Sequence[Array | None] = (None,) * len(checks)
    if row.undecided is not None and not all(check.is_ok for check in checks):
        masks = row.undecided(results, limits, row.has_tf32)
    for index, (check, mask) in enumerate(zip(checks, masks, strict=True)):
        spec, own, expected = specs[index], results[index], row.expected[index]
        if mask is not None and mask.any():
            own = numpy.where(mask, expected, own)
            check = _check(spec, own, expected, limits[index])
            warnings.warn(_left_out(check.name + row.label, mask), stacklevel=2)
        place = "" if check.is_ok else _furthest(spec, own, expected)
        yield Comparison(check.name + place + row.label, check.difference, check.tolerance)


def _check(spec: TensorSpec, found: Array, expected: Array, limit: float) -> Comparison:
    return compare(spec, found.tobytes(), expected.tobytes(), limit)


def _left_out(name: str, mask: Array) -> str:
    counted = f"{int(mask.sum())} of {mask.size} elements of `{name}`"
    return f"{counted} were not compared: the model's own roundings decide them"


def _furthest(spec: TensorSpec, found: Array, expected: Array) -> str:
    """`[2, 0]`: where two arrays differ the most."""
    if not expected.ndim:
        return ""
    one, other = (as_f64(numpy, spec.dtype, each.tobytes()) for each in (found, expected))
    with numpy.errstate(invalid="ignore"):
        away = numpy.where(one == other, 0.0, numpy.abs(one - other))
    away[numpy.isnan(one) & numpy.isnan(other)] = 0.0
    away[numpy.isnan(away)] = numpy.inf
    place = numpy.unravel_index(int(away.argmax()), expected.shape)
    return str([int(each) for each in place])


@dataclass(frozen=True, slots=True, eq=False)
class Arrays:
    """The arrays of a call, contiguous and aligned; `results` are written: outputs, then states.

    states: the numbers of these among the plan's.
    """

    inputs: tuple[Array, ...]
    results: tuple[Array, ...]
    outputs: int  # how many of the results
    states: tuple[int, ...]


def run(
    target: Target,
    library: bytes,
    plan: LaunchPlan,
    weights: Mapping[str, Array],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    new_states: Sequence[Array] = (),
) -> None:
    """One call of a plan; all arrays contiguous and aligned, `outputs` are written, and into
    `new_states` what the states hold then, where they are asked for."""
    results, numbers = (*outputs, *new_states), tuple(range(len(new_states)))
    call = Arrays(tuple(inputs), results, len(outputs), numbers)
    run_in_a_row(target, library, plan, weights, [call])


def run_in_a_row(
    target: Target,
    library: bytes,
    plan: LaunchPlan,
    weights: Mapping[str, Array],
    calls: Sequence[Arrays],
) -> None:
    """Calls of one session; see `run`."""
    driver = drivers.load(target.device)
    spans = {name: (array.ctypes.data, array.nbytes) for name, array in weights.items()}
    inputs, outputs = calls[0].inputs, calls[0].results[: calls[0].outputs]
    peers = (value for launch in plan.launches for space, value in launch.args if space == "peer")
    ranks = 1 + max((int(value) for value in peers), default=0)
    executable = (driver.Executable if ranks == 1 else driver.group(ranks))(
        library,
        plan,
        spans,
        tuple(array.nbytes for array in inputs),
        tuple(array.nbytes for array in outputs),
        natives=bound_natives(plan.natives, (driver.DEVICE, 0)),
        fallback=_ops(plan),
    )
    run_call = _run_on_device if driver.HAS_DEVICE_MEMORY else _run_on_host
    with closing(executable), closing(executable.session()) as session:
        for call in calls:
            run_call(session, call)
            for number, array in zip(call.states, call.results[call.outputs :], strict=True):
                session.states.read(number, array.ctypes.data)


def _ops(plan: LaunchPlan) -> Fallback | None:
    names = dict.fromkeys(call.op for call in plan.calls)
    return Fallback(names, "the validation") if names else None


def _run_on_host(session: Any, call: Arrays) -> None:
    """Run on arrays in place."""
    for place, array in enumerate((*call.inputs, *call.results[: call.outputs])):
        session.addresses[place] = array.ctypes.data
    session.run()


def _run_on_device(session: Any, call: Arrays) -> None:
    """Run on copies in the device's memory."""
    for place, array in enumerate(call.inputs):
        session.copy_in(place, array.ctypes.data)
    first = len(call.inputs)
    for place in range(first, first + call.outputs):
        session.stage(place)
    session.run(session.stream)
    for place, array in enumerate(call.results[: call.outputs], first):
        session.copy_out(place, array.ctypes.data)
    session.synchronize()


def aligned(array: Array) -> Array:
    """A copy that starts where the weights of a loaded bundle would."""
    block = numpy.empty(array.nbytes + ALIGNMENT_BYTES, numpy.uint8)
    start = -block.ctypes.data % ALIGNMENT_BYTES
    copy = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
