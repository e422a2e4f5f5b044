"""The stage `capture`: Spec → Graph, with golden inputs and outputs of the exported module.

It also checks that torch.export's program gives the model's own numbers on the example. A model may
take another branch while it is traced (`torch.compiler.is_compiling()`), and libraries do; the
bundle would then agree with the program, but not with the model.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy
import torch

from aotc.aot.capture.aliases import has_plain_memory
from aotc.aot.capture.exported import (
    Functional,
    held_tensor,
    held_tensors,
    import_program,
)
from aotc.aot.capture.exporting import Exported, exported, run, unchanged
from aotc.aot.capture.fallback import CHECKED_WHOLE, TorchOp, torch_ops, warn_of
from aotc.aot.capture.golden import (
    distances,
    golden_tensors,
    has_halves,
    largest,
    quiet_settings,
    without_jumps,
)
from aotc.aot.capture.gradient_tracing import gradients_on
from aotc.aot.capture.graph_code import code_when_run
from aotc.aot.capture.importer import to_array
from aotc.aot.capture.imports.rng import GOLDEN_SEED, draws, seeded
from aotc.aot.capture.imports.table import NOT_DECOMPOSED
from aotc.aot.capture.lifted import Lifted, check_alone, lifted
from aotc.aot.capture.memory_orders import orders_of
from aotc.aot.capture.op_modes import endless_loops
from aotc.aot.capture.other_sizes import Models, Probe, beyond, differing_at_one, probes
from aotc.aot.capture.random_inputs import Trial, judged, trials
from aotc.aot.capture.rounding_sensitivity import Undecided, undecided_of
from aotc.aot.capture.sizes import Sizes, sizes_of, spread
from aotc.aot.capture.spec import Spec, with_distinct_inputs
from aotc.aot.capture.structure import named_outputs, structure_of
from aotc.aot.capture.tf32 import tf32_roundings_of
from aotc.aot.errors import ExportDiffers, ModelRaised
from aotc.aot.ir.control import nodes_within
from aotc.aot.ir.graph import Graph, own_sources
from aotc.aot.ir.legal import check
from aotc.aot.ir.memory_order import NO_ORDERS, Orders
from aotc.aot.ir.size import Dim, Guard
from aotc.aot.ir.storage import Array
from aotc.runtime.bundle.manifest import MAIN
from aotc.runtime.bundle.structure import Structure


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A model as our graph. Arrays are stored arrays: bf16 is uint16 bits."""

    name: str
    graph: Graph  # its input and output names and types are the signature
    golden_inputs: tuple[Array, ...]  # the example inputs, in the order of those that are given
    golden_outputs: tuple[Array, ...]  # of the exported module, then its states after the call
    structure: Structure  # how arguments and result nest
    golden_roundings: tuple[float, ...]  # max error of roundings, relative to max |output|
    dot_precision: str = "ieee"  # of f32 operands on a GPU, by torch's own switch: or "tf32"
    convolution_precision: str = "ieee"  # the same of convolutions, if there are any of f32
    dims: tuple[Dim, ...] = ()  # the dynamic sizes
    guards: tuple[Guard, ...] = ()  # what they must meet beside their ranges
    specialised: tuple[str, ...] = ()  # dims that were asked to vary and are fixed all the same
    torch_ops: tuple[TorchOp, ...] = ()  # what torch runs at each call
    probes: tuple[Probe, ...] = ()  # the model itself at other sizes than the example's
    is_strict: bool = False  # whether torch.export read the model's code, after tracing failed
    trials: tuple[Trial, ...] = ()  # the model itself on random inputs
    undecided: Undecided | None = None  # elements of the golden outputs that roundings decide
    held: tuple[tuple[str, str], ...] = ()  # parameters and buffers, as `held_tensors` has them
    quantized: Mapping[str, object] | None = None  # what `--quantize` stored, and what it cost
    entry: str = MAIN  # the name of the entry point that it is
    orders: Orders = NO_ORDERS  # of the memory of inputs and outputs: the example's, the model's
    # How far each output moves where convolutions are of TF32, as `golden_roundings`.
    tf32_roundings: Callable[[], tuple[float, ...]] = tuple


