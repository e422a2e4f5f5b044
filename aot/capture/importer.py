"""Walks the nodes of a torch graph and makes ours; lists all it cannot import at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from aotc.aot.capture import data_numbers
from aotc.aot.capture.aten_signature import RELAID
from aotc.aot.capture.control_flow import CONTROL, control_flow
from aotc.aot.capture.custom_ops import IMPORTS, called_op, ways_out
from aotc.aot.capture.data_shapes import OF_DATA, reason_of
from aotc.aot.capture.fallback import torch_call
from aotc.aot.capture.imports.call import (
    Call,
    NotSupported,
    Row,
    not_equal,
    part_type_of,
    type_of,
)
from aotc.aot.capture.imports.complexes import (
    Complex,
    complex_row,
    constant_of,
    is_complex,
    joined_parts,
)
from aotc.aot.capture.imports.float8 import (
    FORMATS,
    Float8,
    at_end,
    float8_constant,
    float8_row,
    float8_types,
    is_float8,
)
from aotc.aot.capture.imports.rng import PHILOX, SEED_NAME, first_free, seed_input
from aotc.aot.capture.imports.table import ASSERTIONS, CHECKS, ROWS
from aotc.aot.capture.sizes import asserted, extent_of
from aotc.aot.capture.source_lines import source_line
from aotc.aot.capture.triton_calls import KERNEL_CALL, kernel_call
from aotc.aot.errors import InternalError, TypeRuleError
from aotc.aot.ir import build
from aotc.aot.ir.graph import (
    Constant,
    Graph,
    Node,
    fixed_constants,
    made_for,
    make,
    sizes_in,
)
from aotc.aot.ir.ranges import is_within, range_of
from aotc.aot.ir.rounding import rounded
from aotc.aot.ir.size import Extent, Guard, UndecidedSize, proves_at_most
from aotc.aot.ir.storage import Array, narrow
from aotc.aot.ir.types import TensorType

# Orders calls that have effects, which are refused where they are made.
TOKEN = "token"
# Other classes of tensors, as of quantised ones, are taken apart by torch.export or refused.
PLAIN_CLASSES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
TEXT_LENGTH = 256  # characters of a text about a check that a plan holds
CONVERTED = "convert it before the call"
ASSERTED = "an assertion of the model does not hold"
OF_TORCH = "Runtime assertion failed for expression"  # names that torch.export made


def to_array(tensor: torch.Tensor) -> Array:
    """A contiguous copy-free numpy array of `tensor`; bf16 as its uint16 bits, complex numbers as
    their parts along a last dim."""
    plain = tensor.detach().cpu().resolve_neg()
    if plain.is_complex():
        plain = tensor = torch.view_as_real(plain.resolve_conj())
    plain = plain.contiguous()
    if plain.dtype == torch.bfloat16:
        plain = plain.view(torch.uint16)
    return numpy.ascontiguousarray(plain.numpy()).reshape(tuple(tensor.shape))


def _makes_constant(node: torch.fx.Node) -> bool:
    """Whether the op reads no tensor and draws nothing: windows, grids, tables of torch's own."""
    op, made = node.target, node.meta.get("val")
    is_op = isinstance(op, torch._ops.OpOverload) and isinstance(made, torch.Tensor)
    if not is_op or node.all_input_nodes or op._schema.is_mutable:
        return False
    return torch.Tag.nondeterministic_seeded not in op.tags


def _computed(node: torch.fx.Node) -> torch.Tensor:
    """What torch gives for such an op, on the CPU."""
    named = dict(node.kwargs)
    if any(each.name == "device" for each in node.target._schema.arguments):
        named["device"] = torch.device("cpu")
    with torch.no_grad(), unset_fake_temporarily():
        found: torch.Tensor = node.target(*node.args, **named)
    return found


