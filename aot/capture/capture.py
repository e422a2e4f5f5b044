"""The stage `capture`: Spec → Graph, with golden inputs and outputs of the exported module."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram, _trace
from torch.utils import _pytree as pytree

from aotc.aot.capture.custom_ops import Decompositions
from aotc.aot.capture.exported import import_program
from aotc.aot.capture.fallback import CHECKED_WHOLE, TorchOp, torch_ops, warn_of
from aotc.aot.capture.golden import golden_tensors, has_halves, roundings
from aotc.aot.capture.importer import to_array
from aotc.aot.capture.kernels import defaults_known
from aotc.aot.capture.libraries import register_types
from aotc.aot.capture.probes import Probe, probes
from aotc.aot.capture.refusals import export_refusal
from aotc.aot.capture.sizes import sizes_of
from aotc.aot.capture.sources import all_user_frames
from aotc.aot.capture.spec import Spec, user_line
from aotc.aot.capture.structure import named_outputs, structure_of
from aotc.aot.capture.table import KEPT_WHOLE
from aotc.aot.errors import CompileError, KernelNotOnHost, ModelRaised, StateUnsupported
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


def capture(spec: Spec, fallback: bool = False) -> Captured:
    """The spec's model as a graph and its golden numbers.

    With `fallback`, ops that cannot be compiled are left to torch, and a `FallbackWarning` names
    them. Raises `ModelRaised` when the model does not run on its inputs, and an
    `UnsupportedError` when it runs but cannot be compiled.
    """
    with torch.no_grad(), quiet_settings():
        program = export(spec)
        arguments = (spec.arguments, spec.keyword_arguments)
        sizes = sizes_of(program, spec.dynamic_shapes, arguments)
        whole = (*KEPT_WHOLE, *CHECKED_WHOLE) if fallback else KEPT_WHOLE
        decomposed = decompose(program, spec.decompositions, whole)
        graph, asserted = import_program(decomposed, program, sizes, fallback)
        structure = structure_of(spec, program)
        left = torch_ops(graph)
        kept = [state.name for state in graph.states]
        if kept and left:
            names = ", ".join(f"`{name}`" for name in kept)
            raise StateUnsupported(names=names, other="ops that torch runs")
        golden_inputs, golden_outputs, roundings_of = _golden(spec, program, decomposed, graph)
        guards = tuple(dict.fromkeys((*sizes.guards, *asserted)))
        model = program.module() if spec.module is None else spec.module
        others = probes(spec, model, graph, sizes.dims, guards)
    graph = named_outputs(graph, structure.outputs)
    warn_of_weights(program.state_dict, program.graph_signature.parameters)
    warn_of(left)
    check(graph, "capture")
    is_tf32 = torch.backends.cuda.matmul.fp32_precision == "tf32"
    precision = "tf32" if is_tf32 else "ieee"
    golden = (golden_inputs, golden_outputs, structure, roundings_of)
    known = (sizes.dims, guards, sizes.specialised, left, others)
    return Captured(spec.name, graph, *golden, precision, *known)


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


def export(spec: Spec) -> ExportedProgram:
    """The spec's model as torch.export sees it; raises `ExportFailed` and `ModelRaised`."""
    if spec.program is not None:
        return spec.program
    assert spec.module is not None
    keywords = dict(spec.keyword_arguments)
    for module in spec.module.modules():
        register_types(module)
    try:
        with all_user_frames(__file__), _no_graphs_printed():
            return torch.export.export(
                spec.module,
                spec.arguments,
                keywords,
                dynamic_shapes=spec.dynamic_shapes,
                strict=False,
            )
    except Exception as error:
        _raise_if_model_fails(spec)
        raise export_refusal(error, spec.path) from error


@contextmanager
def _no_graphs_printed() -> Iterator[None]:
    """torch prints the graph so far when a refusal depends on data; our error names the line."""
    vars(_trace)["print"] = lambda *words, **options: None
    try:
        yield
    finally:
        del vars(_trace)["print"]


def _raise_if_model_fails(spec: Spec) -> None:
    """Tell a model that does not run at all from one that torch.export cannot take."""
    assert spec.module is not None
    _run(spec, spec.module)


def _run(spec: Spec, module: torch.nn.Module) -> Any:
    try:
        return module(*spec.arguments, **spec.keyword_arguments)
    except CompileError as error:
        source = user_line(error, spec.path)
        raise KernelNotOnHost(detail=error.message, source=source) from error
    except Exception as error:
        raise ModelRaised(
            kind=type(error).__name__,
            detail=str(error).strip(),
            source=user_line(error, spec.path),
        ) from error


class WeightWarning(UserWarning):
    """A weight holds numbers that no trained model has."""


def warn_of_weights(state: Mapping[str, torch.Tensor], parameters: Collection[str]) -> None:
    """Say which weights are not finite; a buffer may hold infinities, as masks do."""
    for name, tensor in state.items():
        if not tensor.is_floating_point():
            continue
        is_weight = name in parameters
        wrong = ~tensor.isfinite() if is_weight else tensor.isnan()
        count = int(wrong.sum())
        if count:
            kind = "not finite" if is_weight else "not a number"
            elements = f"{count} of {tensor.numel()} elements"
            warnings.warn(f"weight `{name}` is {kind}: {elements}", WeightWarning, stacklevel=2)


def decompose(
    program: ExportedProgram, own: Decompositions, whole: Collection[str]
) -> ExportedProgram:
    """Core ATen ops, those to keep whole, and calls of the model's Triton kernels."""
    table = torch.export.default_decompositions()
    table.update(own)
    for operator in list(table):
        name = operator.name().removeprefix("aten::").partition(".")[0]
        if name in whole:
            table.pop(operator)
    with defaults_known():
        return program.run_decompositions(table, decompose_custom_triton_ops=True)


def _golden(
    spec: Spec, program: ExportedProgram, decomposed: ExportedProgram, graph: Graph
) -> tuple[tuple[Array, ...], tuple[Array, ...], tuple[float, ...]]:
    """Inputs, outputs, and how far roundings carry each output.

    What the graph's states hold after the first call follows the outputs. How far roundings carry
    is not known of a model that has some, since a call in wider floats would change others.
    """
    kept = [state.name for state in graph.states]
    leaves = pytree.tree_leaves((spec.arguments, dict(spec.keyword_arguments)))
    inputs = tuple(to_array(leaf).copy() for leaf in leaves if isinstance(leaf, torch.Tensor))
    module = program.module()
    with _unchanged([module.get_buffer(name) for name in kept]) as buffers:
        outputs = (*golden_tensors(lambda: _run(spec, module)), *buffers)
        found = tuple(to_array(tensor).copy() for tensor in outputs)
    spreads = (0.0,) * len(outputs)
    if not kept:
        with suppress(ModelRaised):  # an op does not take what was widened
            is_narrow = has_halves(graph)
            functional = module if is_narrow else decomposed.module()  # nothing is written into
            spreads = roundings(lambda: _run(spec, functional), outputs, is_narrow)
    return inputs, found, spreads


@contextmanager
def _unchanged(buffers: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """The buffers, which hold at the end what they held before: they are the caller's model's."""
    before = [buffer.clone() for buffer in buffers]
    try:
        yield buffers
    finally:
        for buffer, initial in zip(buffers, before, strict=True):
            buffer.copy_(initial)
