"""Loads SPEC: a model and its example inputs from a file, a module or an exported program.

Models are always exported in eval mode: dropout is off and batch norm uses its running statistics.
The random state is seeded before the user's code runs, so that a spec which draws its weights
gives the same bundle each time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from aotc.aot.capture.custom_ops import Decompositions, decompositions_of
from aotc.aot.capture.user_code import guarded, import_file, import_module
from aotc.aot.errors import (
    ExportedFileInvalid,
    SpecFileMissing,
    SpecInputsInvalid,
    SpecInputsMissing,
    SpecModelInvalid,
    SpecModelMissing,
    SpecNotUnderstood,
    SpecStatesInvalid,
    SpecTensorsEmpty,
)

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
        self.forward = function


def load_spec(text: str) -> Spec:
    """The spec that `text` names: `FILE.py[:NAME]`, `PACKAGE.MODULE:NAME` or `FILE.pt2`.

    Raises a `SpecError` for whatever is wrong with it.
    """
    location, _, name = text.partition(":")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        if location.endswith(".pt2") and not name:
            return _load_exported(Path(location))
        if location.endswith(".py"):
            module = import_file(Path(location))
        elif name and all(part.isidentifier() for part in location.split(".")):
            module = import_module(location)
        else:
            raise SpecNotUnderstood(spec=text)
        return _from_module(module, location, name)


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

    state: Any = spec.module.state_dict() if spec.module else spec.program.state_dict
    tensors = (*spec.tensors(), *state.values())
    is_here = all(each.is_cpu for each in tensors if isinstance(each, torch.Tensor))
    return bool(triton_ops_to_kernels) and is_here


def _from_module(module: ModuleType, path: str, name: str) -> Spec:
    model = _find_model(module, path, name)
    if not hasattr(module, "example_inputs") and not isinstance(model, ExportedProgram):
        raise SpecInputsMissing(path=path)
    example = getattr(module, "example_inputs", None)
    if callable(example):
        example = guarded(example, path, "`example_inputs()` ran")
    shapes = getattr(module, "dynamic_shapes", None)
    if callable(shapes):
        shapes = guarded(shapes, path, "`dynamic_shapes()` ran")
    states = getattr(module, "state_shapes", None)
    if callable(states):
        states = guarded(states, path, "`state_shapes()` ran")
    decompositions = decompositions_of(getattr(module, "decompositions", {}), path)
    return replace(spec_of(model, example, path, shapes, states), decompositions=decompositions)


def _find_model(module: ModuleType, path: str, name: str) -> Any:
    wanted = name or next((n for n in ("model", "build_model") if hasattr(module, n)), "model")
    if not hasattr(module, wanted):
        raise SpecModelMissing(path=path, name=wanted)
    found = getattr(module, wanted)
    if wanted.startswith("build_") and inspect.isfunction(found):
        return guarded(found, path, f"`{wanted}()` ran")
    return found


def _as_module(model: Any, name: str, path: str) -> torch.nn.Module:
    if isinstance(model, torch.nn.Module):
        return model
    if callable(model) and not inspect.isclass(model):
        return FunctionModule(model)
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


def _load_exported(path: Path) -> Spec:
    if not path.is_file():
        raise SpecFileMissing(path=str(path))
    try:
        program = torch.export.load(path)
    except Exception as error:
        detail = str(error).strip().split("\n")[0]
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
