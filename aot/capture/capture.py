"""The stage `capture`: Spec → Graph, with golden inputs and outputs of the exported module."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from aotc.aot.capture.agreement import check_agreement
from aotc.aot.capture.aliases import has_plain_memory
from aotc.aot.capture.distinct import with_distinct_inputs
from aotc.aot.capture.draws import GOLDEN_SEED, draws, seeded
from aotc.aot.capture.exported import held_tensor, import_program
from aotc.aot.capture.exporting import Exported, exported, run, unchanged
from aotc.aot.capture.fallback import CHECKED_WHOLE, TorchOp, torch_ops, warn_of
from aotc.aot.capture.functional import Functional
from aotc.aot.capture.golden import golden_tensors, has_halves, roundings
from aotc.aot.capture.importer import to_array
from aotc.aot.capture.probes import Probe, probes
from aotc.aot.capture.sizes import sizes_of
from aotc.aot.capture.spec import Spec
from aotc.aot.capture.structure import named_outputs, structure_of
from aotc.aot.capture.table import KEPT_WHOLE
from aotc.aot.capture.trials import Trial, judged, trials
from aotc.aot.errors import ModelRaised, StateUnsupported
from aotc.aot.ir.graph import Graph
from aotc.aot.ir.legal import check
from aotc.aot.ir.size import Dim, Guard
from aotc.aot.ir.storage import Array
from aotc.runtime.bundle.structure import Structure


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A model as our graph. Arrays are stored arrays: bf16 is uint16 bits."""

    name: str
    graph: Graph  # its input and output names and types are the signature
    golden_inputs: tuple[Array, ...]  # the example inputs, in the order of those that are given
    golden_outputs: tuple[Array, ...]  # of the exported module, then its states after the call
    structure: Structure  # how arguments and result nest
    golden_roundings: tuple[float, ...]  # how far its roundings carry each, of its scale
    dot_precision: str = "ieee"  # of f32 operands on a GPU, by torch's own switch: or "tf32"
    dims: tuple[Dim, ...] = ()  # the sizes that a call decides
    guards: tuple[Guard, ...] = ()  # what they must meet beside their ranges
    specialised: tuple[str, ...] = ()  # dims that were asked to vary and are fixed all the same
    torch_ops: tuple[TorchOp, ...] = ()  # what torch runs at each call
    probes: tuple[Probe, ...] = ()  # the model itself at other sizes than the example's
    is_strict: bool = False  # whether torch.export read the model's code, after tracing failed
    trials: tuple[Trial, ...] = ()  # the model itself on inputs drawn anew


def capture(spec: Spec, fallback: bool = False, rounds: bool = False) -> Captured:
    """The spec's model as a graph and its golden numbers.

    With `fallback`, ops that cannot be compiled are left to torch, and a `FallbackWarning` names
    them. With `rounds`, 16-bit results are rounded after each of torch's ops. Raises `ModelRaised`
    when the model does not run on its inputs, and an `UnsupportedError` when it runs but cannot be
    compiled.
    """
    spec = with_distinct_inputs(spec)
    with torch.no_grad(), quiet_settings(), seeded(GOLDEN_SEED):
        whole = (*KEPT_WHOLE, *CHECKED_WHOLE) if fallback else KEPT_WHOLE
        found = exported(spec, whole)
        program, decomposed = found.program, found.decomposed
        arguments = (spec.arguments, spec.keyword_arguments)
        sizes = sizes_of(program, spec.dynamic_shapes, arguments)
        graph, asserted = import_program(decomposed, program, sizes, fallback, rounds)
        is_drawing = draws(decomposed)
        structure = structure_of(spec, program, is_drawing)
        left = torch_ops(graph)
        kept = [state.name for state in graph.states]
        if kept and left:
            names = ", ".join(f"`{name}`" for name in kept)
            raise StateUnsupported(names=names, other="ops that torch runs")
        golden_inputs, golden_outputs, roundings_of = _golden(spec, program, decomposed, graph)
        guards = tuple(dict.fromkeys((*sizes.guards, *asserted)))
        model = program.module() if spec.module is None else spec.module
        model = decomposed.module() if is_drawing else model
        others = probes(spec, model, graph, sizes.dims, guards)
    graph = named_outputs(graph, structure.outputs)
    warn_of_weights(program.state_dict, program.graph_signature.parameters)
    warn_of(left)
    check(graph, "capture")
    others_drawn = _trials(spec, found, graph, golden_outputs, is_drawing)
    is_tf32 = torch.backends.cuda.matmul.fp32_precision == "tf32"
    precision = "tf32" if is_tf32 else "ieee"
    golden = (golden_inputs, golden_outputs, structure, roundings_of)
    known = (sizes.dims, guards, sizes.specialised, left, others, found.is_strict, others_drawn)
    return Captured(spec.name, graph, *golden, precision, *known)


