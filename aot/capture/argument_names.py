"""What the inputs of an exported program are called: as the model's arguments, whose names
torch.export writes in small letters, and with a number where two of them are then alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree

from aotc.runtime.bundle.schema import NAME_LENGTH


def argument_paths(program: ExportedProgram) -> Mapping[str, str]:
    """The path of each argument by its placeholder: `batch_Image` for `Image` of the dict `batch`.
    Placeholders stand for themselves where torch does not say what the arguments are called."""
    specs = [
        spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT
    ]
    placeholders = [spec.arg.name for spec in specs]
    paths = _paths(program)
    if len(paths) != len(placeholders):
        paths = placeholders
    return {
        spec.arg.name: path
        for spec, path in zip(specs, paths, strict=True)
        if not isinstance(spec.arg, ConstantArgument)
    }


def input_names(program: ExportedProgram) -> Mapping[str, str]:
    """The name of each input by its placeholder: its path, if that is a name and no other's."""
    paths = argument_paths(program)
    taken = Counter(paths.values())
    taken.update(
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind is not InputKind.USER_INPUT
    )
    names = {
        placeholder: path
        if path.isidentifier() and len(path) <= NAME_LENGTH and taken[path] == 1
        else placeholder
        for placeholder, path in paths.items()
    }
    is_unique = len(set(names.values())) == len(names)
    return names if is_unique else {placeholder: placeholder for placeholder in paths}


def identifier(name: str) -> str:
    """A key of the user's as a part of a name."""
    return re.sub(r"\W", "_", name)


def _paths(program: ExportedProgram) -> list[str]:
    nesting: Any = program.call_spec.in_spec
    signature = program.module_call_graph[0].signature
    names = list(signature.forward_arg_names or ()) if signature is not None else []
    if nesting is None:
        return []
    arguments, keywords = pytree.tree_unflatten(range(nesting.num_leaves), nesting)
    names = names[: len(arguments)]
    if len(names) != len(arguments):
        return []
    leaves, _ = pytree.tree_flatten_with_path((dict(zip(names, arguments, strict=True)), keywords))
    ordered = sorted((leaf, path[1:]) for path, leaf in leaves)
    return ["_".join(identifier(_key(key)) for key in path) for _, path in ordered]


def _key(key: Any) -> str:
    return str(next(getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name)))
