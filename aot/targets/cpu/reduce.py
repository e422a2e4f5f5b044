"""`tt.reduce` and `tt.scan`: combinations along one dimension of a tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aotc.aot.ir.reductions import REDUCTIONS
from aotc.aot.ir.types import Scalar
from aotc.aot.targets.cpu import memory, root_ops, tiles
from aotc.aot.targets.cpu.elementwise import RULES
from aotc.aot.targets.cpu.evaluate import Kernel, literal
from aotc.aot.targets.cpu.lanes import select, shuffled, typed
from aotc.aot.targets.cpu.linear import (
    LLVM_TYPES,
    Int,
    Lane,
    Linear,
    float_constant,
    integer,
    is_vector,
    scalar_type,
    wrap,
)
from aotc.aot.targets.cpu.memory import Buffer, Index
from aotc.aot.targets.cpu.ttir import Block, Operation, Value
from aotc.aot.targets.cpu.writer import Operand, constant

ADDED_IN_TURN: Final = 32  # floats of one lane, before their sum is added to that of all
MOST_CHAINS: Final = 4  # of partial values of a long row, so that no addition waits for the last

_zero, _one, _lowest, _highest = (
    REDUCTIONS[name].identity for name in ("sum", "prod", "max", "min")
)
NEUTRAL: Mapping[str, Callable[[str], Scalar]] = {
    "addf": _zero, "addi": _zero, "mulf": _one, "muli": _one,
    "maxnumf": _lowest, "maximumf": _lowest, "minnumf": _highest, "minimumf": _highest,
    "maxsi": _lowest, "minsi": _highest, "maxui": _zero, "minui": lambda _: -1,
    "ori": _zero, "xori": _zero, "andi": lambda _: -1,
}  # fmt: skip
"""By an operation of Triton's dialect `arith`: what changes nothing that it combines."""


def neutral(block: Block, kind: str) -> Lane | None:
    """The neutral element of a combine function of one operation, if it has one."""
    name = block.operations[0].name.removeprefix("arith.")
    if len(block.operations) != 2 or name not in NEUTRAL or (kind == "i1" and name[-2:] == "si"):
        return None
    number = NEUTRAL[name](kind)
    if kind[0] in "fb":
        return float_constant(float(number), kind)
    if kind == "i1":
        return constant("true" if number else "false", "i1")
    found = wrap(int(number), kind)
    return integer(found, kind) if kind in ("i32", "i64") else constant(found, LLVM_TYPES[kind])


