"""Loads SPEC: a model and its example inputs from a file, a module or an exported program.

Models are always exported in eval mode: dropout is off and batch norm uses its running statistics.
The random state is seeded before the user's code runs, so that a spec which draws its weights
gives the same bundle each time.
"""

from __future__ import annotations

import importlib
import inspect
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, MethodType, ModuleType
from typing import Any

import torch
from torch._dynamo.eval_frame import OptimizedModule
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from aotc.aot.capture.custom_ops import Decompositions, decompositions_of
from aotc.aot.capture.user_code import guarded, import_file, import_module
from aotc.aot.entry_points import EntryPoint
from aotc.aot.errors import (
    ExportedFileInvalid,
    SpecEntriesInvalid,
    SpecFileMissing,
    SpecInputsInvalid,
    SpecInputsMissing,
    SpecModelInvalid,
    SpecModelMissing,
    SpecStatesInvalid,
    SpecTensorsEmpty,
)
from aotc.aot.spec_form import spec_not_understood
from aotc.runtime.bundle.manifest import MAIN
from aotc.runtime.bundle.plan_parts import ENTRIES_LIMIT
from aotc.runtime.bundle.schema import is_symbol
from aotc.runtime.programs.program import Program, Session

SEED = 0
OF_MODULES = "a module or `build_model`: an exported program has its buffers' sizes already"


@dataclass(frozen=True, slots=True)
class Spec:
    """A model with the arguments it is exported for. One of `module` and `program` is set."""

    name: str  # short name for messages and the bundle's provenance
    path: str  # what the user named: a file or a module
    arguments: tuple[Any, ...]
    keyword_arguments: Mapping[str, Any]
    module: torch.nn.Module | None = None
    program: ExportedProgram | None = None
    decompositions: Decompositions = field(default_factory=dict)  # of ops of the user's
    dynamic_shapes: Any = None  # in the words of torch.export
    # Buffers by their qualified names, the dims of each that vary: {"keys": {2: Dim("length")}}.
    state_shapes: Mapping[str, Any] = field(default_factory=dict)
    entry: str = MAIN  # the name of the entry point that it is

    def leaves(self) -> tuple[list[Any], pytree.TreeSpec]:
        """What the arguments hold, one after the other, and how it nests."""
        return pytree.tree_flatten((self.arguments, dict(self.keyword_arguments)))

    def tensors(self) -> list[torch.Tensor]:
        """The tensors among it."""
        return [leaf for leaf in self.leaves()[0] if isinstance(leaf, torch.Tensor)]


