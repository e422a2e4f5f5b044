"""The nesting of the model's arguments and result, as a plain structure for the runtime.

Containers are those of torch's pytrees, in their order: dicts, tuples, lists, named tuples,
dataclasses and whatever a library registered, such as the outputs of transformers.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, OutputKind
from torch.utils import _pytree as pytree

from aotc.aot.capture.imports.rng import SEED_NAME, first_free
from aotc.aot.capture.spec import Spec
from aotc.aot.errors import StructureUnsupported
from aotc.aot.ir.graph import Graph
from aotc.runtime.bundle.schema import NAME_LENGTH
from aotc.runtime.bundle.structure import LEAVES, Part, Structure

FIXED = {type(None): "none", bool: "bool", int: "int", float: "float", str: "text"}
TEXT_LENGTH = 1024


def structure_of(spec: Spec, program: ExportedProgram, draws: bool = False) -> Structure:
    """The trees of arguments and result; None for a plain one.

    A program that `draws` takes a seed after its other inputs. Raises `StructureUnsupported` for a
    value that a bundle cannot take or give.
    """
    values = [*spec.arguments, *spec.keyword_arguments.values()]
    names = _parameter_names(spec, program)
    inputs = None
    if len(names) != len(values) and any(map(_holds_complex, values)):
        names = [f"argument_{place}" for place in range(len(values))]
    if len(names) == len(values):
        inputs = _Walker().keyed("dict", None, zip(names, values, strict=True), "")
    if draws:
        inputs = _with_seed(inputs, len(values))
    outputs = _Walker().part(_result(program), "the result")
    return Structure(
        None if inputs is None or _is_plain(inputs.parts) else inputs,
        None if _is_plain_result(outputs) else outputs,
    )


def _holds_complex(value: Any) -> bool:
    leaves = pytree.tree_leaves(value)
    return any(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in leaves)


def _with_seed(inputs: Part | None, count: int) -> Part:
    """The tree of the arguments with the seed, which a caller may leave out, as the last one."""
    if inputs is None:
        keys = [f"argument_{place}" for place in range(count)]
        inputs = Part("dict", None, keys, [Part("array", place) for place in range(count)])
    place = sum(1 for _ in inputs.leaves())
    keys = (*inputs.keys, first_free(SEED_NAME, inputs.keys))
    return Part("dict", None, keys, (*inputs.parts, Part("seed", place)))


def named_outputs(graph: Graph, root: Part | None) -> Graph:
    """`graph` with its outputs named by their paths in the result."""
    names = _output_names(root, len(graph.returned))
    return replace(graph, output_names=(*names, *graph.output_names[len(names) :]))


def _result(program: ExportedProgram) -> Any:
    """What the model returns, with fake tensors."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    leaves = [
        spec.arg.value if isinstance(spec.arg, ConstantArgument) else values[spec.arg.name]
        for spec in program.graph_signature.output_specs
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    return pytree.tree_unflatten(leaves, program.call_spec.out_spec)


def _output_names(root: Part | None, count: int) -> tuple[str, ...]:
    """A name for each output: its path in the result, `output_N` at the root of a sequence."""
    numbered = tuple(f"output_{place}" for place in range(count))
    if root is None:
        return numbered
    found = dict(_paths(root, ()))
    names = [found[place] for place in range(count)]
    counts = Counter(names)
    fits = all(0 < len(name) <= NAME_LENGTH and counts[name] == 1 for name in names)
    return tuple(names) if fits else numbered


def _paths(part: Part, path: tuple[str, ...]) -> Iterable[tuple[int, str]]:
    if part.kind in LEAVES:
        yield part.value, ".".join(path) or "output_0"
    labels = part.keys or tuple(map(str, range(len(part.parts))))
    for label, below in zip(labels, part.parts, strict=True):
        is_numbered = not path and not part.keys
        yield from _paths(below, (*path, f"output_{label}" if is_numbered else label))


def _is_plain(parts: Sequence[Part]) -> bool:
    return all(part.kind == "array" for part in parts)


def _is_plain_result(part: Part) -> bool:
    is_tuple = part.kind == "tuple" and len(part.parts) > 1 and _is_plain(part.parts)
    return part.kind == "array" or is_tuple


def _parameter_names(spec: Spec, program: ExportedProgram) -> list[str]:
    """Names of the arguments in their order; fewer where nobody knows them."""
    if spec.module is None:
        return list(program.module_call_graph[0].signature.forward_arg_names or ())  # type: ignore[union-attr]
    named = list(spec.keyword_arguments)
    bound = inspect.signature(spec.module.forward).bind_partial(*spec.arguments)
    positional: list[str] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            positional += [f"{name}_{place}" for place in range(len(value))]
        else:
            positional.append(name)
    return [*positional, *named]


class _Walker:
    """Makes parts in the order in which torch flattens, counting arrays."""

    def __init__(self) -> None:
        self.count = 0

    def part(self, value: Any, name: str) -> Part:
        """The tree of one value; `name` is its path."""
        if isinstance(value, torch.Tensor):
            self.count += 1
            return Part("complex" if value.is_complex() else "array", self.count - 1)
        if type(value) in FIXED:
            return self._fixed(value, name)
        node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
        if node is None:
            raise _refused(name, type(value).__name__)
        if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
            kind = "list" if isinstance(value, list) else "tuple"
            parts = [self.part(item, f"{name}.{place}") for place, item in enumerate(value)]
            return Part(kind, parts=parts)
        return self._library(value, node, name)

    def keyed(
        self, kind: str, type_name: str | None, items: Iterable[tuple[Any, Any]], name: str
    ) -> Part:
        """A container with keys."""
        keys, parts = [], []
        for key, value in items:
            label = f"{name}.{key}" if name else str(key)
            is_key = isinstance(key, str) and key.isprintable() and 0 < len(key) <= NAME_LENGTH
            if not is_key:
                raise _refused(name, f"{type(value).__name__} at {key!r}")
            keys.append(key)
            parts.append(self.part(value, label))
        return Part(kind, type_name, keys, parts)

    def _fixed(self, value: Any, name: str) -> Part:
        if isinstance(value, str) and (len(value) > TEXT_LENGTH or not value.isprintable()):
            raise _refused(name, "text that is long or not printable")
        return Part(FIXED[type(value)], value)

    def _library(self, value: Any, node: Any, name: str) -> Part:
        kind = type(value).__name__[:NAME_LENGTH]
        if isinstance(value, tuple):
            return self.keyed("named_tuple", kind, zip(value._fields, value, strict=True), name)
        if isinstance(value, Mapping):
            is_plain = type(value).__module__ in ("builtins", "collections")
            names = ("dict", None) if is_plain else ("record", kind)
            return self.keyed(*names, value.items(), name)
        if node.flatten_with_keys_fn is None:
            raise _refused(name, type(value).__name__)
        pairs, _ = node.flatten_with_keys_fn(value)
        items = [(_label(key), below) for key, below in pairs]
        if all(isinstance(label, int) for label, _ in items):
            parts = [self.part(below, f"{name}.{label}") for label, below in items]
            return Part("tuple", parts=parts)
        return self.keyed("record", kind, items, name)


def _refused(name: str, found: str) -> StructureUnsupported:
    return StructureUnsupported(name=name, found=found, containers="dicts, lists or tuples")


def _label(key: Any) -> Any:
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return getattr(key, attribute)
    return key
