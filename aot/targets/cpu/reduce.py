"""`tt.reduce` and `tt.scan`: combinations along one dimension of a tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from aotc.aot.targets.cpu import memory, root_ops, tiles
from aotc.aot.targets.cpu.elementwise import RULES
from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES, compare, select, shuffled, typed
from aotc.aot.targets.cpu.linear import (
    Int,
    Lane,
    Linear,
    float_constant,
    integer,
    is_vector,
    scalar_type,
)
from aotc.aot.targets.cpu.memory import Buffer, Index
from aotc.aot.targets.cpu.neutral import (
    WIDENING,
    is_number,
    name_of,
    neutral,
    neutral_number,
)
from aotc.aot.targets.cpu.ttir import Block, Operation, Value
from aotc.aot.targets.cpu.writer import Operand, constant

ADDED_IN_TURN: Final = 32  # floats of one lane, before their sum is added to that of all
MOST_CHAINS: Final = 4  # of partial values of a long row, so that no addition waits for the last
MOST_PARTIAL: Final = 8  # vectors of partial values of reductions of a long row together
EXTREMES: Mapping[str, str] = {"maxnumf": "ogt", "minnumf": "olt"}
"""Which pass over NaN, with the comparison that says that an element is beyond others."""
WIDE = ("f32", "f64")


@dataclass(frozen=True, slots=True)
class _Fold:
    """Combinations along `axis` of operands of one shape, in one loop."""

    kernel: Kernel
    operations: tuple[Operation, ...]  # several only where each has a neutral element
    axis: int
    shape: tuple[int, ...]
    is_scan: bool = False

    @property
    def operands(self) -> list[Value]:
        return [value for each in self.operations for value in each.operands]

    @property
    def results(self) -> list[Value]:
        return [value for each in self.operations for value in each.results]

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
            found.extend(self.kernel.at(x, index) for x in self.operands)

        index = (*rest[: self.axis], place, *rest[self.axis :])
        tiles.with_facts(self.kernel, cuts, index, body)
        return found

    @property
    def is_asserted(self) -> bool:
        """Whether a combination checks what it gives."""
        return any(
            inner.name == "tt.assert" for each in self.operations for inner in each.body.operations
        )

    @property
    def is_checked(self) -> bool:
        """Whether anything of it is reported lane by lane, of one vector."""
        return self.is_asserted or self.kernel.guard is not None

    def combine(self, old: Sequence[Operand], new: Sequence[Lane]) -> list[Operand]:
        found: list[Operand] = []
        for operation in self.operations:
            own = slice(len(found), len(found) + len(operation.operands))
            found += self._combined(operation, old[own], new[own])
        return found

    def _combined(
        self, operation: Operation, old: Sequence[Operand], new: Sequence[Lane]
    ) -> list[Operand]:
        lanes, name = self.kernel.lanes, name_of(operation)
        is_wide = operation.operands[0].type.element in WIDE
        if name in EXTREMES and is_wide and neutral(operation) is not None and not self.is_scan:
            # What was found so far is no NaN: what is not beyond it, as NaN, leaves it.
            fresh = lanes.splat(lanes.operand(new[0]))
            is_beyond = compare(lanes, f"fcmp {EXTREMES[name]}", fresh, old[0])
            return [lanes.splat(select(lanes, is_beyond, fresh, old[0]))]
        arguments = [*self.lanes(old, operation.operands), *new]
        return self.splat(self.kernel.apply(operation.body, arguments))

    def splat(self, lanes: Sequence[Lane]) -> list[Operand]:
        return [self.kernel.lanes.splat(self.kernel.lanes.operand(x)) for x in lanes]

    def lanes(self, operands: Sequence[Operand], values: Sequence[Value] = ()) -> list[Lane]:
        pairs = zip(operands, values or self.operands, strict=True)
        return [typed(self.kernel.lanes, x, value.type.element) for x, value in pairs]

    def start(self, first: Callable[[], Sequence[Lane]]) -> tuple[list[Operand], bool]:
        """What to begin with: neutral elements, else the first ones; whether these."""
        found: list[Lane] = []
        for each in self.operations:
            lane = neutral(each)
            if lane is None:
                return self.splat(first()), True
            found.append(lane)
        return self.splat(found), False

    def cuts(self) -> list[tiles.Conjunct]:
        """Where the operands are neutral elements beyond a mask, so that loops may end there."""
        return list({cut: None for each in self.operations for cut in self._cuts(each)})

    def _cuts(self, operation: Operation) -> list[tiles.Conjunct]:
        value, found = operation.operands[0], neutral_number(operation)
        while value.owner is not None and value.owner.name in WIDENING:
            value = value.owner.operands[0]
        made = value.owner
        if made is None or found is None or value in self.kernel.buffers:
            return []
        if made.name == "arith.select" and made.operands[0].type.is_tensor:
            mask, other = made.operands[0], made.operands[2]
        elif made.name == "tt.load" and len(made.operands) == 3:
            mask, other = made.operands[1], made.operands[2]
        else:
            return []
        if not is_number(other, found):
            return []
        cuts = tiles.conjuncts(self.kernel, mask, self.shape)
        return [cut for cut in cuts if cut.bound.dim == self.axis]

    def holding(self, lane: int) -> list[tiles.Conjunct]:
        """What masks of loads behind the operands ask for along the lanes alone; across the axis,
        for indices of results."""
        found: list[tiles.Conjunct] = []
        for load in self.loads():
            if len(load.operands) > 1:
                found += tiles.conjuncts(self.kernel, load.operands[1], self.shape)
        along = [cut for cut in found if cut.bound.dim == lane]
        return along if lane == self.axis else [cut.without(self.axis) for cut in along]

    def loads(self) -> list[Operation]:
        """The loads behind the operands, of their shape."""
        found: list[Operation] = []
        left, seen = self.operands, set[Value]()
        while left:
            value = left.pop()
            made = value.owner
            if made is None or value in seen or value in self.kernel.buffers:
                continue
            seen.add(value)
            if made.name == "tt.load":
                found += [made] * (value.type.shape == self.shape)
            elif made.name in RULES:
                left += made.operands
        return found

    def buffers(self) -> list[Buffer]:
        return [root_ops.new_buffer(self.kernel, x) for x in self.results]

    def write(self, buffers: Sequence[Buffer], index: Index, lanes: Sequence[Lane]) -> None:
        for buffer, lane in zip(buffers, lanes, strict=True):
            memory.write_buffer(self.kernel, buffer, index, lane)

    def finish(self, buffers: Sequence[Buffer]) -> None:
        """The results are in the buffers from here on."""
        depth = self.kernel.writer.depth
        for result, buffer in zip(self.results, buffers, strict=True):
            self.kernel.buffers[result] = buffer._replace(min_depth=depth)

    def each_row(self, row: Callable[[Index], None]) -> None:
        """`row` gets the places along the other axes."""
        outer = tuple(1 if d == self.axis else n for d, n in enumerate(self.shape))

        def body(index: Index) -> None:
            row(index[: self.axis] + index[self.axis + 1 :])

        with self.kernel.width(1):
            tiles.run(self.kernel, outer, body, lane_dim=self.axis)


def _fold(kernel: Kernel, *operations: Operation) -> _Fold:
    first = operations[0]
    shape = first.operands[0].type.shape or ()
    return _Fold(kernel, operations, first.integer("axis"), shape)


def reduce(kernel: Kernel, run: Sequence[Operation]) -> None:
    """`tt.reduce`: scalars or a tensor of one dimension less, one a operand. Those of a run have
    the loops in common that go along the same lanes to the same ends."""
    groups: dict[tuple[int, object, object], list[Operation]] = {}
    for operation in run:
        fold, lane = _fold(kernel, operation), tiles.lane_dimension(kernel, operation.operands[0])
        ends = frozenset(cut.bound for cut in fold.cuts())
        groups.setdefault((lane, ends, operation if fold.is_checked else None), []).append(
            operation
        )
    for (lane, *_), operations in groups.items():
        fold = _fold(kernel, *operations)
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
            kernel.scalars.update(zip(fold.results, lanes, strict=True))
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
    chains = max(1, MOST_PARTIAL // len(start)) if is_long else 1
    chains = min(chains, MOST_CHAINS)
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
    kinds = [x.type.element for x in fold.operands]
    meets_constants = any(_meets_constants(each.body) for each in fold.operations)
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
    vectors = 1 if fold.is_checked else root_ops.vectors_across(kernel, fold.operands, lane)
    holding = () if fold.is_checked else fold.holding(lane)
    is_cut = bool(holding) and all(
        _is_neutral_beyond(fold, holding, each) for each in fold.operations
    )
    kept, at = fold.shape[:axis] + fold.shape[axis + 1 :], lane - (lane > axis)
    along: dict[str, Any] = {"cuts": holding, "by_halves": True} if is_cut else {"holding": holding}

    def run(body: Callable[[Index], None]) -> None:
        tiles.run(kernel, kept, body, lane_dim=at, vectors=vectors, **along)

    def begin(rest: Index) -> None:
        start, _ = fold.start(lambda: fold.elements(rest, integer(0)))
        fold.write(results, rest, fold.lanes(start))

    width = min(vectors * kernel.isa.lanes, fold.shape[lane])
    rest = tiles.count(kernel, width, holding) % width if is_cut else 0
    is_by_strips = width < fold.shape[lane] or rest > kernel.isa.lanes
    is_by_strips = is_by_strips and size >= 2 * ADDED_IN_TURN and not fold.is_checked
    if is_by_strips or is_cut:  # what the loops leave out is neutral
        tiles.run(kernel, kept, begin, lane_dim=at, vectors=vectors)
    if is_by_strips:
        _reduce_by_strips(fold, results, cuts, run)
    else:
        run(lambda rest: _reduce_column(fold, results, cuts, rest))
    fold.finish(results)


def _is_neutral_beyond(
    fold: _Fold, holding: Sequence[tiles.Conjunct], operation: Operation
) -> bool:
    """Whether lanes where comparisons do not hold are anything, or the neutral element."""
    kernel, number = fold.kernel, neutral_number(operation)
    comparisons = {cut.comparison for cut in holding}

    def asks(mask: Value) -> bool:
        shape = mask.type.shape or ()
        cuts = tiles.conjuncts(kernel, mask, shape) if shape == fold.shape else []
        return comparisons.issubset(cut.comparison for cut in cuts)

    def is_anything(value: Value) -> bool:
        made = value.owner
        if made is None or value.type.shape != fold.shape or value in kernel.buffers:
            return False
        if made.name == "tt.load":
            return len(made.operands) == 2 and asks(made.operands[1])
        if made.name == "arith.select":
            return all(map(is_anything, made.operands[1:]))
        return made.name in RULES and any(map(is_anything, made.operands))

    def is_neutral(value: Value) -> bool:
        made = value.owner
        if (
            number is None
            or made is None
            or value.type.shape != fold.shape
            or value in kernel.buffers
        ):
            return False
        if made.name == "arith.constant":
            return is_number(value, number)
        if made.name in WIDENING:
            return is_neutral(made.operands[0])
        if made.name == "arith.select":
            if made.operands[0].type.is_tensor and asks(made.operands[0]):
                return is_neutral(made.operands[2])
            return all(map(is_neutral, made.operands[1:]))
        return is_anything(value)

    return not kernel.pending and is_neutral(operation.operands[0])


def _reduce_column(
    fold: _Fold, results: Sequence[Buffer], cuts: Sequence[tiles.Conjunct], rest: Index
) -> None:
    """Vectors of results, which stay in registers along the whole axis."""
    kernel, size = fold.kernel, fold.shape[fold.axis]
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


def _reduce_by_strips(
    fold: _Fold,
    results: Sequence[Buffer],
    cuts: Sequence[tiles.Conjunct],
    run: Callable[[Callable[[Index], None]], None],
) -> None:
    """All results of a tile, which hold what to begin with, after each few places along the axis:
    memory is read in its order, in which a processor reads ahead, and not again and again a part of
    each row."""
    kernel, size = fold.kernel, fold.shape[fold.axis]
    is_sum = _is_long_sum(fold)
    upper, may_skip = tiles.limit(kernel, cuts, size)
    is_first = any(neutral(each) is None for each in fold.operations)
    low, step = constant(int(is_first), "i32"), ADDED_IN_TURN
    with kernel.writer.loop(upper, step, lower=low, may_skip=may_skip) as loop:
        end = kernel.writer.emit(f"add {loop.counter}, {step}", "i32", [loop.counter])
        end = kernel.writer.call("llvm.smin.i32", "i32", [end, upper])
        depth = kernel.writer.depth

        def strip(rest: Index) -> None:
            known = [
                memory.read_buffer(kernel, each._replace(min_depth=depth), rest) for each in results
            ]
            total = fold.splat(known)
            start = fold.start(list)[0] if is_sum else total
            part = _added(fold, rest, start, loop.counter, end, cuts)
            found = fold.combine(total, fold.lanes(part)) if is_sum else part
            fold.write(results, rest, fold.lanes(found))

        run(strip)
        loop.next_values = []


def _is_long_sum(fold: _Fold) -> bool:
    """Whether floats are added that are so many that the sum of all rounds away what follows."""
    return fold.shape[fold.axis] >= 4 * ADDED_IN_TURN and any(
        len(each.body.operations) == 2
        and each.body.operations[0].name == "arith.addf"
        and each.operands[0].type.element[0] in "fb"
        for each in fold.operations
    )


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
    fold = replace(_fold(kernel, operation), is_scan=True)
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
        is_reversed = fold.operations[0].attributes.get("reverse", False)
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
    is_short = _exactly_neutral(fold) is not None  # few instructions a step, and one a move
    item_bytes = ITEMSIZE_BYTES[fold.operands[0].type.element] if is_short else 4
    width = min(kernel.isa.lanes * 4 // max(4, item_bytes), size)
    is_reversed = bool(fold.operations[0].attributes.get("reverse", False))
    last = 0 if is_reversed else width - 1

    holding = fold.holding(fold.axis) if is_short and not is_reversed else []

    def vector(start: Int, facts: Sequence[tiles.Conjunct]) -> tuple[Int, list[Operand]]:
        """The place of the vector that begins so far from where the scan does, and its own scan."""
        at = kernel.lanes.add(integer(size - width), start, -1) if is_reversed else start
        at = Int("i32", at.base, Linear((), 1))
        return at, _scan_lanes(fold, fold.splat(fold.elements(rest, at, facts)), is_reversed)

    def vectors(
        low: Operand, end: Operand, before: list[Operand], facts: Sequence[tiles.Conjunct]
    ) -> list[Operand]:
        """Those from one place to another, behind what is before them; what is behind them."""
        with kernel.writer.loop(end, width, before, low) as loop:
            start = kernel.lanes.atom(loop.counter, "i32", width, natural=True)
            at, own = vector(start, facts)
            write(at, fold.combine(loop.carried, fold.lanes(own)))
            # What the next vector waits for is one combination, not that and a shuffle.
            loop.next_values = fold.combine(loop.carried, fold.lanes(last_of(own)))
        return loop.results

    def write(at: Int, found: Sequence[Operand]) -> None:
        fold.write(results, (*rest[: fold.axis], at, *rest[fold.axis :]), fold.lanes(found))

    def last_of(found: Sequence[Operand]) -> list[Operand]:
        return [shuffled(kernel.writer, [x], [last] * width) for x in found]

    with kernel.width(width):
        at, own = vector(integer(0), [])
        write(at, own)
        if size == width:
            return
        low, end, before = constant(width, "i32"), constant(size, "i32"), last_of(own)
        if holding:
            upper, _ = tiles.limit(kernel, holding, size)
            whole = kernel.writer.emit(f"and {upper}, {-width}", "i32", [upper])
            whole = kernel.writer.call("llvm.smax.i32", "i32", [whole, low])
            before = vectors(low, whole, before, holding)
            low = whole
        vectors(low, end, before, [])


def _scan_lanes(fold: _Fold, found: list[Operand], is_reversed: bool) -> list[Operand]:
    """The scan of the lanes of one vector, in steps of 1, 2, 4 … (Hillis and Steele, 1986)."""
    kernel, found_neutral = fold.kernel, _exactly_neutral(fold)
    neutral_lanes = None if found_neutral is None else fold.splat([found_neutral])[0]
    width, step = kernel.lanes.width, 1
    while step < width:
        away = step if is_reversed else -step
        sources = [at + away for at in range(width)]
        is_there = [0 <= source < width for source in sources]
        if neutral_lanes is not None:  # moved in from beyond the end
            places = [source % width + width * (not there)
                      for source, there in zip(sources, is_there, strict=True)]  # fmt: skip
            moved = [shuffled(kernel.writer, [found[0], neutral_lanes], places)]
            found = fold.combine(moved, fold.lanes(found))
            step *= 2
            continue
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


def _exactly_neutral(fold: _Fold) -> Lane | None:
    """The element that gives each other element itself, bit by bit, if there is one."""
    (operation, *others), value = fold.operations, fold.operands[0]
    lane, name, kind = neutral(operation), name_of(operation), value.type.element
    if others or lane is None or (kind[0] in "fb" and name not in ("addf", "mulf")):
        return None
    return float_constant(-0.0, kind) if name == "addf" else lane