@dataclass
class Importer:
    """Imports node after node; what stands at the graph's ends is the subclass's to say."""

    values: dict[torch.fx.Node, Any] = field(default_factory=dict)
    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    names_by_digest: dict[tuple[TensorType, str], str] = field(default_factory=dict)
    unsupported: list[str] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    checks: dict[Node, None] = field(default_factory=dict)  # in their order
    fallback: bool = False  # whether torch is to run what cannot be imported
    rounds: bool = False  # whether every 16-bit result of a call is rounded to its type
    has_parts: bool = False  # whether complex tensors are imported, as pairs of real ones
    draws: bool = False  # whether there is an input for the seed

    def visit(self, node: torch.fx.Node) -> None:
        """Import one node of the exported graph."""
        if node.op == "placeholder":
            self.values[node] = self._placeholder(node)
        elif node.op == "output":
            self._output(node)
        elif node.op == "call_function":
            self._call(node)
        # get_attr nodes name sub-graphs of higher-order ops

    def graph(self) -> Graph:
        """The finished graph: constants nothing reads dropped."""
        names = tuple(node.attr("name") for node in self.inputs)
        if self.draws:
            names = (*names, first_free(SEED_NAME, names))
            self.inputs.append(seed_input())
        checks = tuple(self.checks)
        outputs = (*self.outputs, *checks)
        output_names = (
            *(f"output_{number}" for number in range(len(self.outputs))),
            *(f"check:{number}" for number in range(len(checks))),
        )
        whole = Graph(tuple(self.inputs), outputs, names, output_names, self.constants)
        return whole.with_outputs(outputs)

    def _placeholder(self, node: torch.fx.Node) -> Any:
        raise NotImplementedError

    def _output(self, node: torch.fx.Node) -> None:
        raise NotImplementedError

    def _input(self, node: torch.fx.Node) -> Node | Complex | None:
        try:
            kind = part_type_of(node.meta["val"])
        except NotSupported as refused:
            reason = at_end(node.meta["val"].dtype) or f"{refused}: {CONVERTED}"
            self.unsupported.append(f"input `{self._name(node)}`: {reason}")
            return None
        has_parts = node.meta["val"].is_complex()
        shape = (*kind.shape, 2) if has_parts else kind.shape
        self.inputs.append(
            make("input", (), {"name": self._name(node), "dtype": kind.dtype, "shape": shape})
        )
        return joined_parts(self.inputs[-1]) if has_parts else self.inputs[-1]

    def _name(self, node: torch.fx.Node) -> str:
        """What an input is called."""
        return str(node.name)

    def _constant(self, name: str, tensor: torch.Tensor) -> Any:
        if tensor.is_complex() and self.has_parts:
            return constant_of(
                tensor, lambda part, values: self._constant(f"{name}.{part}", values)
            )
        if tensor.dtype in FORMATS:
            return float8_constant(tensor, lambda bits: self._constant(name, bits))
        _check_class(tensor)
        kind, array = type_of(tensor), to_array(tensor)
        names = self._replaceable(name, tensor)
        digest = names[0] if names else self._content(name, array)
        kept = self.names_by_digest.setdefault((kind, digest), name)
        if kept == name:
            self.constants[name] = Constant(name, kind, array, names)
        return build.constant(kept, kind)

    def _content(self, name: str, array: Array) -> str:
        """What is equal for constants that are one."""
        return hashlib.sha256(array.tobytes()).hexdigest()

    def _replaceable(self, name: str, tensor: torch.Tensor) -> tuple[str, ...]:
        """All names of a tensor that programs may be given other values of; none where they may
        not."""
        return ()

    def _table(self, values: Array, dtype: str) -> Node:
        kind, array = TensorType(dtype, values.shape), narrow(values, dtype)
        digest = hashlib.sha256(str(kind).encode() + array.tobytes()).hexdigest()
        name = self.names_by_digest.setdefault((kind, digest), f"table.{digest[:16]}")
        self.constants.setdefault(name, Constant(name, kind, numpy.ascontiguousarray(array)))
        return build.constant(name, kind)

    def _call(self, node: torch.fx.Node) -> None:
        name = getattr(getattr(node.target, "_schema", None), "name", str(node.target))
        if name == str(node.target) and getattr(node.target, "__name__", "") == "getitem":
            self._item(node)
            return
        if name == KERNEL_CALL:
            self._made(node, kernel_call, self.values)  # its results by names of parameters
        elif name in CONTROL:
            if not self._has_refused_operands(node):
                self._made(node, control_flow, self.values, self._body)
        else:
            self._call_op(node, name)

    def _call_op(self, node: torch.fx.Node, name: str) -> None:
        """Import a call of an op of torch's registry."""
        base = name.removeprefix("aten::")
        if base in CHECKS:
            self._assert(node, base)
            return
        if isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool):
            self._number(node, base)
            return
        if name in IMPORTS:
            arguments, _ = self._arguments(node)
            if arguments is not None:  # else an operand was refused, and is listed
                self._made(node, IMPORTS[name].imported, arguments)
            return
        self.draws |= name == PHILOX
        is_of_parts = is_complex(node)
        is_of_bytes = is_float8(node)
        if is_of_bytes:
            row: Row | None = float8_row(base)
        else:
            row = complex_row(base, self.has_parts) if is_of_parts else ROWS.get(base)
        if row is None:
            self._without_row(node, name)
            return
        arguments, seen = self._arguments(node)
        if arguments is None:
            return  # an operand was refused, and is listed
        place = source_line(node)
        try:
            check = partial(self._note_check, operation=_asked_for(node, base), place=place or "")
            kinds = float8_types(node) if is_of_bytes else _result_types(node)
            call = Call(kinds, seen, self._table, _gives_complex(node), check, self._require_equal)
            with made_for(place):
                empty = None if is_of_bytes else _nothing(node, call)
                result = empty or row(call, *arguments)
                result = _rounded(result) if self.rounds else result
        except (NotSupported, TypeRuleError) as refused:
            self._leave(node, str(refused))
            return
        self._check(node, call, result)
        self.values[node] = result

    def _body(
        self, named: torch.fx.Node, given: Sequence[Any]
    ) -> tuple[list[Any], tuple[Node, ...]]:
        """The results and the checks of the graph that a node names, its inputs being `given`.

        Raises `NotSupported`; ops without an import are listed with those of the graph around it.
        """
        module = getattr(named.graph.owning_module, str(named.target))
        self._check_body(module)
        inner = _BodyImporter(
            fallback=self.fallback,
            rounds=self.rounds,
            has_parts=self.has_parts,
            guards=self.guards,
            outer=self,
            name=str(named.target),
            module=module,
            given=list(given),
        )
        listed = len(self.unsupported)
        for node in module.graph.nodes:
            inner.visit(node)
        self.unsupported += (row for row in inner.unsupported if row not in self.unsupported)
        if inner.unsupported or len(self.unsupported) > listed:
            raise _Listed
        if inner.draws:
            raise NotSupported("it draws random numbers: draw them outside, and give it these")
        self._check_data_of_body(tuple(inner.checks))
        return inner.results, tuple(inner.checks)

    def _check_body(self, module: torch.nn.Module) -> None:
        """Raise `NotSupported` where a graph may not be inside of this one."""

    def _check_data_of_body(self, checks: tuple[Node, ...]) -> None:
        """The same of what a graph inside checks of its data."""

    def _note_check(
        self, operand: Node, kind: str, low: Extent, high: Extent, *, operation: str, place: str
    ) -> None:
        """Have each call check the elements of `operand`, unless they are known to be right."""
        while operand.op in ("expand", "reshape", "permute") and operand.inputs[0].type.numel:
            if operand.op == "expand" and not proves_at_most(1, operand.type.numel):
                break
            operand = operand.inputs[0]  # all elements, each once
        least, most = range_of(operand, fixed_constants(self.constants))
        is_right = is_within((least, most), (low, high))
        if kind != "index":
            is_right = proves_at_most(1, least) or proves_at_most(most, -1)
        if is_right or not operand.type.numel:
            return
        operation, place = (_printable(text) for text in (operation, place))
        row = {"kind": kind, "operation": operation, "place": place, "low": low, "high": high}
        self.checks[make("check", (operand,), row)] = None

    def _require_equal(self, found: Extent, expected: Extent) -> None:
        """Have calls whose sizes differ be refused, where the program has conditions of its own."""
        not_equal(found, expected)

    def _leave(self, node: torch.fx.Node, reason: str) -> None:
        """What cannot be imported: torch's where that was asked for, else refused for `reason`."""
        if self.fallback:
            if self._has_refused_operands(node):
                return
            try:
                with made_for(source_line(node)):
                    self.values[node] = torch_call(node, self.values)
                return
            except NotSupported as refused:
                if reason != str(refused):
                    parts = (reason, f"torch cannot run it: {refused}")
                    reason = "; ".join(filter(None, parts))
        self._refuse(node, reason)

    def _made(self, node: torch.fx.Node, made: Callable[..., Any], *given: Any) -> None:
        """The values of a call that is imported in a way of its own, or its refusal."""
        try:
            with made_for(source_line(node)):
                self.values[node] = made(node, *given)
        except _Listed:
            return
        except (NotSupported, TypeRuleError) as refused:
            self._refuse(node, str(refused))

    def _number(self, node: torch.fx.Node, base: str) -> None:
        """A number that depends on sizes: a size, or arithmetic on values of rank 0."""
        value = node.meta["val"]
        is_float = isinstance(value, torch.SymFloat)
        given = [each for each in _flatten(list(node.args)) if each is not None]
        operands = [self._imported(each) for each in given]
        if any(each is None for each in operands):
            return  # an operand was refused, and is listed, or a condition on sizes alone
        try:
            if base in data_numbers.READ:
                self.values[node] = data_numbers.read(node, operands[0])
            elif isinstance(value, torch.SymInt) and data_numbers.is_of_sizes(value):
                self.values[node] = extent_of(value)
            elif any(isinstance(each, Node) for each in operands) or is_float:
                self.values[node] = data_numbers.computed(node, operands)
        except (NotSupported, TypeRuleError) as refused:
            self._refuse(node, data_dependence(node) or str(refused))

    def _imported(self, given: Any) -> Any:
        return self.values.get(given) if isinstance(given, torch.fx.Node) else given

    def _assert(self, node: torch.fx.Node, base: str) -> None:
        """What an assertion asks of sizes is kept as a guard; of data, each call checks it."""
        condition = node.args[0] if node.args else None
        made = self._imported(condition)
        if isinstance(made, Node) and base in ASSERTIONS:
            made = build.cast(made, "bool")
            message = str(node.args[1]) if len(node.args) > 1 else ASSERTED
            message = ASSERTED if message.startswith(OF_TORCH) else message
            where = {"operation": message, "place": source_line(node) or ""}
            self._note_check(made, "assertion", 0, 0, **where)
            return
        value = condition.meta.get("val") if isinstance(condition, torch.fx.Node) else None
        if isinstance(value, torch.SymBool):
            guard = asserted(value)
            if guard is not None:
                self.guards.append(guard)

    def _item(self, node: torch.fx.Node) -> None:
        parent, index = node.args[0], node.args[1]
        parts = self.values.get(parent)
        if parts is None:
            return
        if parts[index] is None:
            self._refuse(parent, f"its result {index} has no import")
            return
        self.values[node] = parts[index]

    def _arguments(self, node: torch.fx.Node) -> tuple[list[Any] | None, tuple[Any, ...]]:
        """Arguments in schema order with defaults: ours, and as torch saw them; None if refused."""
        raw = _in_schema_order(node)
        needed = [item for item in _flatten(raw) if isinstance(item, torch.fx.Node)]
        if any(self.values.get(item) is None for item in needed):
            return None, ()
        if self._is_number_misplaced(node):
            self._leave(node, data_numbers.REASON)
            return None, ()
        ours = torch.fx.map_arg(raw, self.values.__getitem__)
        seen = torch.fx.map_arg(raw, lambda item: item.meta.get(RELAID, item.meta.get("val")))
        return list(ours), tuple(seen)

    def _is_number_misplaced(self, node: torch.fx.Node) -> bool:
        """Whether a number that depends on data is given where the op needs one before a call."""
        for argument, given in zip(
            node.target._schema.arguments, _in_schema_order(node), strict=True
        ):
            fixed = [] if data_numbers.takes_number(argument) else _flatten(given)
            numbers = (each for each in fixed if isinstance(self._imported(each), Node))
            if any(isinstance(each.meta["val"], torch.SymInt | torch.SymBool) for each in numbers):
                return True
        return False

    def _without_row(self, node: torch.fx.Node, name: str) -> None:
        if _makes_constant(node):
            self.values[node] = self._constant(node.name, _computed(node))
        elif not self._follows_refused(node, name):
            self._leave(node, ways_out(node) or data_dependence(node))

    def _follows_refused(self, node: torch.fx.Node, name: str) -> bool:
        """Whether this is arithmetic on sizes of a result that was refused, and is listed."""
        is_of_sizes = not name.startswith("aten::") or name == "aten::sym_size"
        return is_of_sizes and self._has_refused_operands(node)

    def _has_refused_operands(self, node: torch.fx.Node) -> bool:
        """Whether an operand was refused, and is listed."""
        operands = (each for each in node.all_input_nodes if each.op != "get_attr")
        return any(self.values.get(each) is None for each in operands)

    def _refuse(self, node: torch.fx.Node, reason: str) -> None:
        line = refusal_of(node, reason)
        if line not in self.unsupported:
            self.unsupported.append(line)

    def _check(self, node: torch.fx.Node, call: Call, result: Any) -> None:
        made = result if isinstance(result, list | tuple) else (result,)
        value = node.meta["val"]
        given = value if isinstance(value, list | tuple) else (value,)
        kept = [got for got, seen in zip(made, given, strict=False) if seen is not None]
        for got, expected in zip(kept, call.results, strict=False):
            got = got.re if isinstance(got, Complex) else got
            got = got.numbers() if isinstance(got, Float8) else got
            if (
                got is not None
                and got.type != expected
                and (got.sizes() or sizes_in(expected.shape))
            ):
                reason = f"that {got.type} is {expected} is only known at the call"
                self._refuse(node, reason)
            elif got is not None and got.type != expected:
                detail = f"row of `{node.target}` made {got.type}, torch says {expected}"
                raise InternalError(stage="capture", detail=detail)