def _trials(
    spec: Spec, found: Exported, graph: Graph, known: Sequence[Array], is_drawing: bool
) -> tuple[Trial, ...]:
    """The model on inputs drawn anew: itself, or where it draws or keeps states its program."""
    kept = [held_tensor(found.decomposed, state.name) for state in graph.states]
    if is_drawing:
        model: Any = found.decomposed.module()
    else:
        model = found.program.module() if kept or spec.module is None else spec.module
    more = (numpy.array(GOLDEN_SEED),) if is_drawing else ()
    given = (spec.arguments, dict(spec.keyword_arguments))
    with torch.no_grad(), quiet_settings(), seeded(GOLDEN_SEED):
        drawn = trials(model, *given, known, has_halves(graph), kept, more)
    return judged(drawn)


@contextmanager
def quiet_settings() -> Iterator[None]:
    """TransformerEncoder's fast path off, since it changes padded rows; no torch chatter."""
    fast_path, level = torch.backends.mha.get_fastpath_enabled(), logging.root.manager.disable
    torch.backends.mha.set_fastpath_enabled(False)
    logging.disable(logging.ERROR)  # what torch logs there, our errors say
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        logging.disable(level)


class WeightWarning(UserWarning):
    """A weight holds numbers that no trained model has."""


def warn_of_weights(state: Mapping[str, torch.Tensor], parameters: Collection[str]) -> None:
    """Say which weights are not finite; a buffer may hold infinities, as masks do."""
    for name, tensor in state.items():
        if not tensor.is_floating_point() or not has_plain_memory(tensor):
            continue
        is_weight = name in parameters
        wrong = ~tensor.isfinite() if is_weight else tensor.isnan()
        count = int(wrong.sum())
        if count:
            kind = "not finite" if is_weight else "not a number"
            elements = f"{count} of {tensor.numel()} elements"
            warnings.warn(f"weight `{name}` is {kind}: {elements}", WeightWarning, stacklevel=2)


def _golden(
    spec: Spec, program: ExportedProgram, decomposed: ExportedProgram, graph: Graph
) -> tuple[tuple[Array, ...], tuple[Array, ...], tuple[float, ...]]:
    """Inputs, outputs, and how far roundings carry each output.

    What the graph's states hold after the first call follows the outputs.
    """
    kept = [state.name for state in graph.states]
    leaves = pytree.tree_leaves((spec.arguments, dict(spec.keyword_arguments)))
    inputs = tuple(to_array(leaf).copy() for leaf in leaves if isinstance(leaf, torch.Tensor))
    module = program.module()
    if draws(decomposed):
        module = decomposed.module()
        inputs = (*inputs, numpy.array(GOLDEN_SEED))
    with unchanged([held_tensor(decomposed, name) for name in kept]) as buffers:
        outputs = (*golden_tensors(lambda: run(spec, module)), *(each.clone() for each in buffers))
        found = tuple(to_array(tensor).copy() for tensor in outputs)
    spreads = (0.0,) * len(outputs)
    with suppress(ModelRaised):  # an op does not take what was widened
        is_narrow = has_halves(graph)
        # Nothing is written into: neither into an operand nor, in wider floats, into a state.
        whole = module if is_narrow else decomposed.module()
        functional = Functional(decomposed, kept) if kept else whole
        spreads = roundings(lambda: run(spec, functional), outputs, is_narrow)
    if not kept and not draws(decomposed):
        check_agreement(spec, outputs, spreads, has_halves(graph))
    return inputs, found, spreads
