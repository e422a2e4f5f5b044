"""Values at an element, or at `width` neighbouring elements, of a lazy tensor.

Integers are kept as linear forms `sum(coefficient * atom) + constant + stride * lane`, so that the
address of a chunk of lanes is known to be contiguous and its loop invariants stay apart. All other
values are plain LLVM operands, scalar where every lane has the same value.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from aotc.aot.targets.cpu.division import divide
from aotc.aot.targets.cpu.writer import Operand, Writer, constant

LLVM_TYPES = {
    "f64": "double", "f32": "float", "f16": "half", "bf16": "i16",
    "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8", "i1": "i1", "ptr": "ptr",
}  # fmt: skip
"""LLVM type of a Triton element type; bf16 travels as its bits."""

ITEMSIZE_BYTES = {
    "f64": 8, "f32": 4, "f16": 2, "bf16": 2,
    "i64": 8, "i32": 4, "i16": 2, "i8": 1, "i1": 1, "ptr": 8,
}  # fmt: skip


class Atom(NamedTuple):
    """An opaque integer in a linear form."""

    operand: Operand
    multiple: int = 1
    """The value is a multiple of this."""
    natural: bool = False
    """The value is known to be ≥ 0."""
    most: int | None = None
    """The largest value of a natural atom; None: an index (program id, loop counter), moderate."""
    source: Operand | None = None
    """What the operand is the sign extension of, if it is one."""

    @property
    def origin(self) -> Operand:
        """The operand before any sign extension."""
        return self.source or self.operand


class Linear(NamedTuple):
    """`sum(coefficient * atom) + constant`."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def multiple(self) -> int:
        """Largest known divisor; 0 stands for the value zero."""
        return math.gcd(self.constant, *(atom.multiple * c for atom, c in self.terms))

    @property
    def is_vector(self) -> bool:
        return any(a.operand.type.startswith("<") for a, _ in self.terms)

    def coefficient(self, operand: Operand) -> int:
        """What `operand`, or its sign extension, is multiplied by; 0 where it does not occur."""
        return sum(c for atom, c in self.terms if atom.origin == operand)

    def plus(self, other: Linear, sign: int = 1) -> Linear:
        sums: dict[Atom, int] = dict(self.terms)
        for atom, coefficient in other.terms:
            sums[atom] = sums.get(atom, 0) + sign * coefficient
        terms = tuple((a, c) for a, c in sums.items() if c)
        return Linear(terms, self.constant + sign * other.constant)

    def times(self, factor: int) -> Linear:
        if factor == 0:
            return Linear()
        return Linear(tuple((a, c * factor) for a, c in self.terms), self.constant * factor)


class Int(NamedTuple):
    """An integer of type `kind`: `base + stride * lane`, modulo 2 to the bits of the type."""

    kind: str
    base: Linear
    stride: Linear = Linear()

    @property
    def cannot_wrap(self) -> bool:
        """Whether the form is the value itself, not only modulo 2 to the bits of its type.

        Data wraps around, so its atoms count with their largest values. Indices are taken not to:
        program ids and loop counters times less than 2^(bits - 8), which strides of memory are.
        """
        bits, total = int(self.kind[1:]), abs(self.base.constant) + abs(self.stride.constant) * 64
        is_atom = len(self.base.terms) == 1 and self.base.terms[0][1] == 1
        if is_atom and self.stride == Linear() and not self.base.constant:
            return True
        has_index = False
        for atom, coefficient in (*self.base.terms, *self.stride.terms):
            if not atom.natural:
                return False
            if atom.most is None:
                has_index = True
                if abs(coefficient) >> (bits - 8):
                    return False
            else:
                total += abs(coefficient) * atom.most
        return not total >> (bits - 2 if has_index else bits - 1)

    @property
    def natural(self) -> bool:
        """The value is known to be ≥ 0."""
        return self.cannot_wrap and all(
            x.constant >= 0 and all(atom.natural and c >= 0 for atom, c in x.terms)
            for x in (self.base, self.stride)
        )

    @property
    def most(self) -> int | None:
        """The largest value of a natural form of one lane, if it is known."""
        known = [atom.most for atom, _ in self.base.terms]
        if self.stride != Linear() or not self.natural or None in known:
            return None
        return self.base.constant + sum(c * (atom.most or 0) for atom, c in self.base.terms)

    @property
    def is_uniform(self) -> bool:
        return self.stride == Linear() and not self.base.is_vector

    @property
    def constant(self) -> int | None:
        if self.stride == Linear() and self.base.is_constant:
            return self.base.constant
        return None


