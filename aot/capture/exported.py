"""Converts exported programs to graphs: inputs, weights and mutable state by the signature."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from aotc.aot.capture import data_numbers
from aotc.aot.capture.aliases import has_plain_memory, without_aliases
from aotc.aot.capture.argument_names import input_names
from aotc.aot.capture.data_shapes import OF_DATA
from aotc.aot.capture.exporting import decompose
from aotc.aot.capture.importer import TOKEN, Importer, to_array
from aotc.aot.capture.imports.call import NotSupported, type_of
from aotc.aot.capture.imports.complexes import Complex, parts_beside
from aotc.aot.capture.imports.distinct import DISTINCT
from aotc.aot.capture.imports.float8 import Float8, at_end
from aotc.aot.capture.imports.sorting import ranking_long_rows
from aotc.aot.capture.lifted import NONE_LIFTED, Lifted, initial_of
from aotc.aot.capture.sizes import Sizes, reading, sizes_of
from aotc.aot.capture.state_values import STATE_VALUES, mark_state
from aotc.aot.capture.triton_calls import KERNEL_CALL
from aotc.aot.errors import (
    EndsUnsupported,
    FallbackRefused,
    MutationUnsupported,
    OpsUnsupported,
    ShapesUnsupported,
)
from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, Node, State, make
from aotc.aot.ir.size import Extent, Guard
from aotc.aot.ir.storage import Array

OWN_GENERATOR = "draw from torch's own generator, and give the program a seed"
# Element types of weights. Other whole numbers and bools are part of what the program is: indices,
# masks, positions.
WEIGHT_DTYPES = frozenset(("f16", "bf16", "f32", "f64", "i8", "u8"))
STATE_PREFIX = "state."  # of the names of initial values among the weights


def import_program(
    program: ExportedProgram,
    exported: ExportedProgram,
    sizes: Sizes,
    fallback: bool = False,
    rounds: bool = False,
    lifted: Lifted = NONE_LIFTED,
    is_alone: bool = True,
) -> tuple[Graph, tuple[Guard, ...]]:
    """Our graph of a program that was decomposed from `exported`, and what it asks of sizes.

    `fallback` leaves ops that have no row to torch, `rounds` rounds every 16-bit result to its
    type; the arguments of `lifted` become states. Where it `is_alone`, no other entry point of the
    bundle may change what it reads. Raises `OpsUnsupported` with every op that can
    neither be imported nor left, and `MutationUnsupported` where inputs are changed.
    """
    changed = _changed(program, exported, lifted)
    walker = _ProgramImporter(
        program=program,
        fallback=fallback,
        rounds=rounds,
        changed=changed,
        has_parts=True,
        is_alone=is_alone,
        lifted=lifted.placeholders(program),
        initials=dict(zip(lifted.names, map(initial_of, lifted.tensors), strict=True)),
    )
    with reading(sizes), STATE_VALUES.collecting(), DISTINCT.collecting(), ranking_long_rows():
        for node in program.graph.nodes:
            walker.visit(node)
    if walker.unsupported:
        raise _refusal(walker.unsupported, fallback)(ops=_distinct(walker.unsupported))
    return walker.graph(), tuple(walker.guards)


def _refusal(lines: Sequence[str], fallback: bool) -> type[OpsUnsupported]:
    """The error for what was refused, whose hint fits all of it."""
    if all(line.startswith(("input ", "output ")) for line in lines):
        return EndsUnsupported
    if fallback:
        return FallbackRefused
    return ShapesUnsupported if all(OF_DATA in line for line in lines) else OpsUnsupported


def graph_of(model: torch.nn.Module, tensors: tuple[torch.Tensor, ...]) -> Graph:
    """A model of its own inside another, exported and imported for such tensors."""
    program = torch.export.export(model, tensors, strict=False)
    sizes = sizes_of(program, None, (tensors, {}))
    return import_program(decompose(program, {}, ()), program, sizes)[0]


def held_tensor(program: ExportedProgram, name: str) -> torch.Tensor:
    """A weight, a buffer or a constant of the program."""
    found = program.state_dict.get(name)
    return program.constants[name] if found is None else found


def weight_names(program: ExportedProgram) -> dict[str, tuple[str, ...]]:
    """The names of parameters and persistent buffers, each with those of the same memory.

    A buffer of one element is a setting of the model, which rewrites may look at.
    """
    signature, held = program.graph_signature, program.state_dict
    parameters = frozenset(signature.parameters)
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, tensor in held.items():
        if (name in parameters or tensor.numel() != 1) and has_plain_memory(tensor):
            own = (name,) if not tensor.numel() else ()
            place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), own)
            groups.setdefault(place, []).append(name)
    return {name: tuple(sorted(names)) for names in groups.values() for name in names}


def held_tensors(program: ExportedProgram) -> tuple[tuple[str, str], ...]:
    """The parameters and persistent buffers of a model by name, each with the digest of its bytes
    where the program depends on them, and with an empty text where it may be given others."""
    weights, nodes = weight_names(program), program.graph.find_nodes(op="placeholder")
    read = {node.name for node in nodes if node.users}
    used = {str(spec.target) for spec in program.graph_signature.input_specs
            if spec.arg.name in read}  # fmt: skip
    found = []
    for name, tensor in sorted(program.state_dict.items()):
        is_fixed = name in used and not (name in weights and _is_weight(tensor))
        has_bytes = is_fixed and has_plain_memory(tensor)
        found.append((name, _digest(tensor) if has_bytes else ""))
    return tuple(found)


def _is_weight(tensor: torch.Tensor) -> bool:
    try:
        return type_of(tensor).dtype in WEIGHT_DTYPES
    except NotSupported:
        return False


def _digest(tensor: torch.Tensor) -> str:
    plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(plain.numpy().tobytes()).hexdigest()


def _distinct(found: Sequence[str]) -> str:
    return "\n".join(f"  {line}" for line in dict.fromkeys(found))


def _changed(
    program: ExportedProgram, exported: ExportedProgram, lifted: Lifted
) -> dict[str, torch.fx.Node]:
    """The buffers that the program writes to, with what they hold after a call.

    Raises `MutationUnsupported` where it writes to inputs.
    """
    found, declared = _written(program), None
    if found and any(str(node.target) == KERNEL_CALL for node in program.graph.nodes):
        # Where torch cannot follow a kernel, it takes all that the kernel is given for changed.
        # With the ops whole it goes by what they declare.
        declared = _written(without_aliases(exported).run_decompositions({}))
        found = {name: row for name, row in found.items() if name in declared}
    names = lifted.placeholders(program)
    found = {
        names.get(name, name): (OutputKind.BUFFER_MUTATION if name in names else kind, node)
        for name, (kind, node) in found.items()
    }
    inputs = [name for name, (kind, _) in found.items() if kind is OutputKind.USER_INPUT_MUTATION]
    if inputs:
        raise MutationUnsupported(names=", ".join(f"`{name}`" for name in inputs))
    own = {**program.graph_signature.inputs_to_buffers, **names}
    return {name: node for name, (_, node) in found.items() if own.get(node.name) != name}


def _written(program: ExportedProgram) -> dict[str, tuple[OutputKind, torch.fx.Node]]:
    """What the program writes to by name: buffers and inputs, with the nodes written last."""
    specs = program.graph_signature.output_specs
    (values,) = next(node for node in program.graph.nodes if node.op == "output").args
    kinds = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
    return {
        str(spec.target): (spec.kind, value)
        for spec, value in zip(specs, values, strict=True)
        if spec.kind in kinds
    }


@dataclass(kw_only=True)
class _ProgramImporter(Importer):
    """Imports an exported program, whose signature says what are inputs and weights."""

    program: ExportedProgram
    changed: dict[str, torch.fx.Node]  # buffers by name, with what they hold after a call
    states: dict[str, Node] = field(default_factory=dict)  # what they hold before it
    lifted: dict[str, str]  # placeholders of buffers that were lifted, with the buffers' names
    initials: dict[str, torch.Tensor]  # of these
    is_alone: bool  # whether what it does not change is never changed
    weights: Mapping[str, tuple[str, ...]] = field(init=False)
    names: Mapping[str, str] = field(init=False)  # of inputs by placeholder

    def _name(self, node: torch.fx.Node) -> str:
        return self.names[node.name]

    def _require_equal(self, found: Extent, expected: Extent) -> None:
        guard = Guard(f"{found} == {expected}", found - expected, 0, 0)
        if guard not in self.guards:
            self.guards.append(guard)

    def __post_init__(self) -> None:
        self.weights = weight_names(self.program)
        self.names = input_names(self.program)

    def graph(self) -> Graph:
        """The finished graph, with the buffers that are changed as its states."""
        whole = super().graph()
        names = [name for name in self.states if self._is_state(name, whole)]
        before = tuple(self.states[name] for name in names)
        after = tuple(self._after(name) for name in names)
        count = len(whole.returned)
        outputs = (*whole.returned, *after, *whole.checks)
        return Graph(
            (*whole.inputs, *before),
            outputs,
            (*whole.input_names, *(node.attr("name") for node in before)),
            (*whole.output_names[:count], *names, *whole.output_names[count:]),
            self.constants,
            tuple(State(name, _initial(name, self._tensor(name))) for name in names),
        ).with_outputs(outputs)

    def _is_state(self, name: str, whole: Graph) -> bool:
        """Whether a call writes to a buffer, or reads one that others may write to."""
        return name in self.changed or self.states[name] in whole.nodes()

    def _after(self, name: str) -> Node:
        """What a buffer holds after a call: torch copies it in, `buffer[:] = 0` as one zero."""
        before = self.states[name]
        if name not in self.changed:
            return before
        made: Node = self.values[self.changed[name]]
        return build.expand(build.cast(made, before.dtype), before.shape)

    def _tensor(self, name: str) -> torch.Tensor:
        found = self.initials.get(name)
        return held_tensor(self.program, name) if found is None else found

    def _state(self, node: torch.fx.Node, name: str) -> Node:
        kind = type_of(node.meta["val"] if name in self.initials else self._tensor(name))
        attrs = {"name": node.name, "dtype": kind.dtype, "shape": kind.shape}
        self.states[name] = made = mark_state(make("input", (), attrs))
        return made

    def _placeholder(self, node: torch.fx.Node) -> Node | Any:
        specs = self.program.graph_signature.input_specs
        spec = next(item for item in specs if item.arg.name == node.name)
        if isinstance(spec.arg, ConstantArgument):
            return spec.arg.value
        if node.name in self.lifted:
            try:
                return self._state(node, self.lifted[node.name])
            except NotSupported as refused:
                self.unsupported.append(f"buffer `{self.lifted[node.name]}`: {refused}")
                return None
        if spec.kind is InputKind.USER_INPUT:
            return self._input(node)
        if spec.kind is InputKind.TOKEN:
            return TOKEN
        target = str(spec.target)
        if spec.kind is InputKind.CUSTOM_OBJ:
            kind = type(self.program.constants.get(target)).__name__
            advice = f"; {OWN_GENERATOR}" if kind == "Generator" else ""
            self.unsupported.append(
                f"constant `{target}`: a `{kind}`, which no bundle holds{advice}"
            )
            return None
        try:
            if target in self.changed:
                return self._state(node, target)
            return self._constant(target, self._tensor(target))
        except NotSupported as refused:
            self.unsupported.append(f"constant `{target}`: {refused}")
            return None

    def _content(self, name: str, array: Array) -> str:
        # Buffers that hold the same now may be states of another entry point, each its own.
        is_buffer = name in self.program.graph_signature.buffers
        return (
            f"buffer {name}" if is_buffer and not self.is_alone else super()._content(name, array)
        )

    def _replaceable(self, name: str, tensor: torch.Tensor) -> tuple[str, ...]:
        return self.weights.get(name, ()) if _is_weight(tensor) else ()

    def _output(self, node: torch.fx.Node) -> None:
        specs = self.program.graph_signature.output_specs
        for value, spec in zip(node.args[0], specs, strict=True):
            if spec.kind is not OutputKind.USER_OUTPUT:
                continue
            if isinstance(value, torch.fx.Node):
                made = self.values.get(value)
                if isinstance(made, Node) and not isinstance(value.meta["val"], torch.Tensor):
                    self._refuse(value, data_numbers.REASON)
                elif isinstance(made, Node):
                    self.outputs.append(made)
                elif isinstance(made, Complex):
                    self.outputs.append(parts_beside(made))
                elif isinstance(made, Float8):
                    reason = at_end(value.meta["val"].dtype)
                    self.unsupported.append(f"output {len(self.outputs)}: {reason}")
                elif made is not None:  # else an op on the way was refused, and is listed
                    self.unsupported.append(f"output `{made}`: it is not a tensor")
            elif not isinstance(value, bool | int | float | str | None):
                self.unsupported.append(f"output `{value!r}`: it is not a tensor")


def _initial(name: str, tensor: torch.Tensor) -> Constant | None:
    """What a state starts with; None for zeros, which a bundle does not store."""
    array = to_array(tensor)
    if not array.tobytes().strip(b"\0"):
        return None
    return Constant(f"{STATE_PREFIX}{name}", type_of(tensor), array.copy())


HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class Functional:
    """A decomposed program; called with the model's arguments, it writes into nothing."""

    def __init__(
        self, program: ExportedProgram, states: Sequence[str], lifted: Lifted = NONE_LIFTED
    ) -> None:
        """states: names of those whose new values follow the outputs, in this order; those of
        `lifted` are the last arguments."""
        self._program = program
        self._states = states
        self._lifted = lifted.placeholders(program)

    def __call__(self, *arguments: Any, **named: Any) -> tuple[torch.Tensor, ...]:
        """The tensors that the model returns, then its states."""
        program = self._program
        given = iter(pytree.tree_leaves((arguments, named)))
        values = [
            held_tensor(program, str(spec.target)) if spec.kind in HELD else next(given)
            for spec in program.graph_signature.input_specs
        ]
        results = program.graph_module(*values)
        rows = list(zip(program.graph_signature.output_specs, results, strict=True))
        before = {
            self._lifted.get(spec.arg.name, spec.target): value
            for spec, value in zip(program.graph_signature.input_specs, values, strict=True)
        }
        changed = before | {
            self._lifted.get(str(spec.target), spec.target): value
            for spec, value in rows
            if spec.target is not None
        }
        outputs = [value for spec, value in rows if spec.kind is OutputKind.USER_OUTPUT]
        states = ((before[name], changed[name]) for name in self._states)
        # As torch copies them in: `buffer[:] = 0` as one zero.
        found = [*outputs, *(new.to(old.dtype).expand(old.shape) for old, new in states)]
        return tuple(value for value in found if isinstance(value, torch.Tensor))