class _Listed(Exception):
    """What is inside a call was refused, and is listed."""


@dataclass
class _BodyImporter(Importer):
    """Imports a graph inside another, whose constants are those of the graph around it."""

    outer: Importer = field(kw_only=True)
    name: str = field(kw_only=True)
    module: torch.nn.Module = field(kw_only=True)
    given: list[Any] = field(kw_only=True)  # what its placeholders are, in order
    results: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.constants = self.outer.constants

    def visit(self, node: torch.fx.Node) -> None:
        """Import one node; tensors that the module holds are constants."""
        held = getattr(self.module, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(held, torch.Tensor):
            self.values[node] = self._constant(str(node.target), held)
        else:
            super().visit(node)

    def _placeholder(self, node: torch.fx.Node) -> Any:
        return self.given.pop(0)

    def _output(self, node: torch.fx.Node) -> None:
        returned = node.args[0] if isinstance(node.args[0], list | tuple) else (node.args[0],)
        self.results = [self._imported(each) for each in returned]

    def _constant(self, name: str, tensor: torch.Tensor) -> Any:
        return self.outer._constant(f"{self.name}.{name}", tensor)

    def _check_body(self, module: torch.nn.Module) -> None:
        self.outer._check_body(module)

    def _check_data_of_body(self, checks: tuple[Node, ...]) -> None:
        self.outer._check_data_of_body(checks)

    def _table(self, values: Array, dtype: str) -> Node:
        return self.outer._table(values, dtype)

    def _require_equal(self, found: Extent, expected: Extent) -> None:
        self.outer._require_equal(found, expected)


def refusal_of(node: torch.fx.Node, reason: str) -> str:
    """The op of a call with its line, and why it has no import."""
    source = source_line(node)
    place = f" at {source}" if source else ""
    because = f": {reason}" if reason else ""
    return f"`{called_op(node)}`{place}{because}"


def _check_class(tensor: torch.Tensor) -> None:
    """Raise `NotSupported` for a tensor of a class of its own: its numbers may be anything."""
    if type(tensor) not in PLAIN_CLASSES:
        raise NotSupported(
            f"a tensor of the class `{type(tensor).__name__}`, which torch.export did not take "
            "apart: unwrap it (torchao's `unwrap_tensor_subclass`), or make it plain tensors"
        )


def _rounded(result: Any) -> Any:
    """The results of a call without more bits than their types have."""
    if isinstance(result, list | tuple):
        return tuple(map(_rounded, result))
    return rounded(result) if isinstance(result, Node) else result


def _nothing(node: torch.fx.Node, call: Call) -> Any:
    """The results of a call that computes no element at all, else nothing."""
    if any(kind.numel for kind in call.results) or not call.results:
        return None
    tensors = [each for each in _flatten(node.meta["val"]) if isinstance(each, torch.Tensor)]
    made = tuple(
        Complex(build.empty(kind), build.empty(kind)) if each.is_complex() else build.empty(kind)
        for kind, each in zip(call.results, tensors, strict=True)
    )
    return made if len(made) > 1 else made[0]


def _in_schema_order(node: torch.fx.Node) -> list[Any]:
    schema = node.target._schema.arguments
    ordered = []
    for position, argument in enumerate(schema):
        if position < len(node.args):
            ordered.append(node.args[position])
        elif argument.name in node.kwargs:
            ordered.append(node.kwargs[argument.name])
        else:
            ordered.append(argument.default_value)
    return ordered


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)[:TEXT_LENGTH]