class FunctionModule(torch.nn.Module):
    """A plain function as a module, since torch.export takes nothing else."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function if _has_signature(function) else _of_positions(function)


def _has_signature(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function)
    except ValueError:  # compiled code, such as `torch.relu`, has none
        return False
    return True


def _of_positions(function: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*arguments: Any) -> Any:
        return function(*arguments)

    return forward


def load_spec(text: str, entry: str | None = None) -> Spec:
    """The one spec that `text` names, or that of an entry point of it.

    Raises `SpecEntriesInvalid` where there are several and none was named.
    """
    found = [each for each in load_specs(text) if entry in (None, each.entry)]
    if len(found) != 1:
        names = ", ".join(f"`{spec.entry}`" for spec in found)
        expected = "one model" if entry is None else f"`{entry}` among them"
        raise SpecEntriesInvalid(
            path=text, found=f"the entries {names or 'others'}", expected=expected
        )
    return found[0]


def load_specs(text: str) -> tuple[Spec, ...]:
    """The specs that `text` names, one an entry point: `FILE.py[:NAME]`, `PACKAGE.MODULE:NAME` or
    `FILE.pt2`.

    Raises a `SpecError` for whatever is wrong with it.
    """
    location, _, name = text.partition(":")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        if location.endswith(".pt2") and not name:
            return (_load_exported(Path(location)),)
        if location.endswith(".py"):
            module = import_file(Path(location))
        elif name and all(part.isidentifier() for part in location.split(".")):
            module = import_module(location)
        else:
            raise spec_not_understood(text)
        return _from_module(module, location, name)


@contextmanager
def as_it_trains(model: Any) -> Iterator[None]:
    """Afterwards each module trains or does not as before; specs set their models to eval mode."""
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    were_training = [(each, each.training) for each in modules]
    try:
        yield
    finally:
        for module, is_training in were_training:
            module.training = is_training


def spec_of(
    model: Any,
    example_inputs: Any,
    path: str = "the model",
    dynamic_shapes: Any = None,
    state_shapes: Any = None,
) -> Spec:
    """A spec of a live model (module, function or exported program) and its example inputs.

    `dynamic_shapes` names its dims that vary, `state_shapes` those of buffers that it changes; an
    exported program has its own, and without example inputs (None) those that it was exported
    with. Raises `SpecModelInvalid`, `SpecInputsInvalid` and `SpecStatesInvalid`.
    """
    if isinstance(model, ExportedProgram):
        if state_shapes:
            raise SpecStatesInvalid(path=path, found="an exported program", expected=OF_MODULES)
        return _of_program(model, example_inputs, path)
    module = _as_module(model, "model", path)
    arguments, keyword_arguments = _as_arguments(example_inputs)
    _check_fit(module, arguments, keyword_arguments)
    _check_memory(module, arguments, keyword_arguments)
    return Spec(
        Path(path).stem,
        path,
        arguments,
        keyword_arguments,
        module.eval(),
        dynamic_shapes=dynamic_shapes,
        state_shapes=_state_shapes(module, state_shapes, path),
    )


def _state_shapes(module: torch.nn.Module, shapes: Any, path: str) -> dict[str, Any]:
    """What a spec says of its buffers' dims; raises `SpecStatesInvalid`."""
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping):
        raise SpecStatesInvalid(path=path, found=_kind(shapes), expected="a dict by buffer names")
    buffers = dict(module.named_buffers(remove_duplicate=False))
    for name, dims in shapes.items():
        if name not in buffers:
            known = ", ".join(f"`{each}`" for each in list(buffers)[:8]) or "none"
            raise SpecStatesInvalid(path=path, found=f"`{name}`", expected=f"a buffer: {known}")
        rank = buffers[name].dim()
        if not isinstance(dims, Mapping | list | tuple) or any(
            not isinstance(axis, int) or not 0 <= axis < rank
            for axis in (dims if isinstance(dims, Mapping) else range(len(dims)))
        ):
            expected = f"dims by axis, of a buffer of {rank} dims"
            raise SpecStatesInvalid(path=path, found=f"`{name}`: {dims!r}", expected=expected)
    return {name: dims for name, dims in shapes.items() if dims}


def _of_program(program: ExportedProgram, example_inputs: Any, path: str) -> Spec:
    given = program.example_inputs if example_inputs is None else _as_arguments(example_inputs)
    if given is None:
        raise SpecInputsMissing(path=path)
    return Spec(Path(path).stem, path, tuple(given[0]), given[1], program=program)


def has_host_kernels(spec: Spec) -> bool:
    """Whether Triton kernels behind ops may be launched for the model, on tensors of the host."""
    from torch._library.triton import triton_ops_to_kernels

    program: Any = spec.program
    state = program.state_dict if spec.module is None else spec.module.state_dict()
    tensors = (*spec.tensors(), *state.values())
    is_here = all(each.is_cpu for each in tensors if isinstance(each, torch.Tensor))
    return bool(triton_ops_to_kernels) and is_here


def _from_module(module: ModuleType, path: str, name: str) -> tuple[Spec, ...]:
    entries = _given(module, "entry_points", path)
    model = None
    if entries is None or any(not _program_of(each) for each in _rows(entries, path).values()):
        model = _find_model(module, path, name)
    example = shapes = None
    if entries is None:
        example = _given(module, "example_inputs", path)
        shapes = _given(module, "dynamic_shapes", path)
    states = _given(module, "state_shapes", path)
    decompositions = getattr(module, "decompositions", {})
    return specs_of(model, example, path, shapes, states, entries, decompositions)


def specs_of(
    model: Any,
    example_inputs: Any,
    path: str,
    dynamic_shapes: Any = None,
    state_shapes: Any = None,
    entry_points: Any = None,
    decompositions: Any = MappingProxyType({}),
) -> tuple[Spec, ...]:
    """The specs of a live model, one an entry point; `path` stands for it in messages.

    Raises what `spec_of` does, `SpecInputsMissing`, `SpecEntriesInvalid` and
    `SpecDecompositionsInvalid`.
    """
    own = decompositions_of(decompositions, path)
    if entry_points is not None:
        found = entry_specs(model, _rows(entry_points, path), path, state_shapes)
    elif example_inputs is None and not isinstance(model, ExportedProgram):
        raise SpecInputsMissing(path=path)
    else:
        found = (spec_of(model, example_inputs, path, dynamic_shapes, state_shapes),)
    return tuple(replace(each, decompositions=own) for each in found)


