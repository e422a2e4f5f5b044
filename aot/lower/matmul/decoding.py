"""Recognises quantised weights in a product: narrow codes, with a scale and an offset for each
group.

    b[k, n] = factor[k // group, n] · (number of the code - zero) + term[k // group, n]

so that Σ a·b = Σ over groups of (factor · Σ a·(number - zero) + term · Σ a), in f32: each code is
widened exactly, and the factor is multiplied once for each chunk of contiguous codes. It does not
matter how the model writes the widening: whatever is computed from a single byte is tabulated for
all 256 bytes.

Functions import numpy when they compute: `aotc explain` reads this package where there is none.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotc.aot.ir import index as ix
from aotc.aot.ir.float8 import E4M3, E5M2, Format
from aotc.aot.ir.graph import Node
from aotc.aot.ir.index import Index, Symbol
from aotc.aot.ir.size import fixed
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.guards import is_possible
from aotc.aot.lower.matmul.operands import Product
from aotc.aot.schedule.trace import LEAVES, Access, accesses
from aotc.aot.traits import TargetTraits

if TYPE_CHECKING:
    from aotc.aot.ir.storage import Array

CHUNK_BYTES = 16  # codes that a thread loads at once
LARGEST_STEP = 512  # elements of k of a tile of codes
LARGEST_ZERO = 256  # what the widening of integer codes subtracts exactly


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of narrow number: the numbers of each byte; what it is called in `codes.py`.

    `flip`: the bits of a word, as i32, to invert so that codes are numbers from 0 on; `bias`: what
    they then are more.
    """

    name: str
    numbers: tuple[tuple[float, ...], ...]  # for each code in a byte, the first one first
    suffix: str  # of the functions
    flip: int = 0
    bias: int = 0
    is_float: bool = False

    @property
    def bits(self) -> int:
        """Bits of one code."""
        return 8 // len(self.numbers)