@dataclass(frozen=True, slots=True)
class _Fold:
    """A combination along `axis` of operands of one shape."""

    kernel: Kernel
    operation: Operation
    axis: int
    shape: tuple[int, ...]

    def elements(
        self,
        rest: Index,
        place: Int,
        cuts: Sequence[tiles.Conjunct] = (),
        filling: root_ops.Filling | None = None,
    ) -> list[Lane]:
        """What stands at `place` along the axis and at `rest` along the others."""
        found: list[Lane] = []

        def body(index: Index) -> None:
            if filling is not None:
                filling.enter(index)
            found.extend(self.kernel.at(x, index) for x in self.operation.operands)

        index = (*rest[: self.axis], place, *rest[self.axis :])
        tiles.with_facts(self.kernel, cuts, index, body)
        return found

    @property
    def is_asserted(self) -> bool:
        """Whether the combination checks what it gives."""
        return any(each.name == "tt.assert" for each in self.operation.body.operations)

    @property
    def is_checked(self) -> bool:
        """Whether anything of it is reported lane by lane, of one vector."""
        return self.is_asserted or self.kernel.guard is not None

    def combine(self, old: Sequence[Operand], new: Sequence[Lane]) -> list[Operand]:
        return self.splat(self.kernel.apply(self.operation.body, [*self.lanes(old), *new]))

    def splat(self, lanes: Sequence[Lane]) -> list[Operand]:
        return [self.kernel.lanes.splat(self.kernel.lanes.operand(x)) for x in lanes]

    def lanes(self, operands: Sequence[Operand]) -> list[Lane]:
        pairs = zip(operands, self.operation.operands, strict=True)
        return [typed(self.kernel.lanes, x, value.type.element) for x, value in pairs]

    def start(self, first: Callable[[], Sequence[Lane]]) -> tuple[list[Operand], bool]:
        """What to begin with: neutral elements, else the first ones; whether these."""
        operands = self.operation.operands
        found = neutral(self.operation.body, operands[0].type.element)
        if len(operands) == 1 and found is not None:
            return self.splat([found]), False
        return self.splat(first()), True

    def cuts(self) -> list[tiles.Conjunct]:
        """Where the operand is the neutral element beyond a mask, so that loops may end there."""
        if len(self.operation.operands) != 1:
            return []
        (value,) = self.operation.operands
        made, found = value.owner, neutral(self.operation.body, value.type.element)
        if made is None or found is None or value in self.kernel.buffers:
            return []
        if made.name == "arith.select" and made.operands[0].type.is_tensor:
            mask, other = made.operands[0], made.operands[2]
        elif made.name == "tt.load" and len(made.operands) == 3:
            mask, other = made.operands[1], made.operands[2]
        else:
            return []
        source = other.owner
        if source is None or source.name != "arith.constant":
            return []
        if literal(source.attributes["value"], other) != found:
            return []
        cuts = tiles.conjuncts(self.kernel, mask, self.shape)
        return [cut for cut in cuts if cut.bound.dim == self.axis]

    def holding(self, lane: int) -> list[tiles.Conjunct]:
        """What masks of loads behind the operands ask for along the lanes alone."""
        found: list[tiles.Conjunct] = []
        left, seen = list(self.operation.operands), set[Value]()
        while left:
            value = left.pop()
            made = value.owner
            if made is None or value in seen or value in self.kernel.buffers:
                continue
            seen.add(value)
            if made.name == "tt.load" and len(made.operands) > 1:
                if value.type.shape == self.shape:
                    found += tiles.conjuncts(self.kernel, made.operands[1], self.shape)
            elif made.name in RULES:
                left += made.operands
        return [cut.without(self.axis) for cut in found if cut.bound.dim == lane]

    def buffers(self) -> list[Buffer]:
        return [root_ops.new_buffer(self.kernel, x) for x in self.operation.results]

    def write(self, buffers: Sequence[Buffer], index: Index, lanes: Sequence[Lane]) -> None:
        for buffer, lane in zip(buffers, lanes, strict=True):
            memory.write_buffer(self.kernel, buffer, index, lane)

    def finish(self, buffers: Sequence[Buffer]) -> None:
        """The results are in the buffers from here on."""
        depth = self.kernel.writer.depth
        for result, buffer in zip(self.operation.results, buffers, strict=True):
            self.kernel.buffers[result] = buffer._replace(min_depth=depth)

    def each_row(self, row: Callable[[Index], None]) -> None:
        """`row` gets the places along the other axes."""
        outer = tuple(1 if d == self.axis else n for d, n in enumerate(self.shape))

        def body(index: Index) -> None:
            row(index[: self.axis] + index[self.axis + 1 :])

        with self.kernel.width(1):
            tiles.run(self.kernel, outer, body, lane_dim=self.axis)


def _fold(kernel: Kernel, operation: Operation) -> _Fold:
    shape = operation.operands[0].type.shape or ()
    return _Fold(kernel, operation, operation.integer("axis"), shape)


def reduce(kernel: Kernel, operation: Operation) -> None:
    """`tt.reduce`: scalars or a tensor of one dimension less, one a operand."""
    fold = _fold(kernel, operation)
    lane = tiles.lane_dimension(kernel, operation.operands[0])
    is_one_row = all(n == 1 for d, n in enumerate(fold.shape) if d != fold.axis)
    if fold.axis == lane or is_one_row:
        _reduce_lanes(fold)
    else:
        _reduce_across(fold, lane)