def _given(module: ModuleType, name: str, path: str) -> Any:
    """What a spec file says by a name, itself or by a function; None where it says nothing."""
    found = getattr(module, name, None)
    return guarded(found, path, f"`{name}()` ran") if callable(found) else found


def _rows(entries: Any, path: str) -> dict[str, EntryPoint]:
    """The entry points by name; raises `SpecEntriesInvalid`."""
    if not isinstance(entries, Mapping) or not entries:
        found = "no entry" if isinstance(entries, Mapping) else _kind(entries)
        raise SpecEntriesInvalid(path=path, found=found, expected="a dict of them by name")
    if len(entries) > ENTRIES_LIMIT:
        raise SpecEntriesInvalid(
            path=path, found=f"{len(entries)} entries", expected=f"at most {ENTRIES_LIMIT}"
        )
    rows = {}
    for name, entry in entries.items():
        if not isinstance(name, str) or not name.isidentifier() or not is_symbol(name):
            expected = "names as of Python's functions"
            raise SpecEntriesInvalid(path=path, found=f"the name {name!r}", expected=expected)
        if name.startswith("_") or hasattr(Program, name) or hasattr(Session, name):
            expected = "names that programs and sessions have no use for"
            raise SpecEntriesInvalid(path=path, found=f"the name `{name}`", expected=expected)
        try:
            rows[name] = EntryPoint(**entry) if isinstance(entry, Mapping) else entry
        except TypeError as error:
            raise SpecEntriesInvalid(
                path=path, found=f"`{name}` with other fields", expected=str(error)
            ) from None
        if not isinstance(rows[name], EntryPoint):
            found = f"`{name}`: {_kind(entry)}"
            raise SpecEntriesInvalid(path=path, found=found, expected="an `EntryPoint`")
    return rows


def _program_of(entry: EntryPoint) -> bool:
    return entry.program is not None


def entry_specs(
    model: Any, entries: Mapping[str, EntryPoint], path: str, state_shapes: Any = None
) -> tuple[Spec, ...]:
    """A spec of each entry point of a live model; raises what `spec_of` does and
    `SpecEntriesInvalid`."""
    found = []
    for name, entry in entries.items():
        callee = entry.program if _program_of(entry) else _entry_model(model, name, entry, path)
        if entry.example_inputs is None and not isinstance(callee, ExportedProgram):
            raise SpecEntriesInvalid(
                path=path, found=f"`{name}` without inputs", expected="`example_inputs` of its own"
            )
        shapes = state_shapes if entry.state_shapes is None else entry.state_shapes
        own = None if _program_of(entry) else shapes
        spec = spec_of(callee, entry.example_inputs, path, entry.dynamic_shapes, own)
        found.append(replace(spec, entry=name))
    return tuple(found)


def _entry_model(model: Any, name: str, entry: EntryPoint, path: str) -> Any:
    """The model with what the entry calls as its `forward`: the same parameters and buffers, by
    the same names. What is called gets the model itself, whose own `forward` it may call."""
    if not isinstance(model, torch.nn.Module):
        raise SpecModelInvalid(name="model", path=path, found=_kind(model))
    if entry.function is not None:
        function = entry.function
    else:
        method = entry.method or (name if callable(getattr(model, name, None)) else "forward")
        function = getattr(type(model), method, None)
        if not callable(function):
            found = f"`{name}` with the method `{method}`"
            expected = f"one of {type(model).__name__}"
            raise SpecEntriesInvalid(path=path, found=found, expected=expected)
    twin = copy(model)  # its dicts of parameters, buffers and modules are the model's own
    twin.__dict__["forward"] = MethodType(function, model)
    return twin


def _find_model(module: ModuleType, path: str, name: str) -> Any:
    wanted = name or next((n for n in ("model", "build_model") if hasattr(module, n)), "model")
    if not hasattr(module, wanted):
        raise SpecModelMissing(path=path, name=wanted)
    found = getattr(module, wanted)
    if wanted.startswith("build_") and inspect.isfunction(found):
        return guarded(found, path, f"`{wanted}()` ran")
    return found