def _asked_for(node: torch.fx.Node, base: str) -> str:
    """The op that was decomposed into this one, or this one."""
    name = getattr(getattr(node.meta.get("original_aten"), "_schema", None), "name", base)
    return str(name).removeprefix("aten::").removeprefix("_")


def _flatten(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _flatten(item)]
    return [value]


def data_dependence(node: torch.fx.Node) -> str:
    """Why an op without a row cannot have one, as far as its result says so."""
    value = node.meta.get("val")
    tensors = [item for item in _flatten(value) if isinstance(item, torch.Tensor)]
    try:
        for tensor in tensors:
            tuple(map(extent_of, tensor.shape))
    except UndecidedSize as refused:
        reason = str(refused)
        return reason_of(node.target) if reason.startswith(OF_DATA) else reason
    return "" if value is None or tensors else data_numbers.REASON


def _result_types(node: torch.fx.Node) -> tuple[TensorType, ...]:
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else (value,)
    if not all(item is None or isinstance(item, torch.Tensor) for item in values):
        raise NotSupported(data_numbers.REASON)
    return tuple(part_type_of(item) for item in values if item is not None)


def _gives_complex(node: torch.fx.Node) -> bool:
    value = node.meta["val"]
    first = value[0] if isinstance(value, list | tuple) and value else value
    return isinstance(first, torch.Tensor) and first.is_complex()