def _reduce_lanes(fold: _Fold) -> None:
    """Reduces along the dimension that is spread over lanes, then across the lanes."""
    kernel, cuts = fold.kernel, fold.cuts()
    is_scalar = len(fold.shape) == 1
    results = [] if is_scalar else fold.buffers()
    filling = root_ops.Filling(kernel, fold.shape)

    def row(rest: Index) -> None:
        with kernel.width(min(kernel.isa.lanes, fold.shape[fold.axis])):
            kernel.active_bounds = frozenset(cut.bound for cut in cuts)
            total = _row_total(fold, rest, cuts, filling)
        lanes = fold.lanes(total)
        if is_scalar:
            kernel.scalars.update(zip(fold.operation.results, lanes, strict=True))
        else:
            fold.write(results, rest, lanes)

    if is_scalar:
        row(())
        kernel.active_bounds = frozenset()
    else:
        fold.each_row(row)
        fold.finish(results)
    filling.finish([cut.bound for cut in cuts])


def _row_total(
    fold: _Fold, rest: Index, cuts: Sequence[tiles.Conjunct], filling: root_ops.Filling
) -> list[Operand]:
    """One row: lanes of partial results, several chains when the row is long, then one value."""
    kernel = fold.kernel
    width, size = kernel.lanes.width, fold.shape[fold.axis]
    lane = Linear((), 1 if width > 1 else 0)

    def elements(place: Linear, facts: Sequence[tiles.Conjunct]) -> list[Lane]:
        return fold.elements(rest, Int("i32", place, lane), facts, filling)

    constants = [cut.bound.upper.constant for cut in cuts]
    known = all(c is not None for c in constants)
    upper = max(0, min([size, *(c for c in constants if c is not None)])) if known else size
    start, is_first = fold.start(lambda: elements(integer(0).base, []))
    is_long = not is_first and upper >= 2 * MOST_CHAINS * width
    is_whole = known or tiles.end_at_multiples(cuts, MOST_CHAINS * width)
    is_split = is_long and not is_whole  # into whole steps, and the rest vector by vector
    chains = MOST_CHAINS if is_long else 1
    step = width * chains
    inside = cuts if known or is_split or tiles.end_at_multiples(cuts, step) else []
    begin = width if is_first else 0
    totals = [list(start) for _ in range(chains)]
    full = upper // step * step if known else 0
    if full > begin or not known:
        limit, may_skip = constant(full, "i32"), False
        if not known:
            limit, may_skip = tiles.limit(kernel, cuts, size)
        end = limit
        if is_split:
            limit = kernel.writer.emit(f"and {end}, {-step}", "i32", [end])
        carried = [x for chain in totals for x in chain]
        low, count = constant(begin, "i32"), len(start)
        with kernel.writer.loop(limit, step, carried, low, may_skip=may_skip) as loop:
            after: list[Operand] = []
            for chain in range(chains):
                base = kernel.lanes.atom(loop.counter, "i32", width, natural=True).base
                new = elements(base.plus(integer(chain * width).base), inside)
                after += fold.combine(loop.carried[chain * count : (chain + 1) * count], new)
            loop.next_values = after
        totals = [loop.results[i * count : (i + 1) * count] for i in range(chains)]
    total = totals[0]
    for other in totals[1:]:
        total = fold.combine(total, fold.lanes(other))
    if is_split:
        with kernel.writer.loop(end, width, total, limit) as loop:
            base = kernel.lanes.atom(loop.counter, "i32", width, natural=True).base
            loop.next_values = fold.combine(loop.carried, elements(base, []))
        total = loop.results
    if known:
        for offset in range(max(full, begin), upper, width):
            facts = cuts if offset + width <= upper else []
            total = fold.combine(total, elements(integer(offset).base, facts))
    return _across(fold, total)


def _across(fold: _Fold, total: Sequence[Operand]) -> list[Operand]:
    """Combines the lanes of each operand by halves until one is left."""
    kernel, current = fold.kernel, list(total)
    kinds = [x.type.element for x in fold.operation.operands]
    meets_constants = _meets_constants(fold.operation.body)
    width = kernel.lanes.width
    while width > 1:
        half = width // 2
        halves = range(half), range(half, width)
        parts = [
            [
                _half(kernel, x, places, kind, alone=meets_constants)
                for x, kind in zip(current, kinds, strict=True)
            ]
            for places in halves
        ]
        with kernel.width(half):
            current = fold.combine(parts[0], fold.lanes(parts[1]))
        width = half
    return [_first(kernel, x) for x in current]