@own_sources()
def capture(spec: Spec, fallback: bool = False, rounds: bool = False) -> Captured:
    """The spec's model as a graph and its golden numbers.

    With `fallback`, ops that cannot be compiled are left to torch, and a `FallbackWarning` names
    them. With `rounds`, 16-bit results are rounded after each of torch's ops. Raises `ModelRaised`
    when the model does not run on its inputs, and an `UnsupportedError` when it runs but cannot be
    compiled.
    """
    spec = with_distinct_inputs(spec)
    try:
        return _captured(spec, fallback, rounds)
    except ModelRaised:
        if spec.module is None:
            raise
    with gradients_on(spec.module):  # torch's own mode, which most code takes for granted
        buffers = unchanged(list(spec.module.buffers()))
        with torch.no_grad(), quiet_settings(), seeded(GOLDEN_SEED), buffers:
            run(spec, spec.module)
        return _captured(spec, fallback, rounds)


def _captured(spec: Spec, fallback: bool, rounds: bool) -> Captured:
    with torch.no_grad(), quiet_settings(), seeded(GOLDEN_SEED), code_when_run():
        whole = (*NOT_DECOMPOSED, *CHECKED_WHOLE) if fallback else NOT_DECOMPOSED
        taking, states = lifted(spec)
        found = exported(taking, whole)
        program, decomposed = found.program, found.decomposed
        check_alone(program, states, spec.module)
        sizes, graph, asserted = _imported(spec, found, states, fallback, rounds)
        uses_rng = draws(decomposed)
        structure = structure_of(spec, program, uses_rng)
        left = torch_ops(graph)
        golden = _golden(spec, found, graph, states)
        guards = tuple(dict.fromkeys((*sizes.guards, *asserted)))
        model = program.module() if spec.module is None else spec.module
        model = states.bound(decomposed.module()) if uses_rng else model
        models = Models(model, model)
        if graph.states and sizes.dims:
            names = [state.name for state in graph.states]
            models = Models(program.module(), Functional(decomposed, names, states), states)
        held = _held(found, graph, states)
        others = probes(spec, models, held, graph, sizes.dims, (*guards, *sizes.of_layout))
        if sizes.of_layout:
            eager = Models(taking.module or model, models.functional, states)
            own = None if spec.module is None or uses_rng else _own(spec.module, graph, states)
            needed, more = beyond(spec, eager, own, graph, sizes.dims, guards, sizes.of_layout)
            guards, others = (*guards, *needed), (*others, *more)
        guards = tuple(replace(guard, text=states.named(guard.text)) for guard in guards)
    specialised = tuple(map(states.named, sizes.specialised))
    graph = named_outputs(graph, structure.outputs)
    warn_of_weights(program.state_dict, program.graph_signature.parameters)
    warn_of(left)
    check(graph, "capture")
    others_drawn = _trials(spec, found, graph, golden.outputs, uses_rng, states)
    weights = held_tensors(decomposed)
    precisions = _precision(torch.backends.cuda.matmul), _of_convolutions(graph)
    numbers = (golden.inputs, golden.outputs, structure, golden.roundings)
    known = (sizes.dims, guards, specialised, left, others, found.is_strict, others_drawn)
    parts = (*numbers, *precisions, *known, golden.undecided)
    return Captured(spec.name, graph, *parts, held=weights, entry=spec.entry, orders=golden.orders,
                    tf32_roundings=golden.tf32_roundings)  # fmt: skip


def _of_convolutions(graph: Graph) -> str:
    """What torch's switch for convolutions says, where a graph has some of f32."""
    has_any = any(node.op == "convolution" and node.dtype == "f32" for node in nodes_within(graph))
    return _precision(torch.backends.cudnn.conv) if has_any else "ieee"


def _precision(switch: Any) -> str:
    """What one of torch's switches says of f32 on a GPU."""
    return "tf32" if switch.fp32_precision == "tf32" else "ieee"


def _shapes_of(spec: Spec) -> Any:
    """The spec's `dynamic_shapes`, a row an argument."""
    if spec.module is None or spec.dynamic_shapes is None:
        return spec.dynamic_shapes
    try:
        return spread(spec.dynamic_shapes, inspect.signature(spec.module.forward))
    except ValueError:  # compiled code, such as TorchScript's, has no signature
        return spec.dynamic_shapes