def _as_module(model: Any, name: str, path: str) -> torch.nn.Module:
    """What is compiled: of what `torch.compile` gave, what it was given."""
    if isinstance(model, OptimizedModule):
        model = model._orig_mod
    if isinstance(model, torch.nn.Module):
        return model
    if callable(model) and not inspect.isclass(model):
        return FunctionModule(getattr(model, "_torchdynamo_orig_callable", model))
    raise SpecModelInvalid(name=name, path=path, found=_kind(model))


def _kind(value: Any) -> str:
    return f"class {value.__name__}" if inspect.isclass(value) else type(value).__name__


def _as_arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, tuple | list):
        return tuple(example), {}
    return (example,), {}


def _check_fit(
    module: torch.nn.Module, arguments: tuple[Any, ...], keyword_arguments: Mapping[str, Any]
) -> None:
    try:
        signature = inspect.signature(module.forward)
    except ValueError:  # compiled code, such as TorchScript's, has none
        return
    try:
        signature.bind(*arguments, **keyword_arguments)
    except TypeError as error:
        inner = module.forward if isinstance(module, FunctionModule) else None
        callee = inner.__name__ if inspect.isfunction(inner) else f"{type(module).__name__}.forward"
        raise SpecInputsInvalid(
            callee=callee, signature=_names_of(signature), detail=str(error)
        ) from None


def _check_memory(
    module: torch.nn.Module, arguments: tuple[Any, ...], keyword_arguments: Mapping[str, Any]
) -> None:
    named = [*module.named_parameters(), *module.named_buffers()]
    leaves = pytree.tree_leaves((arguments, dict(keyword_arguments)))
    named += [(f"argument {place}", leaf) for place, leaf in enumerate(leaves)]
    empty = [name for name, each in named if isinstance(each, torch.Tensor) and each.is_meta]
    if empty:
        raise SpecTensorsEmpty(names=", ".join(f"`{name}`" for name in empty[:8]))


def _names_of(signature: inspect.Signature) -> str:
    return f"({', '.join(signature.parameters)})"


# Modules that define ops, by the namespaces of these.
OP_MODULES = {
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torchao": "torchao",
    "torchvision": "torchvision",
}
_OP = re.compile(rb"torch\.ops\.(\w+)\.\w+")


def _import_ops(path: Path) -> list[str]:
    """Imports what defines the ops of an exported program; the namespaces that stay unknown."""
    try:
        with zipfile.ZipFile(path) as archive:
            texts = [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
    except Exception:  # whatever is wrong with the file, torch says it
        return []
    named = {found.decode() for text in texts for found in _OP.findall(text)}
    for namespace in named & OP_MODULES.keys():
        with suppress(Exception):  # a library for another torch raises what it likes
            importlib.import_module(OP_MODULES[namespace])
    known = {name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names()}
    return sorted(named - known - {"higher_order"})


def _load_exported(path: Path) -> Spec:
    if not path.is_file():
        raise SpecFileMissing(path=str(path))
    unknown = _import_ops(path)
    try:
        program = torch.export.load(path)
    except Exception as error:
        detail = str(error).strip().split("\n")[0]
        if unknown:
            detail = f"the library of its ops `{', '.join(unknown)}` is not imported: {detail}"
        raise ExportedFileInvalid(path=str(path), detail=detail) from error
    if program.example_inputs is None:
        raise ExportedFileInvalid(path=str(path), detail="it has no example inputs")
    arguments, keyword_arguments = program.example_inputs
    return Spec(path.stem, str(path), arguments, keyword_arguments, program=program)


def with_distinct_inputs(spec: Spec) -> Spec:
    """The spec with a copy of each tensor that shares memory with one before it, or with what the
    model holds."""
    leaves, layout = spec.leaves()
    taken = set() if spec.module is None else _held(spec.module)
    is_changed = False
    for place, leaf in enumerate(leaves):
        if not _is_plain(leaf):
            continue
        memory = leaf.untyped_storage()._cdata
        if memory in taken:
            leaves[place] = leaf.detach().clone()
            is_changed = True
        taken.add(memory)
    if not is_changed:
        return spec
    arguments, named = pytree.tree_unflatten(leaves, layout)
    return replace(spec, arguments=tuple(arguments), keyword_arguments=named)


def _held(module: torch.nn.Module) -> set[int]:
    held = (*module.parameters(), *module.buffers())
    return {tensor.untyped_storage()._cdata for tensor in held if _is_plain(tensor)}


def _is_plain(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided
