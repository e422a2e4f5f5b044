"""Writes nodes as Triton text: the value of a node at an index, each computed once.

Below that: named values and lines, one loop deep; element types, literals and conversions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import product

from aotc.aot.errors import InternalError
from aotc.aot.ir import index as ix
from aotc.aot.ir.checks import LARGEST, RANGED
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Bound, Index, Symbol
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.rounding import is_rounded
from aotc.aot.ir.size import kernel_text
from aotc.aot.ir.types import DTYPES, SHORT_FLOATS, Scalar, holds_exactly, round_scalar
from aotc.aot.lower.guards import Guard, is_possible, remaining
from aotc.aot.schedule.trace import (
    Access,
    accesses,
    data_index,
    is_unrolled,
    is_window_sum,
    lookup_index,
    reduced_extents,
)

INDENT = "    "


@dataclass(frozen=True, slots=True)
class Value:
    """Text of a value and the loop symbols that it varies with."""

    text: str
    symbols: frozenset[Symbol] = frozenset()
    is_literal: bool = False


class Moment(IntEnum):
    """The earliest point at which a line may run, in a kernel that starts while earlier kernels
    still run (programmatic dependent launch)."""

    START = 0  # it needs nothing but where the program is
    CONSTANTS = 1  # it loads what no kernel of a call writes, or computes with that
    MEMORY = 2  # the same of what the kernels before may write
    SUMS = 3  # it needs what the kernel's own loop adds up


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a kernel's body."""

    text: str
    moment: Moment = Moment.START
    symbols: frozenset[Symbol] = frozenset()  # what its value varies with


@dataclass(slots=True)
class Body:
    """Lines of a function body. Within a loop, what does not vary with it goes before it.

    names: what names of values begin with; moment: that of the lines which are written now.
    """

    written: list[Line] = field(default_factory=list)
    loop: list[Line] | None = None
    loop_symbols: frozenset[Symbol] = frozenset()
    count: int = 0
    names: str = ""
    moment: Moment = Moment.START

    @property
    def lines(self) -> list[str]:
        """The texts of the lines outside of an open loop."""
        return [line.text for line in self.written]

    @lines.setter
    def lines(self, texts: Iterable[str]) -> None:
        self.written = [Line(text, self.moment) for text in texts]

    @contextmanager
    def at(self, moment: Moment) -> Iterator[None]:
        """What is written within has this moment."""
        outer, self.moment = self.moment, moment
        yield
        self.moment = outer

    def bind(self, expression: str, symbols: Iterable[Symbol], prefix: str = "v") -> Value:
        """Name an expression: `v7 = expression`."""
        name = f"{self.names}{prefix}{self.count}"
        self.count += 1
        found = frozenset(symbols)
        self.write(f"{name} = {expression}", found)
        return Value(name, found)

    def write(self, line: str, symbols: frozenset[Symbol] = frozenset()) -> None:
        """Add a line, inside the open loop if it varies with the loop's symbols."""
        if self.loop is not None and symbols & self.loop_symbols:
            self.loop.append(Line(line, self.moment, symbols))
        else:
            self.written.append(Line(line, self.moment, symbols))

    def name(self, name: str, text: str, symbols: frozenset[Symbol]) -> None:
        """Give a value a name of its own: that of the last line, if that line is the value."""
        lines = self.loop or self.written
        if lines and lines[-1].text.startswith(f"{text} = "):
            named = f"{name}{lines[-1].text.removeprefix(text)}"
            lines[-1] = replace(lines[-1], text=named)
        else:
            self.write(f"{name} = {text}", symbols)

    def unwiden(self, text: str) -> bool:
        """Take back the widening of a 16-bit load, where that was the last thing written."""
        wide, lines = f".to({triton_type('f32')})", self.loop or self.written
        if not lines or not (
            lines[-1].text.startswith(f"{text} = tl.load(") and lines[-1].text.endswith(wide)
        ):
            return False
        lines[-1] = replace(lines[-1], text=lines[-1].text.removesuffix(wide))
        return True

    def open_loop(self, symbols: Iterable[Symbol]) -> None:
        """Lines that vary with the symbols are kept apart until the loop is closed."""
        self.loop, self.loop_symbols = [], frozenset(symbols)

    def close_loop(self) -> list[str]:
        """The texts of the loop's body."""
        return [line.text for line in self.close_timed_loop()]

    def close_timed_loop(self) -> list[Line]:
        """The lines of the loop's body."""
        assert self.loop is not None
        found, self.loop, self.loop_symbols = self.loop, None, frozenset()
        return found


