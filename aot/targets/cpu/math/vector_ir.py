"""LLVM IR text of straight-line vector functions, written as Python expressions.

`Text` collects instructions; `Value` is an SSA value whose operators append to its text. Python
numbers become splat constants. A value has an element ("float", "double", "i32", "i64", "i1") and
the text's lanes; one lane gives scalar types, so the same expression makes both forms.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Number = int | float
_FLOATS = ("float", "double")
_SUFFIX = {"float": "f32", "double": "f64"}


def type_name(element: str, lanes: int) -> str:
    """LLVM's name of a type: `float`, `<16 x float>`."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def mangled(element: str, lanes: int) -> str:
    """A type inside an intrinsic's name: `f32`, `v16f32`, `v8i64`."""
    name = _SUFFIX.get(element, element)
    return name if lanes == 1 else f"v{lanes}{name}"


def constant(number: Number, element: str) -> str:
    """One lane of a constant; floats as the bits of a double, LLVM's exact form."""
    if element not in _FLOATS:
        return str(int(number))
    if element == "float":
        number = struct.unpack("<f", struct.pack("<f", number))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


@dataclass(slots=True)
class Text:
    """The body of one function under construction."""

    lanes: int
    lines: list[str] = field(default_factory=list)
    block: str = "entry"  # the label that the next instruction stands under

    def emit(self, element: str, instruction: str) -> Value:
        """Append `%vN = instruction` and return its value."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return Value(self, name, element)

    def splat(self, number: Number, element: str) -> Value:
        """A constant in every lane."""
        lane = f"{element} {constant(number, element)}"
        scalar = constant(number, element)
        return Value(self, scalar if self.lanes == 1 else f"splat ({lane})", element)

    def call(self, name: str, element: str, *operands: Value) -> Value:
        """Call a function that returns this element; intrinsics need no declaration."""
        arguments = ", ".join(str(value) for value in operands)
        return self.emit(element, f"call {type_name(element, self.lanes)} @{name}({arguments})")

    def intrinsic(self, name: str, *operands: Value) -> Value:
        """Call `llvm.<name>` overloaded on its first operand's type, which is the result's."""
        element = operands[0].element
        return self.call(f"llvm.{name}.{mangled(element, self.lanes)}", element, *operands)

    def in_parts(self, element: str, width: int, instruction: str, *operands: Value) -> Value:
        """An instruction that exists for so many of the lanes, whose number is a power of two times
        that; `{0}` … are its operands' names."""
        parts = []
        for start in range(0, self.lanes, width):
            picks = ", ".join(f"i32 {lane}" for lane in range(start, start + width))
            taken = [
                self.emit(
                    x.element, f"shufflevector {x}, {x.type} poison, <{width} x i32> <{picks}>"
                )
                for x in operands
            ]
            text = instruction.format(*(part.name for part in taken))
            parts.append(f"{type_name(element, width)} {self.emit(element, text).name}")
        while True:
            width *= 2
            picks = ", ".join(f"i32 {lane}" for lane in range(width))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            made = [
                self.emit(element, f"shufflevector {low}, {high}, <{width} x i32> <{picks}>")
                for low, high in pairs
            ]
            if len(made) == 1:
                return made[0]
            parts = [f"{type_name(element, width)} {each.name}" for each in made]

    def rarely(self, condition: Value, usual: Value, name: str, operand: Value) -> Value:
        """`usual`, except that lanes under the condition take `name(operand)`, called in a branch.

        `name` should be `cold`, which moves the branch out of the way.
        """
        anywhere = self._anywhere(condition)
        before, number = self.block, len(self.lines)
        rare, after = f"rare{number}", f"after{number}"
        self.lines += [f"  br i1 {anywhere}, label %{rare}, label %{after}", f"{rare}:"]
        merged = condition.select(self.call(name, usual.element, operand), usual)
        self.lines += [f"  br label %{after}", f"{after}:"]
        self.block = after
        ways = f"[ {usual.name}, %{before} ], [ {merged.name}, %{rare} ]"
        return self.emit(usual.element, f"phi {usual.type} {ways}")

    def rarely_repeated(
        self,
        condition: Value,
        usual: Value,
        start: Value,
        step: Callable[[Value], tuple[Value, Value]],
    ) -> Value:
        """`usual`, except that, with a lane under the condition, all take what `step` makes of
        `start`, and of that again as long as a lane of its second result holds.
        """
        anywhere = self._anywhere(condition)
        before, number = self.block, len(self.lines)
        again, after = f"again{number}", f"after{number}"
        self.lines += [f"  br i1 {anywhere}, label %{again}, label %{after}", f"{again}:"]
        self.block = again
        carried, place = self.emit(start.element, ""), len(self.lines) - 1
        found, goes_on = step(carried)
        ways = f"[ {start.name}, %{before} ], [ {found.name}, %{self.block} ]"
        self.lines[place] += f"phi {start.type} {ways}"
        goes_on_anywhere = self._anywhere(goes_on)
        self.lines += [f"  br i1 {goes_on_anywhere}, label %{again}, label %{after}", f"{after}:"]
        last, self.block = self.block, after
        ways = f"[ {usual.name}, %{before} ], [ {found.name}, %{last} ]"
        return self.emit(usual.element, f"phi {usual.type} {ways}")

    def repeated(
        self,
        start: Sequence[Value],
        step: Callable[..., tuple[Sequence[Value], Value]],
    ) -> list[Value]:
        """What `step` makes of `start`, and of its own first result again as long as a lane of
        its second one holds; at least once.
        """
        before, number = self.block, len(self.lines)
        again, after = f"again{number}", f"after{number}"
        self.lines += [f"  br label %{again}", f"{again}:"]
        self.block = again
        carried, places = [], []
        for value in start:
            carried.append(self.emit(value.element, ""))
            places.append(len(self.lines) - 1)
        found, goes_on = step(*carried)
        for value, made, place in zip(start, found, places, strict=True):
            ways = f"[ {value.name}, %{before} ], [ {made.name}, %{self.block} ]"
            self.lines[place] += f"phi {value.type} {ways}"
        anywhere = self._anywhere(goes_on)
        self.lines += [f"  br i1 {anywhere}, label %{again}, label %{after}", f"{after}:"]
        self.block = after
        return list(found)

    def _anywhere(self, condition: Value) -> str:
        """The name of an i1: whether a lane of the condition holds."""
        if self.lanes == 1:
            return condition.name
        reduction = f"call i1 @llvm.vector.reduce.or.{mangled('i1', self.lanes)}({condition})"
        return self.emit("i1", reduction).name