def _meets_constants(body: Block) -> bool:
    """Whether a combination reads more than what it combines."""
    own = {*body.arguments, *(x for each in body.operations for x in each.results)}
    is_constant = any(each.name == "arith.constant" for each in body.operations)
    return is_constant or any(x not in own for each in body.operations for x in each.operands)


def _half(kernel: Kernel, operand: Operand, places: range, kind: str, *, alone: bool) -> Operand:
    """Some lanes; one that meets constants as a scalar (`alone`), as a float does that travels as
    its bits."""
    is_bits = kind[0] in "fb" and scalar_type(operand.type)[0] == "i"
    if len(places) > 1 or not (alone or is_bits):
        return shuffled(kernel.writer, [operand], places)
    text, kind = f"extractelement {operand}, i32 {places[0]}", scalar_type(operand.type)
    return kernel.writer.emit(text, kind, [operand])


def _first(kernel: Kernel, operand: Operand) -> Operand:
    if not is_vector(operand):
        return operand
    text = f"extractelement {operand}, i32 0"
    return kernel.writer.emit(text, scalar_type(operand.type), [operand])


def _reduce_across(fold: _Fold, lane: int) -> None:
    """Reduces along a dimension that is not spread over lanes: each lane has its own result."""
    kernel, axis, size = fold.kernel, fold.axis, fold.shape[fold.axis]
    results, cuts = fold.buffers(), fold.cuts()

    def body(rest: Index) -> None:
        start, is_first = fold.start(lambda: fold.elements(rest, integer(0)))
        upper, may_skip = tiles.limit(kernel, cuts, size)
        low, is_empty = constant(int(is_first), "i32"), size <= is_first
        may_skip = may_skip or is_empty
        if not is_first and _is_long_sum(fold):
            step = ADDED_IN_TURN
            with kernel.writer.loop(upper, step, start, low, may_skip=may_skip) as loop:
                end = kernel.writer.emit(f"add {loop.counter}, {step}", "i32", [loop.counter])
                end = kernel.writer.call("llvm.smin.i32", "i32", [end, upper])
                part = _added(fold, rest, start, loop.counter, end, cuts)
                loop.next_values = fold.combine(loop.carried, fold.lanes(part))
            total = loop.results
        else:
            total = _added(fold, rest, start, low, upper, cuts, may_skip=may_skip)
        fold.write(results, rest, fold.lanes(total))

    kept = fold.shape[:axis] + fold.shape[axis + 1 :]
    vectors = (
        1 if fold.is_checked else root_ops.vectors_across(kernel, fold.operation.operands, lane)
    )
    holding = fold.holding(lane) if vectors > 1 else ()
    at = lane - (lane > axis)
    tiles.run(kernel, kept, body, lane_dim=at, holding=holding, vectors=vectors)
    fold.finish(results)


def _is_long_sum(fold: _Fold) -> bool:
    """Whether floats are added that are so many that the sum of all rounds away what follows."""
    operations, kind = fold.operation.body.operations, fold.operation.operands[0].type.element
    is_sum = len(operations) == 2 and operations[0].name == "arith.addf"
    return is_sum and kind[0] in "fb" and fold.shape[fold.axis] >= 4 * ADDED_IN_TURN


def _added(
    fold: _Fold,
    rest: Index,
    start: Sequence[Operand],
    low: Operand,
    upper: Operand,
    cuts: Sequence[tiles.Conjunct],
    *,
    may_skip: bool = False,
) -> list[Operand]:
    """What is combined from one place along the axis to another, in turn."""
    kernel = fold.kernel
    with kernel.writer.loop(upper, 1, start, low, may_skip=may_skip) as loop:
        place = kernel.lanes.atom(loop.counter, "i32", natural=True)
        loop.next_values = fold.combine(loop.carried, fold.elements(rest, place, cuts))
    return loop.results


