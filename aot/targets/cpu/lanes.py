"""Values at an element, or at `width` neighbouring elements, of a lazy tensor.

Integers are kept as linear forms `sum(coefficient * atom) + constant + stride * lane`, so that the
address of a chunk of lanes is known to be contiguous and its loop invariants stay apart. All other
values are plain LLVM operands, scalar where every lane has the same value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from aotc.aot.targets.cpu.linear import (
    DIVISIONS,
    EIGHT_BITS,
    LLVM_TYPES,
    Atom,
    EightBits,
    Int,
    Lane,
    Linear,
    Pointer,
    float_constant,
    integer,
    is_harmless_divisor,
    is_literal,
    is_vector,
    literal_cast,
    literal_lanes,
    number,
    reduced,
    scalar_type,
    wrap,
)
from aotc.aot.targets.cpu.ttir import Operation
from aotc.aot.targets.cpu.writer import Operand, Writer, constant

ITEMSIZE_BYTES = {
    "f64": 8, "f32": 4, "f16": 2, "bf16": 2,
    "i64": 8, "i32": 4, "i16": 2, "i8": 1, "i1": 1, "ptr": 8,
    **dict.fromkeys(EIGHT_BITS, 1),
}  # fmt: skip


class Lanes:
    """Arithmetic on lane values, `width` lanes at a time, written through a Writer.

    function_lanes: of the widest form that functions of vector math have here.
    """

    def __init__(self, writer: Writer, width: int, function_lanes: int) -> None:
        self.writer = writer
        self.width = width
        self.function_lanes = function_lanes

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
        """The LLVM value of a lane value: scalar when uniform, otherwise a vector.

        Of pointers to neighbours the first one, as loads and stores want it; see `values`.
        """
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
        if name in DIVISIONS and not is_harmless_divisor(b):
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
        return reduced(Int(a.kind, a.base.plus(b.base, sign), a.stride.plus(b.stride, sign)))

    def multiply(self, a: Int, b: Int) -> Int:
        if b.constant is None and a.constant is not None:
            a, b = b, a
        if b.constant is not None:
            return reduced(Int(a.kind, a.base.times(b.constant), a.stride.times(b.constant)))
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
        """`a / b` or `a % b`, rounded towards zero as the hardware does."""
        divisor = b.constant
        natural = a.natural and (b.natural or not signed)
        if divisor is not None and divisor > 0 and natural:
            exact = self._divide_terms(a, divisor, remainder)
            if exact is not None:
                return exact
            by_steps = (self._divide_rest if a.is_uniform else self._divide_steps)(a, b, remainder)
            if by_steps is not None:
                return by_steps
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

    def _divide_rest(self, a: Int, b: Int, remainder: bool) -> Int | None:
        """(n + r) / c = n / c and % c = n % c + r, where a g > r divides n and c."""
        divisor, terms = b.constant or 0, Int(a.kind, Linear(a.base.terms))
        whole = math.gcd(terms.base.multiple, divisor)
        rest = a.base.constant % whole if whole else 0
        if not rest or not terms.base.terms:
            return None
        found = self.divide(self.add(a, integer(rest, a.kind), -1), b, remainder=remainder)
        return self.add(found, integer(rest, a.kind)) if remainder else found

    def _divide_steps(self, a: Int, b: Int, remainder: bool) -> Int | None:
        """Of a number that lanes add known numbers s to, by a constant c.

        Where all s < g for a g that divides c and what the lanes have in common, no chunk straddles
        a multiple of c: (c·q + r + s) / c = q and … % c = r + s. Where c divides what they have in
        common: (c·q + s) / c = q + s / c and … % c = s % c.
        """
        parted, divisor = self.steps_of(a), b.constant or 0
        if parted is None or min(parted[1]) < 0:
            return None
        common, steps = Int(a.kind, parted[0]), parted[1]
        if max(steps) < math.gcd(common.base.multiple, divisor):
            found = self.divide(common, b, remainder=remainder)
            return self.add(found, self.stepped(steps, a.kind)) if remainder else found
        if common.base.multiple % divisor:
            return None
        if remainder:
            return self.stepped([step % divisor for step in steps], a.kind)
        found = self.divide(common, b, remainder=False)
        return self.add(found, self.stepped([step // divisor for step in steps], a.kind))

    def steps_of(self, a: Int) -> tuple[Linear, tuple[int, ...]] | None:
        """What all lanes have in common and what each adds to it, where that is a known number."""
        if not a.stride.is_constant:
            return None
        common = Linear((), a.base.constant)
        steps = [a.stride.constant * lane for lane in range(self.width)]
        for atom, coefficient in a.base.terms:
            if not is_vector(atom.operand):
                common = common.plus(Linear(((atom, coefficient),)))
                continue
            known = literal_lanes(atom.origin)
            if known is None or len(known) != self.width:
                return None
            steps = [step + coefficient * more for step, more in zip(steps, known, strict=True)]
        return common, tuple(steps)

    def stepped(self, steps: Sequence[int], kind: str) -> Int:
        """A known number in each lane, none below zero."""
        stride = steps[1] - steps[0] if len(steps) > 1 else 0
        if all(step == steps[0] + stride * lane for lane, step in enumerate(steps)):
            return Int(kind, Linear((), steps[0]), Linear((), stride))
        operand = Operand(self.literal(steps, kind), self.vector_type(kind))
        return self.atom(operand, kind, natural=True, most=max(steps))

    def _divide_terms(self, a: Int, divisor: int, remainder: bool) -> Int | None:
        """(c·q + r) / c = q and % c = r for constants 0 ≤ r < c."""
        if a.stride != Linear():
            return None
        rest = a.base.constant % divisor
        if any(c * atom.multiple % divisor for atom, c in a.base.terms):
            return None
        if remainder:
            return integer(rest, a.kind)
        found = integer(a.base.constant // divisor, a.kind)
        for atom, c in a.base.terms:
            part = math.gcd(c, divisor)
            own = self._part_of(atom, divisor // part, a.kind)
            found = self.add(found, own, c // part)
        return found

    def _part_of(self, atom: Atom, divisor: int, kind: str) -> Int:
        """An atom by a divisor of it."""
        if divisor == 1:
            return Int(kind, Linear(((atom, 1),)))
        by = self.literal([divisor] * self.width, kind) if is_vector(atom.operand) else divisor
        text = f"sdiv exact {atom.operand}, {by}"
        made = self.writer.emit(text, atom.operand.type, [atom.operand])
        most = None if atom.most is None else atom.most // divisor
        return self.atom(
            made, kind, max(1, atom.multiple // divisor), natural=atom.natural, most=most
        )

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

        return reduced(Int(kind, each(a.base), each(a.stride)))

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
        return self.values(pointer)

    def values(self, lane: Lane) -> Operand:
        """Each lane's own value: scalar when uniform. Of pointers each lane's address."""
        if not isinstance(lane, Pointer) or lane.offset.is_uniform:
            return self.operand(lane)
        base, steps = self._parted(lane._replace(offset=self.extend(lane.offset, "i64")))
        return self.moved(base, steps, lane.element)

    def moved(self, base: Operand, steps: Operand, element: str) -> Operand:
        """Addresses so many elements after one, or after each of some."""
        text = f"getelementptr {LLVM_TYPES[element]}, {base}, {steps}"
        return self.writer.emit(text, self.vector_type("ptr"), [base, steps])

    def _parted(self, pointer: Pointer) -> tuple[Operand, Operand]:
        """What is the same in all lanes, as an address, and the offsets of the lanes from it.

        The latter in 32 bits where they are these before an extension, or the whole offset is: then
        one instruction gathers all lanes.
        """
        offset = pointer.offset
        if is_vector(pointer.base):
            return pointer.base, self.splat(self.operand(offset))
        uniform, varying = Linear((), offset.base.constant), Linear()
        for term in offset.base.terms:
            if is_vector(term[0].operand):
                varying = varying.plus(Linear((term,)))
            else:
                uniform = uniform.plus(Linear((term,)))
        base = self.advance(pointer.base, uniform, pointer.element)
        steps = offset.stride.constant * (self.width - 1)
        if not varying.terms and offset.stride.is_constant and abs(steps) < 1 << 31:
            return base, self.operand(Int("i32", Linear(), offset.stride))
        if len(varying.terms) == 1 and offset.stride == Linear():
            ((atom, coefficient),) = varying.terms
            if atom.source is not None and coefficient == 1 and atom.source.type.endswith("i32>"):
                return base, atom.source
        if pointer.narrow is not None:
            return pointer.base, self.splat(self.operand(pointer.narrow))
        return base, self.splat(self.operand(Int("i64", varying, offset.stride)))

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


def divide(writer: Writer, name: str, a: Operand, b: Operand) -> Operand:
    """`sdiv`, `udiv`, `srem` or `urem` of operands of one type, which never traps: by 0, or of the
    least number by -1.

    Lanes that a mask leaves out hold zeros, and a trap in one of them would end the process. On a
    GPU such a quotient is unspecified, so it may be anything: here the divisor is 1 instead.
    """
    is_vector = b.type.startswith("<")
    element = scalar_type(b.type)
    flags = b.type.replace(element, "i1")

    def literal(value: int) -> str:
        return f"splat ({element} {value})" if is_vector else str(value)

    def equals(value: int) -> Operand:
        return writer.emit(f"icmp eq {b.type} {b.text}, {literal(value)}", flags, [b])

    unfit = equals(0)
    if name in ("sdiv", "srem"):
        is_minus_one = equals(-1)
        unfit = writer.emit(f"or {flags} {unfit.text}, {is_minus_one.text}", flags, [b])
    divisor = writer.emit(
        f"select {flags} {unfit.text}, {b.type} {literal(1)}, {b.type} {b.text}", b.type, [unfit, b]
    )
    made = writer.emit(f"{name} {a.type} {a.text}, {divisor.text}", a.type, [a, divisor])
    if name != "sdiv":  # a remainder by -1 is 0, as by 1
        return made
    negative = writer.emit(f"sub {a.type} {literal(0)}, {a.text}", a.type, [a])
    return writer.emit(
        f"select {flags} {is_minus_one.text}, {a.type} {negative.text}, {a.type} {made.text}",
        a.type,
        [is_minus_one, negative, made],
    )


Rule: TypeAlias = Callable[[Lanes, Operation, Sequence[Lane]], Lane]
"""Evaluates one operation on the lane values of its operands."""

LINEAR_KINDS = ("i32", "i64")
"""Integer types kept as linear forms; the others are plain operands."""


def typed(lanes: Lanes, operand: Operand, kind: str, *, most: int | None = None) -> Lane:
    """An operand as the lane value that its Triton element type asks for.

    With a `most`, the value is known to lie between 0 and that.
    """
    if kind not in LINEAR_KINDS:
        return operand
    return lanes.atom(operand, kind, natural=most is not None, most=most)


def result_kind(operation: Operation) -> str:
    return operation.results[0].type.element


def as_f32(lanes: Lanes, operand: Operand, kind: str) -> Operand:
    """Widens f16, bf16 and 8-bit floats (given as their bits); exact."""
    if kind in EIGHT_BITS:
        return _widened(lanes, operand, EIGHT_BITS[kind])
    if kind == "f16":
        wide = lanes.cast("fpext", operand, "float")
        return wide if is_literal(operand) else fenced(lanes, wide)
    if kind != "bf16":
        return operand
    word = lanes.writer.upper_halves.get(operand.text)
    if word is not None:  # rounded just now, and cut off for memory alone
        kept = lanes.binary("and", word, constant(-0x10000, "i32"))
        return lanes.cast("bitcast", kept, "float")
    bits = lanes.cast("zext", operand, "i32")
    shifted = lanes.binary("shl", bits, constant(16, "i32"))
    return lanes.cast("bitcast", shifted, "float")


def fenced(lanes: Lanes, operand: Operand) -> Operand:
    """The value as it is, where LLVM does not see what it was converted from.

    It computes in f16 what is asked of f32 where it sees that f16 is enough, and x86 has libm's
    functions alone for some of that: `fmaxf`, `fminf`, `copysign` of a rounded f64.
    """
    name = f"llvm.arithmetic.fence.{intrinsic_suffix(operand)}"
    return lanes.writer.call(name, operand.type, [operand])


def from_f32(lanes: Lanes, operand: Operand, kind: str) -> Operand:
    """Rounds f32 to nearest even; bf16 by integer arithmetic, NaN kept as a quiet NaN."""
    if kind in EIGHT_BITS:
        return narrowed(lanes, operand, EIGHT_BITS[kind], keeps_infinity=True)
    if kind == "f16":
        return lanes.cast("fptrunc", operand, "half")
    if kind != "bf16":
        return operand
    bits = lanes.cast("bitcast", operand, "i32")
    odd = lanes.binary("and", lanes.binary("lshr", bits, constant(16, "i32")), constant(1, "i32"))
    rounded = lanes.binary("add", lanes.binary("add", bits, odd), constant(0x7FFF, "i32"))
    nan = compare(lanes, "fcmp uno", operand, operand)
    # Chosen before it is cut off: what is widened again at once then stays in 32 bits.
    return _upper_half(lanes, select(lanes, nan, constant(0x7FC00000, "i32"), rounded))


def _upper_half(lanes: Lanes, word: Operand) -> Operand:
    """The upper 16 bits of i32: of vectors each second element of twice as many, which takes an
    instruction where a shift and a narrowing conversion take several."""
    if is_literal(word) or not is_vector(word):
        return lanes.cast("trunc", lanes.binary("lshr", word, constant(16, "i32")), "i16")
    count = int(word.type[1 : word.type.index(" ")])
    halves = f"<{2 * count} x i16>"
    pairs = lanes.writer.emit(f"bitcast {word} to {halves}", halves, [word])
    found = shuffled(lanes.writer, [pairs], range(1, 2 * count, 2))
    lanes.writer.upper_halves[found.text] = word
    return found


def _widened(lanes: Lanes, operand: Operand, form: EightBits) -> Operand:
    """The bits as those of an f32 whose exponent is too small by 127 − bias: times 2^(127 − bias).

    Infinities and NaN have an exponent, or a whole pattern, of their own.
    """

    def word(value: int) -> Operand:
        return constant(value, "i32")

    bits = lanes.cast("zext", operand, "i32")
    size = lanes.binary("and", bits, word(0x7F))
    moved = lanes.binary("shl", size, word(23 - form.mantissa))
    scale = float_constant(2.0 ** (127 - form.bias), "f32")
    wide = lanes.binary("fmul", lanes.cast("bitcast", moved, "float"), scale)
    found = lanes.cast("bitcast", wide, "i32")
    if form.has_infinity:
        special = compare(lanes, "icmp uge", size, word(0x7C))
        found = select(lanes, special, lanes.binary("or", moved, word(0x7F800000)), found)
    elif form.has_negative_zero:
        special = compare(lanes, "icmp eq", size, word(form.nan))
        found = select(lanes, special, word(0x7FC00000), found)
    sign = lanes.binary("shl", lanes.binary("and", bits, word(0x80)), word(24))
    found = lanes.binary("or", found, sign)
    if not form.has_negative_zero:
        special = compare(lanes, "icmp eq", bits, word(form.nan))
        found = select(lanes, special, word(0x7FC00000), found)
    return lanes.cast("bitcast", found, "float")


def narrowed(
    lanes: Lanes,
    operand: Operand,
    form: EightBits,
    *,
    towards_zero: bool = False,
    keeps_infinity: bool = False,
) -> Operand:
    """An f32 in 8 bits: to the nearest number, the even one of two; what is beyond the largest
    becomes the largest, as devices convert with saturation. NaN stays NaN."""

    def word(value: int) -> Operand:
        return constant(value & 0xFFFFFFFF, "i32")

    rest = 23 - form.mantissa
    bits = lanes.cast("bitcast", operand, "i32")
    size = lanes.binary("and", bits, word(0x7FFFFFFF))
    kept = lanes.binary("lshr", size, constant(rest, "i32"))
    rebias = (form.bias - 127) << 23
    normal = lanes.binary("add", size, word(rebias))
    if not towards_zero:
        odd = lanes.binary("and", kept, word(1))
        normal = lanes.binary("add", lanes.binary("add", normal, odd), word((1 << rest - 1) - 1))
    normal = lanes.binary("lshr", normal, constant(rest, "i32"))
    whole = lanes.cast("bitcast", size, "float")
    if towards_zero:
        unit = float_constant(2.0 ** (form.bias - 1 + form.mantissa), "f32")
        near = lanes.binary("fmul", whole, unit)
        limit = float_constant(256.0, "f32")
        near = select(lanes, compare(lanes, "fcmp olt", near, limit), near, limit)
        small = lanes.cast("fptosi", near, "i32")
    else:  # an addition that leaves just the bits of the smallest numbers, rounded
        magic = (127 - form.bias + rest + 1) << 23
        moved = lanes.binary("fadd", whole, lanes.cast("bitcast", word(magic), "float"))
        small = lanes.binary("sub", lanes.cast("bitcast", moved, "i32"), word(magic))
    is_small = compare(lanes, "icmp ult", size, word((127 - form.bias + 1) << 23))
    found = select(lanes, is_small, small, normal)
    beyond = compare(lanes, "icmp ugt", found, word(form.largest))
    found = select(lanes, beyond, word(form.largest), found)
    if keeps_infinity and form.has_infinity:
        infinite = compare(lanes, "icmp eq", size, word(0x7F800000))
        found = select(lanes, infinite, word(form.largest + 1), found)
    sign = lanes.binary("and", lanes.binary("lshr", bits, word(24)), word(0x80))
    signed = lanes.binary("or", found, sign)
    if not form.has_negative_zero:
        signed = select(lanes, compare(lanes, "icmp eq", found, word(0)), word(0), signed)
    nan = compare(lanes, "fcmp uno", operand, operand)
    return lanes.cast("trunc", select(lanes, nan, word(form.nan), signed), "i8")


def compare(lanes: Lanes, instruction: str, a: Operand, b: Operand) -> Operand:
    if is_vector(a) != is_vector(b):
        a, b = lanes.splat(a), lanes.splat(b)
    kind = lanes.vector_type("i1") if is_vector(a) else "i1"
    if is_vector(a):
        kind = a.type[: a.type.index(" x ") + 3] + "i1>"
    return lanes.writer.emit(f"{instruction} {a.type} {a.text}, {b.text}", kind, [a, b])


def select(lanes: Lanes, condition: Operand, a: Operand, b: Operand) -> Operand:
    if condition.text in ("true", "false"):
        return a if condition.text == "true" else b
    if any(is_vector(x) for x in (condition, a, b)):
        a, b = lanes.splat(a), lanes.splat(b)
        condition = lanes.splat(condition)
    return lanes.writer.emit(f"select {condition}, {a}, {b}", a.type, [condition, a, b])


def shuffled(writer: Writer, sources: Sequence[Operand], places: Sequence[int]) -> Operand:
    """The lanes at `places` of one vector, or of two one behind the other; -1 is any."""
    first, other = (*sources, Operand("poison", sources[0].type))[:2]
    order = ", ".join("i32 poison" if place < 0 else f"i32 {place}" for place in places)
    count = len(places)
    text = f"shufflevector {first}, {other}, <{count} x i32> <{order}>"
    return writer.emit(text, f"<{count} x {scalar_type(first.type)}>", sources)


def matched(lanes: Lanes, operands: Sequence[Lane]) -> list[Operand]:
    found = [lanes.operand(x) for x in operands]
    if any(is_vector(x) for x in found):
        found = [lanes.splat(x) for x in found]
    return found


def type_suffix(kind: str) -> str:
    """A scalar type in the name of an overloaded intrinsic: `float` → `f32`."""
    return {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(kind, kind)


def intrinsic_suffix(operand: Operand) -> str:
    """Name suffix of an overloaded intrinsic: `<16 x float>` → `v16f32`."""
    count = f"v{operand.type[1 : operand.type.index(' ')]}" if is_vector(operand) else ""
    return count + type_suffix(scalar_type(operand.type))