def example_arrays(spec: Spec) -> tuple[Array, ...]:
    """The tensors of the example, each as an array of its own."""
    return tuple(to_array(tensor).copy() for tensor in spec.tensors())


def _held(found: Exported, graph: Graph, states: Lifted) -> list[torch.Tensor]:
    """The tensors that the graph's states are of, in their order."""
    own = dict(zip(states.names, states.tensors, strict=True))
    return [
        own[state.name] if state.name in own else held_tensor(found.decomposed, state.name)
        for state in graph.states
    ]


def _own(module: torch.nn.Module, graph: Graph, states: Lifted) -> list[torch.Tensor] | None:
    """The module's own tensors that the graph's states are of; None where one is not a buffer."""
    buffers = dict(module.named_buffers(remove_duplicate=False))
    buffers |= dict(zip(states.names, states.tensors, strict=True))
    found = [buffers.get(state.name) for state in graph.states]
    return None if any(each is None for each in found) else found  # type: ignore[return-value]


def _trials(
    spec: Spec,
    found: Exported,
    graph: Graph,
    known: Sequence[Array],
    uses_rng: bool,
    states: Lifted,
) -> tuple[Trial, ...]:
    """The model on random inputs: itself, or where it draws or keeps states its program."""
    state_tensors = _held(found, graph, states)
    if uses_rng:
        model: Any = states.bound(found.decomposed.module())
    elif state_tensors or spec.module is None:
        model = states.bound(found.program.module())
    else:
        model = spec.module
    more = (numpy.array(GOLDEN_SEED),) if uses_rng else ()
    return trials_of(spec, model, graph, known, state_tensors, more)


def trials_of(
    spec: Spec,
    model: Any,
    graph: Graph,
    known: Sequence[Array],
    states: Sequence[torch.Tensor] = (),
    more: tuple[Array, ...] = (),
) -> tuple[Trial, ...]:
    """A spec's model on random inputs, as `trials` has it."""
    given = (spec.arguments, dict(spec.keyword_arguments))
    with torch.no_grad(), quiet_settings(), seeded(GOLDEN_SEED):
        return judged(trials(model, *given, known, has_halves(graph), states, more))


class WeightWarning(UserWarning):
    """A weight holds numbers that no trained model has."""


def warn_of_weights(state: Mapping[str, torch.Tensor], parameters: Collection[str]) -> None:
    """Say which weights are not finite; a buffer may hold infinities, as masks do."""
    for name, tensor in state.items():
        if not tensor.is_floating_point() or not has_plain_memory(tensor):
            continue
        if tensor.dtype.itemsize == 1:
            tensor = tensor.float()  # torch does not ask 8-bit floats
        if tensor.sum(dtype=torch.float32).isfinite():
            continue  # all elements are; a sum that is not may still be one of finite numbers
        is_weight = name in parameters
        wrong = ~tensor.isfinite() if is_weight else tensor.isnan()
        count = int(wrong.sum())
        if count:
            kind = "not finite" if is_weight else "not a number"
            elements = f"{count} of {tensor.numel()} elements"
            warnings.warn(f"weight `{name}` is {kind}: {elements}", WeightWarning, stacklevel=2)


@dataclass(frozen=True, slots=True, eq=False)
class _Golden:
    """The example's numbers; what the graph's states hold after the call follows the outputs."""

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    roundings: tuple[float, ...]  # how far they carry each output
    undecided: Undecided
    tf32_roundings: Callable[[], tuple[float, ...]]
    orders: Orders


def _imported(
    spec: Spec, found: Exported, states: Lifted, fallback: bool, rounds: bool
) -> tuple[Sizes, Graph, tuple[Guard, ...]]:
    """The dynamic sizes, the graph, and what that asks of the sizes.

    A dim that torch took to be 2 at least may be 1 where the program has the model's numbers there.
    """
    program, decomposed = found.program, found.decomposed
    arguments = (spec.arguments, spec.keyword_arguments)

    def imported(never_one: Collection[str]) -> tuple[Sizes, Graph, tuple[Guard, ...]]:
        sizes = sizes_of(program, _shapes_of(spec), arguments, states.shapes, never_one)
        settings = (sizes, fallback, rounds, states, spec.entry == MAIN)
        return sizes, *import_program(decomposed, program, *settings)

    sizes, graph, asserted = imported(())
    if not sizes.dims or draws(decomposed):
        return sizes, graph, asserted
    model = program.module() if spec.module is None else spec.module
    functional = Functional(decomposed, [state.name for state in graph.states], states)
    models, held = Models(model, functional, states), _held(found, graph, states)
    conditions = (*sizes.guards, *asserted)
    never_one = differing_at_one(spec, models, held, graph, sizes.dims, conditions)
    return imported(never_one) if never_one else (sizes, graph, asserted)