# Rounding between fused operations need not be reproduced, but for what `ir/rounding.py` says.
_COMPUTED = dict.fromkeys(SHORT_FLOATS, "f32")


_NUMBER = re.compile(r'-?[\d.]+(e[+-]?\d+)?|True|False|float\("[^"]+"\)')


def computed(dtype: str) -> str:
    """Element type in which a kernel computes values of `dtype`."""
    return _COMPUTED.get(dtype, dtype)


def triton_type(dtype: str) -> str:
    """Triton's name of an element type: `tl.float32`."""
    return DTYPES[dtype].triton_language


def pointer(dtype: str) -> str:
    """Triton's type of a pointer to elements of `dtype`: `*fp32`."""
    return f"*{DTYPES[dtype].triton}"


def literal(value: Scalar, dtype: str) -> str:
    """A literal of `dtype`; a plain Python number wherever Triton types it right by itself."""
    dtype = computed(dtype)
    if DTYPES[dtype].kind == "float":
        if value == 0 and math.copysign(1.0, value) < 0:
            return f"({wrapped('0.0', dtype)} * -1.0)"  # Triton makes 0.0 of the literal -0.0
        text = repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
    else:
        text = repr(value)
    return text if dtype in ("f32", "i32", "i64") else wrapped(text, dtype)


def as_tensor(text: str, dtype: str) -> str:
    """A value that a tile can be made of: a plain number as a tensor of one element."""
    return wrapped(text, dtype) if _NUMBER.fullmatch(text) else text


def rounded(text: str, dtype: str) -> str:
    """A value that is computed in a wider type, rounded to `dtype` and wide again.

    LLVM and ptxas keep such a pair of conversions: neither is asked for inexact arithmetic.
    """
    return f"{text}.to({triton_type(dtype)}).to({triton_type(computed(dtype))})"


def rounded_literal(text: str, dtype: str) -> str:
    """The same of a literal's text."""
    if text == literal(-0.0, dtype):
        return text
    value = float(text.removeprefix('float("').removesuffix('")'))
    return literal(round_scalar(value, dtype), dtype)


def wrapped(text: str, dtype: str) -> str:
    """A literal as a tensor of rank 0, for operations that need an element type."""
    return f"tl.full((), {text}, {triton_type(computed(dtype))})"


