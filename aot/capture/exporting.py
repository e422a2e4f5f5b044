"""torch.export of a spec's model: by tracing, and by torch's reading of its code where that fails.

torch.export has two modes. One runs the model on fake tensors (`strict=False`), one has Dynamo read
its Python (`strict=True`). The first takes more models and comes first; the second takes some that
it does not, such as those that change attributes while they run. Models that compute gradients are
traced below autograd in the end (`gradient_tracing.py`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OperatorBase
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram, _trace
from torch.utils._pytree import tree_leaves

from aotc.aot.capture.aliases import without_aliases
from aotc.aot.capture.custom_ops import MEANINGS, Decompositions, base_name
from aotc.aot.capture.decompositions.composites import OF_EXPORT, TAKEN_APART
from aotc.aot.capture.decompositions.lookups import GRADIENTS
from aotc.aot.capture.decompositions.replacing import replaced
from aotc.aot.capture.decompositions.table import arithmetic
from aotc.aot.capture.export_errors import DataReads, export_refusal, is_of_data
from aotc.aot.capture.flex_attention import flex_attention_traced
from aotc.aot.capture.gradient_tracing import (
    check_no_wrappers,
    traced_below_autograd,
    transforms_undone,
)
from aotc.aot.capture.imports.rng import DRAWS, numbering
from aotc.aot.capture.imports.table import ROWS
from aotc.aot.capture.indexing import check_indices, tensor_indices
from aotc.aot.capture.libraries import register_types
from aotc.aot.capture.masked_rows import with_all_rows
from aotc.aot.capture.quantised_ops import quantised_decompositions
from aotc.aot.capture.sizes import with_open_ends
from aotc.aot.capture.source_lines import all_user_frames
from aotc.aot.capture.spec import Spec
from aotc.aot.capture.torch_repairs import ops_listed_once, repair_shapes, rules_of_devices
from aotc.aot.capture.triton_calls import defaults_known
from aotc.aot.capture.user_code import user_line
from aotc.aot.errors import CompileError, KernelNotOnHost, ModelRaised, UnsupportedError


@dataclass(frozen=True, slots=True)
class Exported:
    """A model as torch.export gives it, and the same in core ATen ops."""

    program: ExportedProgram
    decomposed: ExportedProgram
    is_strict: bool = False  # whether torch read the model's code, which is tried second


def exported(spec: Spec, whole: Collection[str]) -> Exported:
    """The spec's model by the first way of torch.export that takes it to core ATen ops.

    Ops named in `whole`, with or without an overload, stay. Raises `ExportFailed` with what the
    first mode met, and `ModelRaised` where the model does not run at all.
    """
    try:
        program = export(spec)
        return Exported(program, decompose(program, spec.decompositions, whole, spec.path))
    except UnsupportedError as refused:
        if spec.module is None or is_of_data(refused) or spec.state_shapes:
            raise
        first = refused
    assert spec.module is not None
    for is_strict, traced in ((True, nullcontext()), (False, traced_below_autograd(spec.module))):
        # The first mode's words are of the model, those of the others of how it is read.
        with suppress(Exception), traced:
            program = export(spec, is_strict)
            decomposed = decompose(program, spec.decompositions, whole, spec.path)
            return Exported(program, decomposed, is_strict)
    raise first from first.__cause__


def export(spec: Spec, is_strict: bool = False) -> ExportedProgram:
    """The spec's model as torch.export sees it; raises `ExportFailed` and `ModelRaised`."""
    repair_shapes()
    if spec.program is not None:
        return spec.program
    assert spec.module is not None
    keywords = dict(spec.keyword_arguments)
    for module in spec.module.modules():
        register_types(module)
    indices = nullcontext() if is_strict else tensor_indices()
    try:
        with (
            all_user_frames(__file__), _no_graphs_printed(), indices, transforms_undone(),
            replaced(OF_EXPORT), _arguments_named(spec, spec.module) as shapes,
        ):  # fmt: skip
            program = torch.export.export(
                spec.module,
                spec.arguments,
                keywords,
                dynamic_shapes=with_open_ends(shapes),
                strict=is_strict,
            )
        _check_constants(program)
    except (Exception, SystemExit) as error:
        with unchanged(list(spec.module.buffers())), DataReads() as reads:
            run(spec, spec.module)  # a model that does not run raises here
        raise export_refusal(error, spec.path, reads.lines, spec.module) from error
    check_indices(program.graph)
    return program


@contextmanager
def _arguments_named(spec: Spec, module: torch.nn.Module) -> Iterator[Any]:
    """`dynamic_shapes` by name with a row for each argument that is given. Inside, what `forward`
    takes as `**named` are parameters of its own: torch takes no rows for others."""
    shapes = spec.dynamic_shapes
    try:
        signature = inspect.signature(module.forward)
    except ValueError:  # of compiled code
        signature = inspect.Signature()
    parameters = list(signature.parameters.values())
    is_open = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
    if not (isinstance(shapes, Mapping) and shapes and is_open):
        yield shapes
        return
    shapes = {**shapes, **(shapes.get(parameters[-1].name) or {})}
    shapes.pop(parameters[-1].name, None)
    named = [name for name in spec.keyword_arguments if name not in signature.parameters]
    kind, forward = inspect.Parameter.KEYWORD_ONLY, module.forward

    def call(*arguments: Any, **others: Any) -> Any:
        return forward(*arguments, **others)

    own = [inspect.Parameter(name, kind) for name in named]
    call.__signature__ = signature.replace(parameters=[*parameters[:-1], *own])  # type: ignore[attr-defined]
    given = inspect.signature(call).bind(*spec.arguments, **spec.keyword_arguments).arguments
    before = vars(module).get("forward")
    module.forward = call
    try:
        yield {**{name: shapes.get(name) for name in given}, **_more(shapes, given)}
    finally:
        del module.forward
        if before is not None:
            module.forward = before