@dataclass(frozen=True, slots=True)
class Term:
    """A value that all codes of a chunk share: an access, a number, or arithmetic on two terms."""

    op: str  # "access", "number", "+", "-", "*", "/"
    access: Access | None = None
    number: float = 0.0
    parts: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Decoding:
    """The right operand of a product as codes; indices are in its own symbols and `chunk`."""

    code: Code
    codes: Node
    columns: Symbol  # which row of codes
    offset: Index  # the byte of a chunk's first code
    chunk: Symbol  # which chunk of a row
    zero: int = 0
    factor: Term | None = None
    term: Term | None = None

    @property
    def chunk_elements(self) -> int:
        """Codes of a chunk."""
        return CHUNK_BYTES * 8 // self.code.bits

    @property
    def largest_step(self) -> int:
        """Elements of k, a power of two, that have one factor and term; at most LARGEST_STEP."""
        found, count = LARGEST_STEP, fixed(self.chunk.extent)
        while found > self.chunk_elements:
            chunks = found // self.chunk_elements
            if count % chunks == 0 and self._is_same_within(chunks):
                return found
            found //= 2
        return self.chunk_elements

    def _is_same_within(self, chunks: int) -> bool:
        inner, count = Symbol("inner", chunks), fixed(self.chunk.extent)
        place = ix.symbol("step", count // chunks) * chunks + ix.of(inner)
        parts = [part for term in (self.factor, self.term) if term for part in _indices(term)]
        return not any(inner in part.substitute({self.chunk: place}).symbols() for part in parts)


def _indices(term: Term) -> tuple[Index, ...]:
    """All index expressions of a term."""
    own = term.access.index if term.access is not None else ()
    return (*own, *(index for part in term.parts for index in _indices(part)))


def decoding_of(product: Product, traits: TargetTraits) -> Decoding | None:
    """The right operand as codes; None where it is none, or its chunks do not lie well."""
    depth = product.group.domain.reduced
    operand = product.right
    if depth is None or not isinstance(depth.extent, int) or operand.strides is not None:
        return None
    if product.walk.is_split or product.root_op.dtype not in ("bf16", "f16", "f32"):
        return None
    for count in (1, 2):  # codes of a byte
        length = CHUNK_BYTES * count
        if depth.extent % length:
            continue
        chunk, element = Symbol("cb", depth.extent // length), Symbol("code", CHUNK_BYTES)
        reader = _Reader(frozenset(product.group.reads), element)
        found = []
        for phase in range(count):
            position = ix.of(chunk) * length + ix.of(element) * count + phase
            index = tuple(part.substitute({depth: position}) for part in operand.need.index)
            found.append(reader.affine(Access(operand.need.node, index)))
        decoding = _joined(found, operand.outer, chunk, element)
        if decoding is not None and (traits.has_float8 or not decoding.code.is_float):
            return decoding
    return None


@dataclass(frozen=True, slots=True)
class _Affine:
    """factor · value + term, of a value that a byte and nothing else decides."""

    codes: Node
    offset: Index
    values: tuple[float, ...]
    factor: Term | None = None
    term: Term | None = None


def _joined(
    found: list[_Affine | None], columns: Symbol, chunk: Symbol, element: Symbol
) -> Decoding | None:
    """One decoding of what was found for each code of a byte."""
    first = found[0]
    if first is None:
        return None
    for each in found:
        if each is None or replace(each, values=first.values) != first:
            return None
    strides = [first.offset.stride(symbol) for symbol in first.offset.symbols()]
    if first.offset.stride(element) != 1 or any(not isinstance(each, int) for each in strides):
        return None
    base = first.offset.substitute({element: ix.ZERO})
    aligned = [base.constant, *(base.stride(symbol) for symbol in base.symbols())]
    if any(not isinstance(each, int) or each % CHUNK_BYTES for each in aligned):
        return None
    tables = tuple(each.values for each in found if each is not None)
    for code in codes():
        if len(code.numbers) == len(tables):
            scaled = _scaled(tables, code.numbers)
            if scaled is not None:
                zero, factor, term = _terms(code, first, *scaled)
                return Decoding(code, first.codes, columns, base, chunk, zero, factor, term)
    return None


def _scaled(
    values: tuple[tuple[float, ...], ...], numbers: tuple[tuple[float, ...], ...]
) -> tuple[float, float] | None:
    """What the numbers are multiplied by, and what is added, so that they are the values."""
    import numpy

    wanted, given = numpy.array(values), numpy.array(numbers)
    finite = numpy.isfinite(given)
    low, high = given[finite].min(), given[finite].max()
    ends = [wanted[given == each] for each in (low, high)]
    factor = (ends[1][0] - ends[0][0]) / (high - low)
    if not numpy.isfinite(factor) or factor == 0:
        return None
    added = ends[0][0] - factor * low
    found = given * factor + added
    return (factor, added) if numpy.array_equal(found, wanted, equal_nan=True) else None


def _is_of_codes(values: tuple[float, ...]) -> bool:
    """Whether the value of each byte is an affine function of a number that it may code."""
    known = (numbers for code in codes() for numbers in code.numbers)
    return any(_scaled((values,), (numbers,)) is not None for numbers in known)


def _terms(
    code: Code, found: _Affine, scale: float, added: float
) -> tuple[int, Term | None, Term | None]:
    """Zero, factor and term of (scale · number + added) · factor + term."""
    zero, rest = -added / scale, 0.0
    if code.is_float or zero != int(zero) or abs(zero) > LARGEST_ZERO:
        zero, rest = 0.0, added
    factor, term = found.factor, found.term
    if rest:
        more = _number(rest) if factor is None else _of("*", factor, _number(rest))
        term = more if term is None else _of("+", term, more)
    if scale != 1:
        factor = _number(scale) if factor is None else _of("*", factor, _number(scale))
    return int(zero), factor, term


def _number(value: float) -> Term:
    return Term("number", number=float(value))


def _of(op: str, left: Term, right: Term) -> Term:
    return Term(op, parts=(left, right))


@dataclass(slots=True)
class _Reader:
    """Reads an expression over stored nodes, `reads`, at indices with `element` in them."""

    reads: frozenset[Node]
    element: Symbol

    def affine(self, need: Access) -> _Affine | None:
        """The expression as an affine function of one byte's value."""
        leaves = self._leaves(need)
        if leaves is None or not any(self._varies(leaf) for leaf in leaves):
            return None
        if len(leaves) == 1:
            (leaf,) = leaves
            found = self._values(need) if DTYPES[leaf.node.dtype].itemsize_bytes == 1 else None
            if found is not None:
                values = tuple(found.tolist())
                offset = ix.linear(leaf.index, leaf.node.shape)
                if _is_of_codes(values):
                    return _Affine(leaf.node, offset, values)
        node = need.node
        if node in self.reads:
            return None
        needs = [each for each in accesses(node, need.index) if is_possible(each.conditions)]
        if node.kind != "pointwise":
            return self.affine(needs[0]) if len(needs) == 1 else None
        return self._through(node, needs)

    def _through(self, node: Node, needs: list[Access]) -> _Affine | None:
        """Of arithmetic in which one operand has codes, and the other one only groups."""
        if node.op == "cast":
            target = DTYPES[node.dtype]
            is_wide = target.kind == "float" or target.itemsize_bytes >= 4
            is_exact = target.kind == "float" or DTYPES[node.inputs[0].dtype].kind == "int"
            return self.affine(needs[0]) if is_wide and is_exact else None
        row = DTYPES[node.dtype]
        if len(needs) != 2 or (row.kind == "int" and row.itemsize_bytes < 4):
            return None
        ways = {"mul": "*", "add": "+", "sub": "-", "div": "/"}
        if node.op not in ways or (node.op == "div" and row.kind != "float"):
            return None
        fine = [self._varies_within(each) for each in needs]
        if fine.count(True) != 1 or (fine[1] and node.op == "div"):
            return None
        found, other = self.affine(needs[fine.index(True)]), self._term(needs[fine.index(False)])
        return None if found is None else _combined(ways[node.op], found, other, fine[0])

    def _term(self, need: Access) -> Term:
        if need.node.op == "scalar":
            return _number(need.node.attr("value"))
        return Term("access", need)

    def _varies(self, leaf: Access) -> bool:
        return any(self.element in part.symbols() for part in leaf.index)

    def _varies_within(self, need: Access) -> bool:
        leaves = self._leaves(need)
        return leaves is None or any(map(self._varies, leaves))

    def _leaves(self, need: Access) -> frozenset[Access] | None:
        """The stored elements behind a value; None where they cannot be followed."""
        if need.node in self.reads:
            return frozenset({Access(need.node, need.index)})
        if need.node.op in LEAVES:
            moves = need.node.op == "iota" and not need.index[need.node.attr("axis")].is_constant
            return None if moves or need.node.op == "extent" else frozenset()
        if need.node.kind not in ("pointwise", "view", "concat"):
            return None
        found: frozenset[Access] = frozenset()
        for each in accesses(need.node, need.index):
            if is_possible(each.conditions):
                inner = self._leaves(each)
                if inner is None:
                    return None
                found |= inner
        return found

    def _values(self, need: Access) -> Array | None:
        """The value for each byte, as numbers; None where more than one byte decides."""
        import numpy

        from aotc.aot.ir.storage import widen

        found = self._tabulated(need)
        if found is None:
            return None
        return numpy.broadcast_to(widen(found, need.node.dtype).astype(numpy.float64), (256,))

    def _tabulated(self, need: Access) -> Array | None:
        import numpy

        from aotc.aot.ir.reference import evaluate

        node = need.node
        if node in self.reads:
            return _bytes().view(DTYPES[node.dtype].numpy)
        if node.op == "scalar":
            return evaluate(node, ())
        if node.op == "iota":
            element = need.index[node.attr("axis")]
            return numpy.asarray(element.constant, DTYPES[node.dtype].numpy)
        needs = [each for each in accesses(node, need.index) if is_possible(each.conditions)]
        if node.kind == "pointwise":
            operands = [self._tabulated(each) for each in needs]
            known = [each for each in operands if each is not None]
            return evaluate(node, known) if len(known) == len(operands) else None
        return self._tabulated(needs[0]) if len(needs) == 1 else None


def _combined(way: str, found: _Affine, other: Term, is_first: bool) -> _Affine:
    """(factor · v + term) and another term joined by an operation, as affine again."""
    factor, term = found.factor, found.term
    if way in "*/":
        whole = _number(1.0) if factor is None else factor
        factor = other if factor is None and way == "*" else _of(way, whole, other)
        term = None if term is None else _of(way, term, other)
    elif is_first or way == "+":
        zero = _number(0.0) if term is None else term
        term = other if term is None and way == "+" else _of(way, zero, other)
    else:  # other - (factor · v + term)
        minus = _number(-1.0)
        factor = minus if factor is None else _of("*", factor, minus)
        term = other if term is None else _of("-", other, term)
    return replace(found, factor=factor, term=term)


@functools.cache
def codes() -> tuple[Code, ...]:
    """The kinds of codes that products widen; nibbles with the low half of a byte first."""
    import numpy

    low, high = _bytes() & 15, _bytes() >> 4
    signed = [(each.astype(numpy.int16) ^ 8) - 8 for each in (low, high)]
    rows: Mapping[str, tuple[Array, ...]] = {
        "i8": (_bytes().view(numpy.int8),),
        "u8": (_bytes(),),
        "u4": (low, high),
        "i4": tuple(signed),
        "e4m3": (_numbers(E4M3),),
        "e5m2": (_numbers(E5M2),),
    }
    numbers = {
        name: tuple(tuple(map(float, part)) for part in parts) for name, parts in rows.items()
    }
    return (
        Code("i8", numbers["i8"], "bytes", flip=0x80808080 - (1 << 32), bias=128),
        Code("u8", numbers["u8"], "bytes"),
        Code("u4", numbers["u4"], "nibbles"),
        Code("i4", numbers["i4"], "nibbles", flip=0x88888888 - (1 << 32), bias=8),
        Code("e4m3", numbers["e4m3"], "e4m3", is_float=True),
        Code("e5m2", numbers["e5m2"], "e5m2", is_float=True),
    )


def _bytes() -> Array:
    """All bytes in order."""
    import numpy

    return numpy.arange(256, dtype=numpy.uint8)


def _numbers(kind: Format) -> Array:
    """The number of each byte of a format of 8-bit floats."""
    import numpy

    sign = numpy.where(_bytes() & 128, -1.0, 1.0)
    size = (_bytes() & 127).astype(numpy.int64)
    exponent, mantissa = size >> kind.mantissa_bits, size & ((1 << kind.mantissa_bits) - 1)
    part = mantissa / (1 << kind.mantissa_bits)
    number = numpy.where(
        exponent > 0,
        (1 + part) * numpy.exp2(exponent - float(kind.bias)),
        part * numpy.exp2(1.0 - kind.bias),
    )
    if kind.has_infinity:
        largest = (1 << kind.exponent_bits) - 1
        beyond = numpy.where(mantissa == 0, numpy.inf, numpy.nan)
        return numpy.asarray(sign * numpy.where(exponent == largest, beyond, number))
    return numpy.asarray(sign * numpy.where(size == 127, numpy.nan, number))