def bare(text: str) -> str:
    """Without the outer parentheses of `(a + b)`."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]


def _cast(node: Node, operand: Value) -> str:
    """Rounds to a 16-bit type at once, though the value goes on in f32."""
    given = node.inputs[0].dtype
    source, target = computed(given), computed(node.dtype)
    rounds = computed(node.dtype) != node.dtype and not holds_exactly(given, node.dtype)
    if source == target and not rounds:
        return ""
    text = wrapped(operand.text, source) if operand.is_literal else operand.text
    if rounds:
        text = text if source == target else f"{text}.to({triton_type(target)})"
        return rounded(text, node.dtype)
    row = DTYPES[target]
    if DTYPES[source].kind == "float" and row.kind == "int" and row.itemsize_bytes < 4:
        text = f"{text}.to({triton_type('i32')})"  # eager's way: it wraps around what does not fit
    return f"{text}.to({triton_type(target)})"


def _bitcast(node: Node, operand: Value) -> str:
    source, target = node.inputs[0].dtype, node.dtype
    text = wrapped(operand.text, source) if operand.is_literal else operand.text
    text += f".to({triton_type(source)})" if computed(source) != source else ""
    text += f".to({triton_type(target)}, bitcast=True)"
    return text + (f".to({triton_type(computed(target))})" if computed(target) != target else "")


# Op → text of its result, of an operand that is rounded to its type; empty: the operand itself.
CONVERSIONS: Mapping[str, Callable[[Node, Value], str]] = {"cast": _cast, "bitcast": _bitcast}


DIVISIONS = frozenset({"floor_divide", "remainder"})

Position = tuple[Index, ...]


def _misplaced(node: Node) -> InternalError:
    """A node that no rule writes: a fault of the scheduler, never of the model."""
    return InternalError(stage="lower", detail=f"`{node!r}` has no place in its kernel")


@dataclass(slots=True)
class Emitter:
    """Writes values into `body`.

    `buffers` names the pointer parameter of each node in memory, `masks` the mask of each loop
    symbol whose last block is partial, `stops` writes the nodes that only the kernel's own kind
    can: its reductions or its matmul.
    """

    body: Body
    buffers: Mapping[Node, str]
    masks: dict[Symbol, str]
    stops: Callable[[Node, Position], Value | None] = lambda node, index: None
    # Values of 16-bit types that are rounded before anything reads them.
    rounded: frozenset[Node] = frozenset()
    known: dict[tuple[Node, Position, Guard], Value] = field(default_factory=dict)
    of_type: dict[tuple[Node, Position, Guard], Value] = field(default_factory=dict)
    loaded: dict[Symbol, frozenset[Symbol]] = field(default_factory=dict)
    loaded_from: dict[Symbol, Moment] = field(default_factory=dict)  # when the index is there
    clamped: dict[str, Value] = field(default_factory=dict)  # indices that were loaded, by text
    conditions: dict[Bound, str] = field(default_factory=dict)
    starts: Mapping[Node, int] = field(default_factory=dict)  # where a node's pointer is given from
    is_of_gpu: bool = False  # f32 by their ops' rounded template
    approximates: bool = False  # 16-bit values by their ops' approximate template
    # Products that the compiler may fuse with no sum; where there are any, it fuses none by itself.
    apart: frozenset[Node] = frozenset()
    # Eviction policy of loads that vary with these loop symbols: whether they will be read again.
    policy: Callable[[frozenset[Symbol]], str] = lambda symbols: ""
    moment_of: Callable[[Node], Moment] = lambda node: Moment.START

    def value(self, node: Node, index: Position, guard: Guard = ()) -> Value:
        """The value of `node` at `index`, used only where the conditions of `guard` hold."""
        if node in self.rounded:
            return self.value_of_type(node, index, guard)
        return self.unrounded(node, index, guard)

    def operand(self, reader: Node, need: Access, guard: Guard = ()) -> Value:
        """An operand of `reader`, rounded to its type if the reader is not continuous."""
        if OPS[reader.op].is_discontinuous:
            return self.value_of_type(need.node, need.index, guard)
        return self.value(need.node, need.index, guard)

    def value_of_type(self, node: Node, index: Position, guard: Guard = ()) -> Value:
        """The same with the bits of its type only."""
        key, value = (node, index, guard), self.unrounded(node, index, guard)
        if computed(node.dtype) == node.dtype or node in self.buffers:
            return value
        if key not in self.of_type:
            with self.body.at(self._moment_at(node, index)):
                self.of_type[key] = self._rounded(node, value)
        return self.of_type[key]

    def _rounded(self, node: Node, value: Value) -> Value:
        if is_rounded(node, self.buffers.keys() | self.rounded - {node}):
            return value
        if value.is_literal:
            return Value(rounded_literal(value.text, node.dtype), is_literal=True)
        return self.body.bind(rounded(value.text, node.dtype), value.symbols)

    def unrounded(self, node: Node, index: Position, guard: Guard = ()) -> Value:
        """The same with all bits that the kernel has of it."""
        key = (node, index, guard)
        if key not in self.known:
            with self.body.at(self._moment_at(node, index)):
                self.known[key] = self._write(node, index, guard)
        return self.known[key]

    def _moment_at(self, node: Node, index: Position) -> Moment:
        """From when on the node can be computed there: not before a loaded index is."""
        symbols = frozenset().union(*(part.symbols() for part in index))
        loaded = (moment for symbol, moment in self.loaded_from.items() if symbol in symbols)
        return max(self.moment_of(node), *loaded, Moment.START)

    def filled(self, need: Access, fill: str) -> Value:
        """The value, with `fill` for masked elements where a load can give it by itself."""
        stored = self._stored_behind(need) if fill else None
        if stored is not None:
            with self.body.at(self._moment_at(stored.node, stored.index)):
                return self._load(stored.node, stored.index, (), fill)
        return self.value(need.node, need.index)

    def is_filled(self, need: Access, fill: float) -> bool:
        """Whether masked elements of the value are `fill`: a load behind views, or such a pad."""
        if self._stored_behind(need) is not None:
            return True
        while need.node.kind in ("view", "window"):
            (need,) = accesses(need.node, need.index)
        if need.node.op != "pad" or need.node.attr("value") != fill:
            return False
        (inner,) = accesses(need.node, need.index)
        stored = self._stored_behind(inner)
        return stored is not None and self._decides_all(inner.conditions, stored)

    def cut_off(self, need: Access, symbol: Symbol) -> tuple[Value, str]:
        """The value as it is written, and the text of it with zeros beyond a symbol's mask."""
        mask = self.masks.get(symbol, "")
        value = self.filled(need, "0.0" if mask else "")
        is_filled = symbol in value.symbols and self.is_filled(need, 0.0)
        if not mask or is_filled:
            return value, value.text
        zero = "0.0" if need.node.type.kind == "float" else "0"
        return value, f"tl.where({mask}, {value.text}, {zero})"

    def forget_all(self) -> None:
        """Drop all values: lines that come later stand elsewhere."""
        self.known.clear()
        self.of_type.clear()

    def forget(self, symbols: frozenset[Symbol]) -> None:
        """Drop the values that vary with the symbols of a closed loop."""
        self.known, self.of_type = (
            {key: value for key, value in found.items() if not value.symbols & symbols}
            for found in (self.known, self.of_type)
        )
        self.clamped = {
            text: value for text, value in self.clamped.items() if not value.symbols & symbols
        }
        self.conditions = {
            condition: name
            for condition, name in self.conditions.items()
            if not self.varies_with(condition.index) & symbols
        }

    def varies_with(self, index: Index) -> frozenset[Symbol]:
        """Loop symbols behind an index, also behind loaded ones."""
        found: set[Symbol] = set()
        for symbol in index.symbols():
            found |= self.loaded.get(symbol, {symbol})
        return frozenset(found)

    def _write(self, node: Node, index: Position, guard: Guard) -> Value:
        if node in self.buffers:
            return self._load(node, index, guard)
        if node.op == "scalar":
            return Value(literal(node.attr("value"), node.dtype), is_literal=True)
        if node.op == "extent":
            text = f"{kernel_text(node.attr('extent'))}.to(tl.int64)"
            return self.body.bind(text, ())
        if node.op == "iota":
            return self._write_iota(index[node.attr("axis")])
        if is_unrolled(node):
            return self._write_unrolled(node, index, guard)
        if node.kind in _WRITERS:
            return _WRITERS[node.kind](self, node, index, guard)
        value = self.stops(node, index)
        if value is None:
            raise _misplaced(node)
        return value

    def _load(self, node: Node, index: Position, guard: Guard, other: str = "") -> Value:
        offset = ix.linear(index, node.shape) + ix.constant(-self.starts.get(node, 0))
        symbols = self.varies_with(offset)
        text, inside = str(offset), []
        for condition in guard:
            varies = self.varies_with(condition.index)
            # A condition on other symbols says nothing about this address. What was read, at one
            # place, varies with none.
            if varies & symbols or condition.index.symbols() & offset.symbols():
                text += "".join(f" + {extra.name}*0" for extra in sorted_symbols(varies - symbols))
                symbols |= varies
                inside.append(self.condition(condition))
        masks = [name for at, name in self.masks.items() if at in symbols] + inside
        mask = f", mask={' & '.join(masks)}" if masks else ""
        fill = f", other={other}" if masks and other else ""
        convert = f".to({triton_type('f32')})" if computed(node.dtype) != node.dtype else ""
        if not self.is_of_gpu and any(symbol in self.loaded for symbol in offset.symbols()):
            text = f"({text})"  # one number of 32 bits, by which a processor gathers most lanes
        address = self.buffers[node] if text == "0" else f"{self.buffers[node]} + {text}"
        policy = self.policy(symbols)
        policy = f', eviction_policy="{policy}"' if policy else ""
        return self.body.bind(f"tl.load({address}{mask}{fill}{policy}){convert}", symbols)

    def _write_iota(self, position: Index) -> Value:
        if position.is_constant:
            return Value(str(position), is_literal=True)
        return self.body.bind(f"({position}).to(tl.int64)", self.varies_with(position))

    def _write_pointwise(self, node: Node, index: Position, guard: Guard) -> Value:
        operands = [self.operand(node, need, guard) for need in accesses(node, index)]
        if node.op in CONVERSIONS:
            text = CONVERSIONS[node.op](node, operands[0])
            return self.body.bind(text, operands[0].symbols) if text else operands[0]
        if self.is_of_gpu and node.op in DIVISIONS and node.type.kind == "int":
            return self._write_division(node, *operands)
        template = self._template(node)
        if node.op == "logical_not" and operands[0].is_literal:
            operands = [Value(wrapped(operands[0].text, "bool"))]
        # A choice has the type of what it chooses from.
        typing = operands[1:] if node.op == "where" else operands
        is_constant = all(operand.is_literal for operand in typing)
        texts = [
            as_tensor(operand.text, source.dtype)
            if operand.is_literal and (is_constant or f"{{{place}}}." in template)
            else operand.text
            for place, (operand, source) in enumerate(zip(operands, node.inputs, strict=True))
        ]
        expression = template.format(*texts, **dict(node.attrs))
        return self.body.bind(bare(expression), _joined(operands))

    def _template(self, node: Node) -> str:
        """The expression of an op for the target and element type."""
        row, of_f64 = OPS[node.op], node.dtype == "f64"
        is_short = DTYPES[node.dtype].itemsize_bytes == 2
        if self.approximates and row.approximate and is_short:
            return row.approximate
        if not self.is_of_gpu and row.short and is_short:
            return row.short
        if not self.is_of_gpu and row.processor and not of_f64:
            return row.processor
        if self.is_of_gpu and row.rounded and node.dtype == "f32":
            return row.rounded
        if row.double and of_f64:
            return row.double
        return row.floating if row.floating and node.type.kind == "float" else row.triton

    def _write_division(self, node: Node, data: Value, divisor: Value) -> Value:
        """A quotient or remainder of integers, that has a divisor where a mask leaves elements out.

        LLVM may take for granted that no integer is divided by 0, nor the least one by -1, and puts
        elements of 8 bits together by that: what one of them comes to spoils its neighbour.
        """
        kind, symbols = node.dtype, _joined([data, divisor])
        if data.is_literal:
            data = self.body.bind(as_tensor(data.text, kind), data.symbols)
        text, is_signed, source = divisor.text, not kind.startswith("u"), node.inputs[1]
        if source.op == "scalar" and source.attr("value") not in (0, -1):
            return self.body.bind(bare(OPS[node.op].triton.format(data.text, text)), symbols)
        if divisor.is_literal:
            text = self.body.bind(as_tensor(text, kind), divisor.symbols).text
        is_unfit = f"({text} == 0) | ({text} == -1)" if is_signed else f"{text} == 0"
        fit = self.body.bind(f"tl.where({is_unfit}, 1, {text})", divisor.symbols)
        found = self.body.bind(bare(OPS[node.op].triton.format(data.text, fit.text)), symbols)
        if node.op == "remainder" or not is_signed:
            return found
        return self.body.bind(f"tl.where({text} == -1, -{data.text}, {found.text})", symbols)

    def _write_check(self, node: Node, index: Position, guard: Guard) -> Value:
        """What tells of an element that is wrong; of others it means nothing."""
        found = self._checked(node, index, guard)
        text = (
            f"tl.where({found.text} < 0, {found.text}, tl.minimum({found.text}, {LARGEST - 1}) + 1)"
        )
        return self.body.bind(text, found.symbols)

    def is_wrong(self, node: Node, index: Position) -> str:
        """The condition under which a check tells of an element."""
        found = self._checked(node, index, ()).text
        if node.attr("kind") not in RANGED:
            return f"({found} == 0)"
        low, high = (kernel_text(node.attr(end)) for end in ("low", "high"))
        return f"(({found} < {low}) | ({found} > {high}))"

    def _checked(self, node: Node, index: Position, guard: Guard) -> Value:
        (need,) = accesses(node, index)
        operand = self.value(need.node, need.index, guard)
        given = wrapped(operand.text, need.node.dtype) if operand.is_literal else operand.text
        return self.body.bind(f"{given}.to(tl.int64)", operand.symbols)

    def _write_view(self, node: Node, index: Position, guard: Guard) -> Value:
        (need,) = accesses(node, index)
        conditions = remaining(need.conditions, guard)
        if not conditions:
            return self.value(need.node, need.index, guard)
        fill = literal(node.attr("value"), node.dtype)
        if not is_possible(conditions, guard):  # what lies there is not even asked for its index
            return Value(wrapped(fill, node.dtype))
        inner = (*guard, *conditions)
        stored = self._stored_behind(need)
        if stored is not None and self._decides_all(conditions, stored):
            return self._load(stored.node, stored.index, inner, fill)
        value = self.value(need.node, need.index, inner)
        return self._choose(conditions, value, Value(fill, is_literal=True), node.dtype)

    def _stored_behind(self, need: Access) -> Access | None:
        """The buffer behind views that have no conditions: its load can fill by itself."""
        while need.node not in self.buffers:
            if need.node.kind not in ("view", "window"):
                return None
            (need,) = accesses(need.node, need.index)
        return need

    def _decides_all(self, conditions: Guard, stored: Access) -> bool:
        """Whether every condition is one on the loaded address, so that the load's mask has it."""
        symbols = self.varies_with(ix.linear(stored.index, stored.node.shape))
        return all(self.varies_with(condition.index) & symbols for condition in conditions)

    def _choose(self, conditions: Guard, value: Value, otherwise: Value, dtype: str) -> Value:
        if value.is_literal and otherwise.is_literal:
            value = Value(as_tensor(value.text, dtype))  # two plain numbers have no type
        text = " & ".join(map(self.condition, conditions))
        symbols = frozenset().union(*(self.varies_with(row.index) for row in conditions))
        expression = f"tl.where({text}, {value.text}, {otherwise.text})"
        return self.body.bind(expression, symbols | value.symbols | otherwise.symbols)

    def condition(self, condition: Bound) -> str:
        """Name of the condition, computed once."""
        if condition not in self.conditions:
            text = str(condition if self.is_of_gpu else condition.undivided)
            text = text if "&" in text else text[1:-1]
            # Of indices that are not loaded: values of every moment share it.
            is_loaded = any(symbol in self.loaded for symbol in condition.index.symbols())
            with self.body.at(self.body.moment if is_loaded else Moment.START):
                found = self.body.bind(text, self.varies_with(condition.index), "inside")
            self.conditions[condition] = found.text
        return self.conditions[condition]

    def _write_concat(self, node: Node, index: Position, guard: Guard) -> Value:
        needs = [need for need in accesses(node, index) if is_possible(need.conditions, guard)]
        chosen: Value | None = None
        for need in reversed(needs):
            conditions = remaining(need.conditions, guard)
            value = self.value(need.node, need.index, (*guard, *conditions))
            if chosen is not None and conditions:
                value = self._choose(conditions, value, chosen, node.dtype)
            chosen = value
        if chosen is None:
            raise _misplaced(node)
        return chosen

    def _write_lookup(self, node: Node, index: Position, guard: Guard) -> Value:
        data, indices = node.inputs
        where = self.value(indices, lookup_index(node, index), guard)
        extent = data.shape[node.attr("axis")]
        if where.is_literal:
            loaded = ix.constant(int(where.text))
        else:
            bound = self._clamped(where, kernel_text(extent - 1))
            symbol = Symbol(bound.text, extent)
            self.loaded[symbol] = bound.symbols
            self.loaded_from[symbol] = self._moment_at(indices, lookup_index(node, index))
            loaded = ix.of(symbol)
        return self.value(data, data_index(node, index, loaded), guard)

    def _clamped(self, where: Value, last: str) -> Value:
        """An index from outside, which must never leave the buffer; the same one is one name."""
        text = f"tl.minimum(tl.maximum({where.text}, 0), {last}).to(tl.int32)"
        if text not in self.clamped:
            self.clamped[text] = self.body.bind(text, where.symbols)
        return self.clamped[text]

    def _write_unrolled(self, node: Node, index: Position, guard: Guard) -> Value:
        axes, total = node.attr("axes"), None
        # Of a product that only this sum reads. On a GPU the compiler makes one instruction of the
        # two, if it may; products that are stored, or rounded to their type, are values of their
        # own.
        factors = node.inputs[0]
        is_own = factors in self.buffers or factors in self.rounded or factors in self.apart
        is_fused = is_window_sum(node) and node.op == "sum" and node.type.kind == "float"
        is_fused = is_fused and not is_own and (bool(self.apart) or not self.is_of_gpu)
        for at in product(*map(range, reduced_extents(node))):
            position = list(index)
            for axis, place in zip(axes, at, strict=True):
                position[axis] = ix.constant(place)
            if total is not None and is_fused:
                total = self._write_multiply_add(node.inputs[0], tuple(position), guard, total)
                continue
            value = self.value(node.inputs[0], tuple(position), guard)
            if total is None:
                is_sum = node.op == "sum" and node.type.kind == "float"
                # From 0.0 on, as torch sums: of -0.0 alone too.
                total = self.body.bind(f"0.0 + {value.text}", value.symbols) if is_sum else value
            else:
                text = OPS[REDUCTIONS[node.op].combine].triton.format(total.text, value.text)
                total = self.body.bind(bare(text), total.symbols | value.symbols)
        if total is None:
            raise _misplaced(node)
        return total

    def _write_multiply_add(
        self, factors: Node, index: Position, guard: Guard, total: Value
    ) -> Value:
        """total + x · y, rounded once."""
        needs = accesses(factors, index)
        left, right = (self.operand(factors, need, guard) for need in needs)
        if left.is_literal or right.is_literal:
            value = self.value(factors, index, guard)
            return self.body.bind(f"{total.text} + {value.text}", _joined([total, value]))
        text = f"tl.fma({left.text}, {right.text}, {total.text})"
        return self.body.bind(text, _joined([left, right, total]))


_WRITERS: dict[str, Callable[[Emitter, Node, Position, Guard], Value]] = {
    "pointwise": Emitter._write_pointwise,
    "check": Emitter._write_check,
    "view": Emitter._write_view,
    "pad": Emitter._write_view,
    "window": Emitter._write_view,
    "concat": Emitter._write_concat,
    "take": Emitter._write_lookup,
    "gather": Emitter._write_lookup,
}


def sorted_symbols(symbols: frozenset[Symbol]) -> list[Symbol]:
    """Symbols in the order of their names."""
    return sorted(symbols, key=lambda symbol: symbol.name)


def _joined(values: list[Value]) -> frozenset[Symbol]:
    return frozenset().union(*(value.symbols for value in values))