class Pointer(NamedTuple):
    """`base + offset` elements of type `element`; the offset may differ from lane to lane."""

    base: Operand
    offset: Int
    element: str


Lane: TypeAlias = Int | Operand | Pointer


def integer(value: int, kind: str = "i32") -> Int:
    return Int(kind, Linear((), wrap(value, kind)))


def float_constant(value: float, kind: str) -> Operand:
    """A float literal; LLVM writes f32 as the bits of the equal f64."""
    if kind == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 if value == value else 0x7FC0
        return constant(rounded & 0xFFFF, "i16")
    if kind == "f16":
        return constant(f"0xH{struct.unpack('<H', _half(value))[0]:04X}", "half")
    if kind == "f32":
        value = struct.unpack("<f", _single(value))[0]
    return constant(f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}", LLVM_TYPES[kind])


def _half(value: float) -> bytes:
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<e", math.copysign(math.inf, value))


def _single(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def is_vector(operand: Operand) -> bool:
    return operand.type.startswith("<")


def is_literal(operand: Operand) -> bool:
    return not operand.text.startswith(("%", "@"))


def scalar_type(kind: str) -> str:
    """`<16 x float>` → `float`."""
    return kind[kind.index(" x ") + 3 : -1] if kind.startswith("<") else kind


class Lanes:
    """Arithmetic on lane values, `width` lanes at a time, written through a Writer."""

    def __init__(self, writer: Writer, width: int) -> None:
        self.writer = writer
        self.width = width

    # ------------------------------------------------------------- conversion

    def vector_type(self, kind: str) -> str:
        return f"<{self.width} x {kind}>" if self.width > 1 else kind

    def splat(self, operand: Operand) -> Operand:
        """The same value in every lane."""
        if is_vector(operand) or self.width == 1:
            return operand
        kind = self.vector_type(operand.type)
        if is_literal(operand):
            return Operand(self.literal([operand.text] * self.width, operand.type), kind)
        first = self.writer.emit(f"insertelement {kind} poison, {operand}, i32 0", kind, [operand])
        picks = f"<{self.width} x i32> zeroinitializer"
        text = f"shufflevector {kind} {first.text}, {kind} poison, {picks}"
        made = self.writer.emit(text, kind, [first])
        self.writer.splats[made.text] = operand
        return made

    def uniform_source(self, operand: Operand) -> Operand | None:
        """The scalar that a vector is a splat of, if it is one."""
        return self.writer.splats.get(operand.text)

    def literal(self, items: Sequence[str | int], kind: str) -> str:
        return "<" + ", ".join(f"{kind} {x}" for x in items) + ">"

    def operand(self, lane: Lane) -> Operand:
        """The LLVM value of a lane value: scalar when uniform, otherwise a vector."""
        if isinstance(lane, Operand):
            return lane
        if isinstance(lane, Pointer):
            return self.address(lane)
        base = self.sum(lane.base, lane.kind)
        if lane.stride == Linear():
            return base
        kind = self.vector_type(lane.kind)
        stride = self.sum(lane.stride, lane.kind)
        if is_literal(stride):
            steps = Operand(
                self.literal(
                    [wrap(int(stride.text) * i, lane.kind) for i in range(self.width)], lane.kind
                ),
                kind,
            )
        else:
            iota = Operand(self.literal(range(self.width), lane.kind), kind)
            steps = self.binary("mul", self.splat(stride), iota)
        if base.text == "0":
            return steps
        return self.binary("add", self.splat(base), steps)

    def sum(self, linear: Linear, kind: str) -> Operand:
        """Writes a linear form, outermost terms first so that its invariants are hoisted."""
        total: Operand | None = None
        for atom, coefficient in sorted(
            linear.terms, key=lambda x: (is_vector(x[0].operand), x[0].operand.depth)
        ):
            term = atom.operand
            if coefficient != 1:
                term = self.binary("mul", term, constant(wrap(coefficient, kind), kind))
            if total is None and linear.constant:
                total = constant(wrap(linear.constant, kind), kind)
            total = term if total is None else self.binary("add", term, total)
        return total or constant(wrap(linear.constant, kind), kind)

    def binary(self, name: str, a: Operand, b: Operand, flags: str = "") -> Operand:
        """A two-operand instruction; a scalar meets a vector by splat. Division never traps."""
        if is_vector(a) != is_vector(b):
            a, b = self.splat(a), self.splat(b)
        if name in DIVISIONS and not _is_harmless_divisor(b):
            return divide(self.writer, name, a, b)
        return self.writer.emit(f"{name} {flags}{a.type} {a.text}, {b.text}", a.type, [a, b])

    def atom(
        self,
        operand: Operand,
        kind: str,
        multiple: int = 1,
        *,
        natural: bool = False,
        most: int | None = None,
    ) -> Int:
        """An integer that is not looked into any further; natural without a `most`: an index."""
        if is_literal(operand) and not is_vector(operand):
            return integer(number(operand), kind)
        return Int(kind, Linear(((Atom(operand, multiple, natural, most), 1),)))

    # -------------------------------------------------------- integer algebra

    def add(self, a: Int, b: Int, sign: int = 1) -> Int:
        return _reduced(Int(a.kind, a.base.plus(b.base, sign), a.stride.plus(b.stride, sign)))

    def multiply(self, a: Int, b: Int) -> Int:
        if b.constant is None and a.constant is not None:
            a, b = b, a
        if b.constant is not None:
            return _reduced(Int(a.kind, a.base.times(b.constant), a.stride.times(b.constant)))
        if a.is_uniform and not b.is_uniform:
            a, b = b, a
        if not b.is_uniform:
            return self.atom(self.binary("mul", self.operand(a), self.operand(b)), a.kind)
        factor = self.operand(b)
        return Int(
            a.kind,
            self._scale(a.base, factor, b.base.multiple),
            self._scale(a.stride, factor, b.base.multiple),
        )

    def _scale(self, linear: Linear, factor: Operand, multiple: int) -> Linear:
        """A product of two atoms may wrap around, so that nothing is known of its sign."""
        result = Linear()
        for atom, coefficient in linear.terms:
            product = self.binary("mul", atom.operand, factor)
            made = Atom(product, max(1, atom.multiple * multiple))
            result = result.plus(Linear(((made, coefficient),)))
        if linear.constant:
            made = Atom(factor, max(1, multiple))
            result = result.plus(Linear(((made, linear.constant),)))
        return result

    def divide(self, a: Int, b: Int, *, remainder: bool, signed: bool = True) -> Int:
        """`a / b` or `a % b`, rounded towards zero as the hardware does.

        When a chunk of lanes cannot straddle a multiple of a constant divisor, the quotient is
        uniform and the remainder stays contiguous:
        (c·q + r + lane) / c = q and … % c = r + lane, where width | c and width | r.
        """
        divisor = b.constant
        natural = a.natural and (b.natural or not signed)
        if divisor is not None and divisor > 0 and natural:
            exact = self._divide_terms(a, divisor, remainder)
            if exact is not None:
                return exact
            aligned = divisor % self.width == 0 and a.base.multiple % self.width == 0
            if a.stride == Linear((), 1) and aligned and not a.base.is_vector:
                found = self.divide(Int(a.kind, a.base), b, remainder=remainder)
                return found._replace(stride=a.stride) if remainder else found
        name = (
            ("urem" if remainder else "udiv")
            if natural or not signed
            else ("srem" if remainder else "sdiv")
        )
        made = self.binary(name, self.operand(a), self.operand(b))
        if divisor is None or divisor <= 0 or not natural:
            return self.atom(made, a.kind)
        multiple = math.gcd(a.base.multiple, divisor) if remainder else 1
        if a.stride != Linear():
            multiple = 1
        most = divisor - 1 if remainder else None if a.most is None else a.most // divisor
        return self.atom(made, a.kind, max(1, multiple), natural=True, most=most)

    def _divide_terms(self, a: Int, divisor: int, remainder: bool) -> Int | None:
        """(c·q + r) / c = q and % c = r for constants 0 ≤ r < c."""
        if a.stride != Linear():
            return None
        rest = a.base.constant % divisor
        if all(c % divisor == 0 for _, c in a.base.terms):
            if remainder:
                return integer(rest, a.kind)
            quotient = Linear(
                tuple((t, c // divisor) for t, c in a.base.terms), a.base.constant // divisor
            )
            return Int(a.kind, quotient)
        return None

    def convert(self, a: Int, kind: str, *, signed: bool) -> Int:
        """The value of `a` in a wider or narrower integer type, exactly."""
        bits, wanted = int(a.kind[1:]), int(kind[1:])
        if wanted <= bits or (a.cannot_wrap and (signed or a.natural)):
            return self.extend(a, kind)
        name = "sext" if signed else "zext"
        most = None if signed else (1 << bits) - 1
        if a.stride == Linear((), 1) and not a.base.is_vector and signed:
            # A chunk's lanes are taken not to straddle the end of the type.
            start = self.atom(self.cast(name, self.sum(a.base, a.kind), kind), kind)
            return start._replace(stride=a.stride)
        return self.atom(
            self.cast(name, self.operand(a), kind), kind, natural=not signed, most=most
        )

    def extend(self, a: Int, kind: str) -> Int:
        """An index in a wider or narrower integer type; it is taken not to wrap."""
        if a.kind == kind:
            return a
        wanted = int(kind[1:])
        name = "trunc" if wanted < int(a.kind[1:]) else "sext"

        def resized(atom: Atom) -> Atom:
            operand = self.cast(name, atom.operand, kind)
            if name == "sext":
                return atom._replace(operand=operand, source=atom.origin)
            fits = atom.natural and (atom.most is None or not atom.most >> (wanted - 1))
            most = atom.most if fits else None
            return atom._replace(operand=operand, source=None, natural=fits, most=most)

        def each(linear: Linear) -> Linear:
            return Linear(tuple((resized(t), c) for t, c in linear.terms), linear.constant)

        return _reduced(Int(kind, each(a.base), each(a.stride)))

    def cast(self, name: str, operand: Operand, kind: str) -> Operand:
        """A conversion instruction to scalar type `kind`, lane by lane."""
        if operand.type == kind:
            return operand
        wanted = (
            f"{operand.type[: operand.type.index(' x ') + 3]}{kind}>"
            if is_vector(operand)
            else kind
        )
        if name in ("sext", "zext", "trunc") and is_literal(operand) and not is_vector(operand):
            return literal_cast(name, operand, kind)
        return self.writer.emit(f"{name} {operand} to {wanted}", wanted, [operand])

    # ---------------------------------------------------------------- pointers

    def address(self, pointer: Pointer) -> Operand:
        """The address (or vector of addresses) of a pointer; outer offsets are added first."""
        offset = self.extend(pointer.offset, "i64")
        if offset.is_uniform or (offset.stride == Linear((), 1) and not offset.base.is_vector):
            return self.advance(pointer.base, offset.base, pointer.element)
        lanes = self.splat(self.operand(offset))
        kind = self.vector_type("ptr")
        return self.writer.emit(
            f"getelementptr {LLVM_TYPES[pointer.element]}, {pointer.base}, {lanes}",
            kind,
            [pointer.base, lanes],
        )

    def advance(self, base: Operand, offset: Linear, element: str) -> Operand:
        """`base + offset` elements, as a chain of additions from the outermost term inwards."""
        by_depth: dict[int, Linear] = {}
        for atom, coefficient in offset.terms:
            depth = atom.operand.depth
            by_depth[depth] = by_depth.get(depth, Linear()).plus(Linear(((atom, coefficient),)))
        steps = [by_depth[d] for d in sorted(by_depth)]
        if offset.constant:
            steps.append(Linear((), offset.constant))
        for step in steps:
            amount = self.sum(step, "i64")
            base = self.writer.emit(
                f"getelementptr {LLVM_TYPES[element]}, {base}, {amount}", "ptr", [base, amount]
            )
        return base


_LITERAL_LANE = re.compile(r"i\d+ (-?\d+)")
DIVISIONS = frozenset({"sdiv", "udiv", "srem", "urem"})


def number(operand: Operand) -> int:
    """The value of a scalar integer literal as it is written; `true` is 1."""
    if operand.text in ("true", "false"):
        return int(operand.text == "true")
    return int(operand.text)


def literal_cast(name: str, operand: Operand, kind: str) -> Operand:
    """`sext`, `zext` or `trunc` of a scalar literal; a bool is -1 or 1 in a wider type."""
    bits = int(operand.type[1:])
    value = number(operand) & ((1 << bits) - 1)
    if name == "sext" and value >> (bits - 1):
        value -= 1 << bits
    value = wrap(value, kind)
    return constant(("false", "true")[value] if kind == "i1" else value, kind)


def _is_harmless_divisor(operand: Operand) -> bool:
    """Whether a divisor is a literal by which no number's division traps: neither 0 nor -1."""
    if not is_literal(operand):
        return False
    kind = scalar_type(operand.type)
    found = [int(x) for x in _LITERAL_LANE.findall(operand.text)] or [number(operand)]
    return not {wrap(x, kind) for x in found} & {0, -1}


def _reduced(a: Int) -> Int:
    """Constants within the type's range, so that they can be compared and widened."""
    base = a.base._replace(constant=wrap(a.base.constant, a.kind))
    return Int(a.kind, base, a.stride)


def wrap(value: int, kind: str) -> int:
    """`value` as a signed integer of type `kind`."""
    bits = int(kind[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) and bits > 1 else value