@dataclass(slots=True, eq=False)
class Value:
    """One SSA value; operators append instructions to its text."""

    text: Text
    name: str
    element: str

    @property
    def type(self) -> str:
        return type_name(self.element, self.text.lanes)

    def __str__(self) -> str:
        return f"{self.type} {self.name}"

    def like(self, other: Value | Number) -> Value:
        """`other` itself, or a number as a splat of this value's element."""
        return other if isinstance(other, Value) else self.text.splat(other, self.element)

    def _binary(self, float_name: str, integer_name: str, other: Value | Number) -> Value:
        name = float_name if self.element in _FLOATS else integer_name
        return self.text.emit(self.element, f"{name} {self}, {self.like(other).name}")

    def __add__(self, other: Value | Number) -> Value:
        return self._binary("fadd", "add", other)

    def __radd__(self, other: Number) -> Value:
        return self.like(other) + self

    def __sub__(self, other: Value | Number) -> Value:
        return self._binary("fsub", "sub", other)

    def __rsub__(self, other: Number) -> Value:
        return self.like(other) - self

    def __mul__(self, other: Value | Number) -> Value:
        return self._binary("fmul", "mul", other)

    def __rmul__(self, other: Number) -> Value:
        return self.like(other) * self

    def __truediv__(self, other: Value | Number) -> Value:
        return self._binary("fdiv", "sdiv", other)

    def __rtruediv__(self, other: Number) -> Value:
        return self.like(other) / self

    def __neg__(self) -> Value:
        if self.element in _FLOATS:
            return self.text.emit(self.element, f"fneg {self}")
        return 0 - self

    def __and__(self, other: Value | Number) -> Value:
        return self._binary("", "and", other)

    def __or__(self, other: Value | Number) -> Value:
        return self._binary("", "or", other)

    def __xor__(self, other: Value | Number) -> Value:
        return self._binary("", "xor", other)

    def __lshift__(self, bits: Value | Number) -> Value:
        return self._binary("", "shl", bits)

    def logical_right(self, bits: Value | Number) -> Value:
        return self._binary("", "lshr", bits)

    def __rshift__(self, bits: int) -> Value:
        """Arithmetic shift."""
        return self._binary("", "ashr", bits)

    def _compare(self, float_name: str, integer_name: str, other: Value | Number) -> Value:
        kind = f"fcmp {float_name}" if self.element in _FLOATS else f"icmp {integer_name}"
        return self.text.emit("i1", f"{kind} {self}, {self.like(other).name}")

    def __lt__(self, other: Value | Number) -> Value:
        return self._compare("olt", "slt", other)

    def __gt__(self, other: Value | Number) -> Value:
        return self._compare("ogt", "sgt", other)

    def __le__(self, other: Value | Number) -> Value:
        return self._compare("ole", "sle", other)

    def __ge__(self, other: Value | Number) -> Value:
        return self._compare("oge", "sge", other)

    def equals(self, other: Value | Number) -> Value:
        """Ordered equality."""
        return self._compare("oeq", "eq", other)

    def is_infinite(self) -> Value:
        return self.abs().equals(float("inf"))

    def is_nan(self) -> Value:
        return self.text.emit("i1", f"fcmp uno {self}, {self.name}")

    def select(self, yes: Value, no: Value | Number) -> Value:
        """Lanes of `yes` where this i1 holds, else of `no`."""
        return self.text.emit(yes.element, f"select {self}, {yes}, {yes.like(no)}")

    def cast(self, instruction: str, element: str) -> Value:
        """One of LLVM's conversions by name: bitcast, fpext, fptrunc, sitofp, fptosi, sext, …"""
        target = type_name(element, self.text.lanes)
        return self.text.emit(element, f"{instruction} {self} to {target}")

    def at_most(self, limit: float) -> Value:
        """min(self, limit); NaN stays NaN (one instruction: the order is that of `minps`)."""
        return (self > limit).select(self.like(limit), self)

    def at_least(self, limit: float) -> Value:
        """max(self, limit); NaN stays NaN."""
        return (self < limit).select(self.like(limit), self)

    def fma(self, factor: Value | Number, term: Value | Number) -> Value:
        """self · factor + term, rounded once."""
        return self.text.intrinsic("fma", self, self.like(factor), self.like(term))

    def abs(self) -> Value:
        return self.text.intrinsic("fabs", self)

    def sqrt(self) -> Value:
        return self.text.intrinsic("sqrt", self)

    def round_even(self) -> Value:
        return self.text.intrinsic("roundeven", self)

    def copysign(self, sign: Value) -> Value:
        return self.text.intrinsic("copysign", self, sign)

    def polynomial(self, coefficients: Sequence[float]) -> Value:
        """Horner's rule with fused multiply-adds; coefficients from the lowest power up."""
        result = self.like(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = result.fma(self, coefficient)
        return result


@dataclass(frozen=True, slots=True)
class Function:
    """A row of a table of functions."""

    arity: int
    build: Callable[..., Value]
    max_ulp: float  # stated bound; the test holds it on its samples
    note: str = ""
    cold: Callable[[int], tuple[str, ...]] | None = None  # definitions beside it, by lanes


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """A row of the table of device functions, whose operands and result have elements of their own.

    operands: their elements; build: the result of them; is_apart: it is not inlined, as what it
    changes must not reach other code; cold: definitions beside it, by lanes.
    """

    operands: tuple[str, ...]
    build: Callable[..., Value]
    is_apart: bool = False
    cold: Callable[[int], tuple[str, ...]] | None = None