def _more(shapes: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Rows of what is not given, for torch to refuse."""
    return {name: row for name, row in shapes.items() if name not in given and row is not None}


def _check_constants(program: ExportedProgram) -> None:
    """Strict export lets pass what the other mode refuses, and torch then reads memory of none."""
    if any(isinstance(each, FakeTensor) for each in program.constants.values()):
        raise RuntimeError("there is a fake tensor in the exported program's constants")
    if any(getattr(each, "is_meta", False) for each in program.constants.values()):
        raise RuntimeError("there is a tensor without data in the exported program's constants")
    check_no_wrappers(program)


def decompose(
    program: ExportedProgram, own: Decompositions, whole: Collection[str], path: str = "the model"
) -> ExportedProgram:
    """Core ATen ops, those to keep whole, and calls of the model's Triton kernels.

    Raises `ExportFailed` where torch cannot: a decomposition of the user's that fails, an op that
    does not say what it gives. `path` stands in for an unknown line.
    """
    repair_shapes()
    with ops_listed_once(), rules_of_devices(_devices(program.graph)):
        return _decomposed(without_aliases(program), _table(own, whole), path)


def _devices(graph: torch.fx.Graph) -> set[str]:
    """Types of the devices that tensors of a graph are on, and those that any graph may use."""
    values = [node.meta.get("val") for node in graph.nodes]
    tensors = [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]
    return {"cpu", "meta", *(each.device.type for each in tensors)}


def _table(own: Decompositions, whole: Collection[str]) -> dict[OperatorBase, Callable[..., Any]]:
    """How each op is taken apart, but for those to keep whole."""
    table = torch.export.default_decompositions()
    table.update(DRAWS)
    table[torch.ops.aten.copy.default] = _copied
    ours = arithmetic().items()
    table.update({op: row for op, row in ours if base_name(op) not in ROWS or op in GRADIENTS})
    table.update(TAKEN_APART)
    table.update(quantised_decompositions())
    table.update(MEANINGS)
    table.update(own)
    for operator in list(table):
        name = operator.name().removeprefix("aten::")
        if (name in whole or name.partition(".")[0] in whole) and operator not in DRAWS:
            table.pop(operator)
    return table


def _decomposed(
    program: ExportedProgram, table: dict[OperatorBase, Callable[..., Any]], path: str
) -> ExportedProgram:
    try:
        with (
            defaults_known(), all_user_frames(__file__), numbering(), flex_attention_traced(),
            transforms_undone(), replaced(OF_EXPORT),
        ):  # fmt: skip
            found = program.run_decompositions(table, decompose_custom_triton_ops=True)
            return with_all_rows(found)
    except UnsupportedError:
        raise
    except Exception as error:
        raise export_refusal(error, path) from error


def _copied(data: torch.Tensor, source: torch.Tensor, waits: bool = False) -> torch.Tensor:
    """`copy` of a source that has the shape and element type of what it is written to.

    torch.export takes a last `copy` into a buffer for its source, whatever shape and type that has.
    """
    if source.dtype == data.dtype and source.shape == data.shape:
        return NotImplemented  # it stays
    whole = source.to(data.dtype).expand(data.shape)
    apart = whole.clone(
        memory_format=torch.contiguous_format
    )  # that views of `data` can be made of
    return torch.ops.aten.copy.default(data, apart, waits)


def run(spec: Spec, module: Callable[..., Any]) -> Any:
    """What `module` gives for the spec's example; raises `ModelRaised` and `KernelNotOnHost`."""
    try:
        return module(*spec.arguments, **spec.keyword_arguments)
    except CompileError as error:
        source = user_line(error, spec.path)
        raise KernelNotOnHost(detail=error.message, source=source) from error
    except (Exception, SystemExit) as error:
        # What torch says below is of its own code.
        detail, *_ = re.split(r"\n\s*\n(?=from user code:|Set TORCH)", str(error).strip())
        raise ModelRaised(
            kind=type(error).__name__, detail=detail, source=user_line(error, spec.path)
        ) from error


def initialise(spec: Spec) -> None:
    """Run a module once whose lazy parameters have no shape yet, as its first call in eager does.

    Raises what `run` does.
    """
    if spec.module is None:
        return
    tensors = (*spec.module.parameters(), *spec.module.buffers())
    if any(torch.nn.parameter.is_lazy(each) for each in tensors):
        with torch.no_grad():
            run(spec, spec.module)


@contextmanager
def unchanged(buffers: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """The buffers, which hold at the end what they held before: they are the caller's model's."""
    before = [buffer.clone() for buffer in buffers]
    try:
        yield buffers
    finally:
        for buffer, initial in zip(buffers, before, strict=True):
            with writing_to(buffer):
                buffer.copy_(initial)


def writing_to(tensor: torch.Tensor) -> AbstractContextManager[object]:
    """Where a tensor may be written: those that inference mode made only inside of it."""
    return torch.inference_mode() if tensor.is_inference() else nullcontext()


@contextmanager
def _no_graphs_printed() -> Iterator[None]:
    """torch prints the graph so far when a refusal depends on data; our error names the line."""
    vars(_trace)["print"] = lambda *words, **options: None
    try:
        yield
    finally:
        del vars(_trace)["print"]