def _golden(spec: Spec, exported: Exported, graph: Graph, states: Lifted) -> _Golden:
    """What the exported model gives for its example."""
    decomposed = exported.decomposed
    state_names = [state.name for state in graph.states]
    inputs = example_arrays(spec)
    module = states.bound(exported.program.module())
    if draws(decomposed):
        module = states.bound(decomposed.module())
        inputs = (*inputs, numpy.array(GOLDEN_SEED))
    with unchanged(_held(exported, graph, states)) as buffers, endless_loops():
        own = golden_tensors(lambda: run(spec, module))
        orders = orders_of(spec.tensors(), own)
        outputs = (*own, *(each.clone() for each in buffers))
        found = tuple(to_array(tensor).copy() for tensor in outputs)
    spreads = whole_spreads = (0.0,) * len(outputs)
    is_narrow = has_halves(graph)
    # Nothing is written into: neither into an operand nor, in wider floats, into a state.
    whole = module if is_narrow else states.bound(decomposed.module())
    functional = states.bound(Functional(decomposed, state_names, states)) if state_names else whole
    with suppress(ModelRaised):  # an op does not take what was widened
        is_decomposed = functional is not module
        away = distances(lambda: run(spec, functional), outputs, is_narrow, is_decomposed)
        spreads, whole_spreads = tuple(map(without_jumps, away)), tuple(map(largest, away))
    if not state_names and not draws(decomposed):
        check_agreement(spec, outputs, whole_spreads, is_narrow)
    again = functional if state_names else module
    call = partial(run, spec, again)
    decided = undecided_of(call, found)
    return _Golden(inputs, found, spreads, decided, tf32_roundings_of(call), orders)


# -- the model's own numbers -----------------------------------------------------------------------


# Of an output's largest element: far beyond what another order of operations explains.
LIMIT, LIMIT_OF_HALVES = 1e-3, 5e-2
TIMES_ROUNDINGS = 10.0  # of how far the model's own roundings carry the output


def check_agreement(
    spec: Spec, outputs: Sequence[torch.Tensor], roundings: Sequence[float], is_narrow: bool
) -> None:
    """Raise `ExportDiffers` where the model's floats are not those of the exported program.

    For models that keep no state, since a call of theirs changes tensors that only they know.
    outputs: what the program gave on the spec's example, in order; roundings: how far roundings
    carry each. Whole numbers are left to the comparison of the bundle, since a choice between
    nearly equal values may go either way.
    """
    module = spec.module
    if module is None:
        return
    try:
        with torch.no_grad(), endless_loops():
            own = golden_tensors(lambda: run(spec, module))
    except ModelRaised:  # it ran for torch.export; whatever it keeps of that is its own affair
        return
    for place, (found, expected) in enumerate(zip(outputs, own, strict=False)):
        if not expected.is_floating_point() or found.shape != expected.shape:
            continue
        difference = _difference(found, expected)
        least = LIMIT_OF_HALVES if is_narrow else LIMIT
        limit = max(least, TIMES_ROUNDINGS * roundings[place])
        if difference > limit:
            raise ExportDiffers(place=place, found=f"{difference:.2g}", expected=f"{limit:.2g}")


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference of elements that are finite in both, of the largest one expected."""
    pair = [each.double().numpy() for each in (found, expected)]
    is_finite = numpy.isfinite(pair[0]) & numpy.isfinite(pair[1])
    if not is_finite.any():
        return 0.0
    first, second = (each[is_finite] for each in pair)
    return float(numpy.abs(first - second).max() / (numpy.abs(second).max() or 1.0))
