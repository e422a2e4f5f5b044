"""Integers of the CPU target against brute force: every operation, literals at every place.

Kernels are written as Triton IR, so that Triton's own folding does not stand before ours, and
operands are literals, scalars, tensors and indices in turn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

pytest.importorskip("triton")

from aotc.aot.targets.cpu.compile import compile_library
from aotc.aot.tasks.task import Request
from aotc.aot.tasks.workers import Workers
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features
from aotc.runtime.drivers.cpu.launch import Launcher
from aotc.runtime.drivers.cpu.library import Library

LANES = 16
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}


def signed(value: int, kind: str) -> int:
    bits = BITS[kind]
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def unsigned(value: int, kind: str) -> int:
    return value & ((1 << BITS[kind]) - 1)


def extremes(kind: str) -> list[int]:
    """Sixteen numbers of a type at which folding goes wrong, one a lane."""
    bits = BITS[kind]
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return [0, 1, 2, 3, 7, 8, -1, -2, -8, bits - 1, bits, low, low + 1, high, high - 1, high // 3]


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _divided(a: int, b: int) -> int:
    return _truncated(a, b) if b else a  # by 0: unspecified, and not compared


def _shifted(a: int, b: int, kind: str, name: str) -> int:
    """As GPUs shift: by as many bits as there are, or more, signs are left."""
    amount = min(unsigned(b, kind), BITS[kind])
    if name == "shli":
        return a << amount
    return (a if name == "shrsi" else unsigned(a, kind)) >> amount


OPERATIONS: dict[str, Callable[[int, int, str], int]] = {
    "addi": lambda a, b, kind: a + b,
    "subi": lambda a, b, kind: a - b,
    "muli": lambda a, b, kind: a * b,
    "andi": lambda a, b, kind: a & b,
    "ori": lambda a, b, kind: a | b,
    "xori": lambda a, b, kind: a ^ b,
    "maxsi": lambda a, b, kind: max(a, b),
    "minsi": lambda a, b, kind: min(a, b),
    "maxui": lambda a, b, kind: max(unsigned(a, kind), unsigned(b, kind)),
    "minui": lambda a, b, kind: min(unsigned(a, kind), unsigned(b, kind)),
    "divsi": lambda a, b, kind: _divided(a, b),
    "remsi": lambda a, b, kind: a - b * _divided(a, b),
    "divui": lambda a, b, kind: _divided(unsigned(a, kind), unsigned(b, kind)),
    "remui": lambda a, b, kind: unsigned(a, kind) % (unsigned(b, kind) or 1),
    **{
        name: lambda a, b, kind, name=name: _shifted(a, b, kind, name)
        for name in ("shli", "shrsi", "shrui")
    },
    "mulhiui": lambda a, b, kind: unsigned(a, kind) * unsigned(b, kind) >> BITS[kind],
}
PREDICATES: tuple[Callable[[int, int, str], bool], ...] = (
    lambda a, b, kind: a == b,
    lambda a, b, kind: a != b,
    lambda a, b, kind: a < b,
    lambda a, b, kind: a <= b,
    lambda a, b, kind: a > b,
    lambda a, b, kind: a >= b,
    lambda a, b, kind: unsigned(a, kind) < unsigned(b, kind),
    lambda a, b, kind: unsigned(a, kind) <= unsigned(b, kind),
    lambda a, b, kind: unsigned(a, kind) > unsigned(b, kind),
    lambda a, b, kind: unsigned(a, kind) >= unsigned(b, kind),
)
CONVERSIONS: dict[str, Callable[[int, str], int]] = {
    "extsi": lambda a, kind: a,
    "extui": unsigned,
    "trunci": lambda a, kind: a,
}
UNSPECIFIED = {"divsi", "remsi", "divui", "remui"}


@dataclass
class Term:
    """A value of the kernel in the making: its name, and what each lane should be."""

    name: str
    kind: str
    lanes: list[int]
    is_tensor: bool


@dataclass
class Kernel:
    """Triton IR of one program that stores rows of 16 numbers as i64."""

    lines: list[str] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    data: list[int] = field(default_factory=list)
    names: int = 0

    def write(self, text: str, kind: str, *, is_tensor: bool = False) -> str:
        self.names += 1
        self.lines.append(f"%v{self.names} = {text} -> {typed(kind, is_tensor)}")
        return f"%v{self.names}"

    def literal(self, value: int, kind: str) -> Term:
        name = self.write(f'"arith.constant"() <{{value = {value} : {kind}}}> : ()', kind)
        return Term(name, kind, [value] * LANES, is_tensor=False)

    def splat(self, term: Term) -> Term:
        if term.is_tensor:
            return term
        text = f'"tt.splat"({term.name}) : ({term.kind})'
        return Term(self.write(text, term.kind, is_tensor=True), term.kind, term.lanes, True)

    def index(self) -> Term:
        text = f'"tt.make_range"() <{{end = {LANES} : i32, start = 0 : i32}}> : ()'
        return Term(self.write(text, "i32", is_tensor=True), "i32", list(range(LANES)), True)

    def place(self, at: int) -> str:
        return self.write(f'"arith.constant"() <{{value = {at} : i64}}> : ()', "i64")

    def pointer(self, base: str, at: int, *, is_tensor: bool) -> str:
        start = self.write(
            f'"tt.addptr"({base}, {self.place(at)}) : (!tt.ptr<i64>, i64)', "!tt.ptr<i64>"
        )
        if not is_tensor:
            return start
        splat = self.write(f'"tt.splat"({start}) : (!tt.ptr<i64>)', "!tt.ptr<i64>", is_tensor=True)
        kinds = f"({typed('!tt.ptr<i64>', True)}, {typed('i32', True)})"
        text = f'"tt.addptr"({splat}, {self.index().name}) : {kinds}'
        return self.write(text, "!tt.ptr<i64>", is_tensor=True)

    def loaded(self, lanes: Sequence[int], kind: str, *, is_tensor: bool) -> Term:
        """Numbers from memory; a scalar is the first of them in every lane."""
        pointer = self.pointer("%in", len(self.data), is_tensor=is_tensor)
        self.data += lanes if is_tensor else lanes[:1]
        segments = "operandSegmentSizes = array<i32: 1, 0, 0>"
        source = typed("!tt.ptr<i64>", is_tensor)
        wide = self.write(
            f'"tt.load"({pointer}) <{{{segments}}}> : ({source})', "i64", is_tensor=is_tensor
        )
        found = Term(
            wide, "i64", [int(x) for x in (lanes if is_tensor else lanes[:1] * LANES)], is_tensor
        )
        return self.converted(found, kind)

    def converted(self, term: Term, kind: str, name: str = "") -> Term:
        if term.kind == kind:
            return term
        name = name or ("trunci" if BITS[kind] < BITS[term.kind] else "extsi")
        text = f'"arith.{name}"({term.name}) : ({typed(term.kind, term.is_tensor)})'
        lanes = [signed(CONVERSIONS[name](x, term.kind), kind) for x in term.lanes]
        return Term(self.write(text, kind, is_tensor=term.is_tensor), kind, lanes, term.is_tensor)

    def binary(self, name: str, a: Term, b: Term) -> Term:
        if a.is_tensor != b.is_tensor:
            a, b = self.splat(a), self.splat(b)
        kind, shape = a.kind, typed(a.kind, a.is_tensor)
        dialect = "tt" if name == "mulhiui" else "arith"
        text = f'"{dialect}.{name}"({a.name}, {b.name}) : ({shape}, {shape})'
        pairs = zip(a.lanes, b.lanes, strict=True)
        lanes = [signed(OPERATIONS[name](x, y, kind), kind) for x, y in pairs]
        return Term(self.write(text, kind, is_tensor=a.is_tensor), kind, lanes, a.is_tensor)

    def compared(self, predicate: int, a: Term, b: Term) -> Term:
        """The comparison as 0 or 1 of i64."""
        if a.is_tensor != b.is_tensor:
            a, b = self.splat(a), self.splat(b)
        shape = typed(a.kind, a.is_tensor)
        flag = self.write(
            f'"arith.cmpi"({a.name}, {b.name}) <{{predicate = {predicate} : i64}}> :'
            f" ({shape}, {shape})", "i1", is_tensor=a.is_tensor,
        )  # fmt: skip
        text = f'"arith.extui"({flag}) : ({typed("i1", a.is_tensor)})'
        pairs = zip(a.lanes, b.lanes, strict=True)
        lanes = [int(PREDICATES[predicate](x, y, a.kind)) for x, y in pairs]
        return Term(self.write(text, "i64", is_tensor=a.is_tensor), "i64", lanes, a.is_tensor)

    def store(self, term: Term, ignored: Sequence[bool] = ()) -> None:
        """Lanes that are `ignored` may be anything."""
        wide = self.splat(self.converted(term, "i64"))
        pointer = self.pointer("%out", len(self.rows) * LANES, is_tensor=True)
        kinds = f"({typed('!tt.ptr<i64>', True)}, {typed('i64', True)})"
        self.lines.append(f'"tt.store"({pointer}, {wide.name}) : {kinds} -> ()')
        skipped = ignored or [False] * LANES
        self.rows.append([None if s else x for x, s in zip(wide.lanes, skipped, strict=True)])

    def text(self) -> str:
        body = "\n    ".join(self.lines)
        return (
            '"builtin.module"() ({\n  "tt.func"() <{sym_name = 1 : i32}> ({\n'
            f"  ^bb0(%in: !tt.ptr<i64>, %out: !tt.ptr<i64>):\n    {body}\n"
            '    "tt.return"() : () -> ()\n  }) : () -> ()\n}) : () -> ()\n'
        )


def typed(kind: str, is_tensor: bool) -> str:
    return f"tensor<{LANES}x{kind}>" if is_tensor else kind


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    found = Workers(1)
    yield found
    found.close()


@pytest.fixture(params=["x86-64-v3", "x86-64-v4"])
def isa(request: pytest.FixtureRequest) -> str:
    if not ISA_FEATURES[request.param] <= features():
        pytest.skip(f"this processor is not {request.param}")
    return str(request.param)


def check(workers: Workers, isa: str, kernel: Kernel) -> None:
    """Runs the kernel once and compares every lane that is specified."""
    target = f"{compile_library.__module__}:{compile_library.__name__}"
    (outcome,) = workers.map([Request("folds", target, (kernel.text(), isa, True))])
    library, symbol, scratch_bytes, *_ = outcome.unwrap()
    given = np.array(kernel.data or [0], dtype=np.int64)
    found = np.zeros((len(kernel.rows), LANES), dtype=np.int64)
    slots = b"".join(x.ctypes.data.to_bytes(8, "little") for x in (given, found))
    Launcher(Library(library), symbol, scratch_bytes, 2)((1, 1, 1), slots)
    wrong = [
        (row, lane, int(found[row, lane]), x)
        for row, lanes in enumerate(kernel.rows)
        for lane, x in enumerate(lanes)
        if x is not None and x != found[row, lane]
    ]
    assert not wrong, f"{len(wrong)} lanes; (row, lane, found, expected): {wrong[:5]}"


def _unspecified(name: str, a: Term, b: Term) -> list[bool]:
    return [name in UNSPECIFIED and y == 0 for y in b.lanes]


SAMPLES = [pytest.param(3, id="some"), pytest.param(16, id="all", marks=pytest.mark.nightly)]


@pytest.mark.parametrize("literals", SAMPLES)
@pytest.mark.parametrize("kind", BITS)
def test_operations_of_literals_and_data(
    workers: Workers, isa: str, kind: str, literals: int
) -> None:
    """Each operation of (literal, literal), (data, literal), (literal, data), of each extreme."""
    kernel, values = Kernel(), extremes(kind)
    tensor = kernel.loaded(values, kind, is_tensor=True)
    draw = random.Random(kind)
    for name in OPERATIONS:
        if name == "mulhiui" and kind in ("i8", "i16"):
            continue
        for value in draw.sample(values, literals):
            literal = kernel.literal(value, kind)
            scalar = kernel.loaded([draw.choice(values)], kind, is_tensor=False)
            other = kernel.literal(draw.choice(values), kind)
            pairs = [(tensor, literal), (literal, tensor), (literal, other), (scalar, literal)]
            for a, b in pairs:
                kernel.store(kernel.binary(name, a, b), _unspecified(name, a, b))
    check(workers, isa, kernel)


@pytest.mark.parametrize("literals", SAMPLES)
@pytest.mark.parametrize("kind", ["i32", "i64"])
def test_comparisons_of_literals_and_data(
    workers: Workers, isa: str, kind: str, literals: int
) -> None:
    kernel, values = Kernel(), extremes(kind)
    tensor = kernel.loaded(values, kind, is_tensor=True)
    draw = random.Random(kind)
    for predicate in range(len(PREDICATES)):
        for value in draw.sample(values, literals):
            literal = kernel.literal(value, kind)
            shifted = kernel.binary("addi", tensor, literal)
            other = kernel.literal(draw.choice(values), kind)
            for a, b in ((tensor, literal), (shifted, tensor), (literal, other)):
                kernel.store(kernel.compared(predicate, a, b))
    check(workers, isa, kernel)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(x, marks=pytest.mark.nightly) for x in range(2, 12))]
)
def test_chains_of_operations_and_conversions(workers: Workers, isa: str, seed: int) -> None:
    """Forms of indices and data that are divided, shifted, compared and widened afterwards."""
    draw, kernel = random.Random(seed), Kernel()
    for _ in range(40):
        kind = draw.choice(("i32", "i64", "i32", "i16"))
        values = extremes(kind)
        draw.shuffle(values)
        source = draw.choice(("tensor", "scalar", "index"))
        if source == "index":
            term = kernel.converted(kernel.index(), kind)
        else:
            term = kernel.loaded(values, kind, is_tensor=source == "tensor")
        ignored = [False] * LANES
        for _ in range(draw.randint(2, 5)):
            if draw.random() < 0.3:
                wanted = draw.choice([x for x in BITS if x != term.kind and x != "i8"])
                is_wider = BITS[wanted] > BITS[term.kind]
                name = draw.choice(("extsi", "extui")) if is_wider else "trunci"
                term = kernel.converted(term, wanted, name)
                continue
            name = draw.choice([x for x in OPERATIONS if x != "mulhiui"])
            number = draw.choice([*extremes(term.kind), *range(-9, 10), 12, 16, 24])
            literal = kernel.literal(number, term.kind)
            pair = (term, literal) if draw.random() < 0.8 else (literal, term)
            ignored = [x or y for x, y in zip(ignored, _unspecified(name, *pair), strict=True)]
            term = kernel.binary(name, *pair)
        kernel.store(term, ignored)
        literal = kernel.literal(draw.choice(extremes(term.kind)), term.kind)
        predicate = draw.randrange(len(PREDICATES))
        kernel.store(kernel.compared(predicate, term, literal), ignored)
    check(workers, isa, kernel)