def scan(kernel: Kernel, operation: Operation) -> None:
    """`tt.scan`: a running combination along one axis, a vector at a time where lanes lie along it,
    else element by element."""
    fold = _fold(kernel, operation)
    results = fold.buffers()
    lane = tiles.lane_dimension(kernel, operation.operands[0])
    is_one_row = all(n == 1 for d, n in enumerate(fold.shape) if d != fold.axis)
    # By vector lanes are combined too that are not chosen: nothing is asserted of these.
    is_in_lanes = fold.axis == lane or is_one_row
    is_by_vector = fold.shape[fold.axis] > 1 and is_in_lanes and not fold.is_asserted
    row = _scan_vectors if is_by_vector else _scan_elements
    fold.each_row(lambda rest: row(fold, rest, results))
    fold.finish(results)


def _scan_elements(fold: _Fold, rest: Index, results: Sequence[Buffer]) -> None:
    kernel, size = fold.kernel, fold.shape[fold.axis]

    def place(step: Int) -> Int:
        is_reversed = fold.operation.attributes.get("reverse", False)
        return kernel.lanes.add(integer(size - 1), step, -1) if is_reversed else step

    def write(at: Int, lanes: Sequence[Lane]) -> None:
        fold.write(results, (*rest[: fold.axis], at, *rest[fold.axis :]), lanes)

    first = fold.elements(rest, place(integer(0)))
    write(place(integer(0)), first)
    start = [kernel.lanes.operand(x) for x in first]
    with kernel.writer.loop(constant(size, "i32"), 1, start, constant(1, "i32")) as loop:
        at = place(kernel.lanes.atom(loop.counter, "i32", natural=True))
        total = fold.combine(loop.carried, fold.elements(rest, at))
        write(at, fold.lanes(total))
        loop.next_values = total


def _scan_vectors(fold: _Fold, rest: Index, results: Sequence[Buffer]) -> None:
    """One row: each vector by itself, then combined with the last of the vectors before."""
    kernel, size = fold.kernel, fold.shape[fold.axis]
    width = min(kernel.isa.lanes, size)
    is_reversed = bool(fold.operation.attributes.get("reverse", False))
    last = 0 if is_reversed else width - 1

    def vector(start: Int) -> tuple[Int, list[Operand]]:
        """The place of the vector that begins so far from where the scan does, and its own scan."""
        at = kernel.lanes.add(integer(size - width), start, -1) if is_reversed else start
        at = Int("i32", at.base, Linear((), 1))
        return at, _scan_lanes(fold, fold.splat(fold.elements(rest, at)), is_reversed)

    def write(at: Int, found: Sequence[Operand]) -> None:
        fold.write(results, (*rest[: fold.axis], at, *rest[fold.axis :]), fold.lanes(found))

    def last_of(found: Sequence[Operand]) -> list[Operand]:
        return [shuffled(kernel.writer, [x], [last] * width) for x in found]

    with kernel.width(width):
        at, own = vector(integer(0))
        write(at, own)
        if size == width:
            return
        low = constant(width, "i32")
        with kernel.writer.loop(constant(size, "i32"), width, last_of(own), low) as loop:
            at, own = vector(kernel.lanes.atom(loop.counter, "i32", width, natural=True))
            write(at, fold.combine(loop.carried, fold.lanes(own)))
            # What the next vector waits for is one combination, not that and a shuffle.
            loop.next_values = fold.combine(loop.carried, fold.lanes(last_of(own)))


def _scan_lanes(fold: _Fold, found: list[Operand], is_reversed: bool) -> list[Operand]:
    """The scan of the lanes of one vector, in steps of 1, 2, 4 … (Hillis and Steele, 1986)."""
    kernel = fold.kernel
    width, step = kernel.lanes.width, 1
    while step < width:
        away = step if is_reversed else -step
        sources = [at + away for at in range(width)]
        is_there = [0 <= source < width for source in sources]
        places = [
            source if there else at
            for at, (source, there) in enumerate(zip(sources, is_there, strict=True))
        ]
        moved = [shuffled(kernel.writer, [x], places) for x in found]
        both = fold.combine(moved, fold.lanes(found))
        text = kernel.lanes.literal([str(there).lower() for there in is_there], "i1")
        mask = Operand(text, kernel.lanes.vector_type("i1"))
        found = [select(kernel.lanes, mask, new, old) for new, old in zip(both, found, strict=True)]
        step *= 2
    return found
