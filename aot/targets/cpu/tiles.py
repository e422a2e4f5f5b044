"""Loops over the elements of a tile, cut where a mask says that nothing follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

from aotc.aot.targets.cpu import memory
from aotc.aot.targets.cpu.elementwise import RULES
from aotc.aot.targets.cpu.evaluate import VIEWS, Kernel
from aotc.aot.targets.cpu.linear import Int, Linear, Pointer, integer
from aotc.aot.targets.cpu.memory import Bound, Index
from aotc.aot.targets.cpu.ttir import Operation, Value
from aotc.aot.targets.cpu.writer import Operand, constant

LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = 2, 3, 4, 5


class Conjunct(NamedTuple):
    """One comparison of a mask: below `bound.upper` in dimension `bound.dim` it holds."""

    comparison: Value
    path: tuple[Operation, ...]
    """Views between the mask and the comparison, outermost first."""
    bound: Bound
    reduced: int | None = None
    """An axis of the mask, which the indices of a reduction's results lack."""

    def without(self, axis: int) -> Conjunct:
        """The same for the results of a reduction along another axis."""
        dim = self.bound.dim
        bound = self.bound._replace(dim=dim - (dim > axis))
        return self._replace(bound=bound, reduced=axis)

    def fact(self, kernel: Kernel, index: Index) -> tuple[Value, Index]:
        """The comparison, and the index at which it is evaluated for an element of the tile."""
        if self.reduced is not None:
            index = (*index[: self.reduced], integer(0), *index[self.reduced :])
        return self.comparison, _through(kernel, self.path, index)


class Split(NamedTuple):
    """Where comparisons along the lanes change their answer, all at the same index."""

    place: Int
    changing: tuple[tuple[Conjunct, bool], ...]
    """Each with whether it holds below."""


Answers: TypeAlias = Sequence[tuple[Conjunct, bool]]
"""Comparisons, and whether they hold."""


def _through(kernel: Kernel, path: Sequence[Operation], index: Index) -> Index:
    """The index behind a chain of views, outermost first."""
    for view in path:
        _, index = VIEWS[view.name](kernel, view, view.results[0], index)
    return index


def conjuncts(kernel: Kernel, mask: Value, shape: Sequence[int]) -> list[Conjunct]:
    """The comparisons `i < upper` that `mask` is an `and` of; others are passed over."""
    found: list[Conjunct] = []

    def walk(value: Value, path: tuple[Operation, ...]) -> None:
        operation = value.owner
        if operation is None or value in kernel.buffers:
            return
        if operation.name == "arith.andi":
            for operand in operation.operands:
                walk(operand, path)
        elif operation.name in ("tt.broadcast", "tt.expand_dims"):
            walk(operation.operands[0], (*path, operation))
        elif operation.name == "arith.cmpi" and value.type.is_tensor:
            bound = _bound(kernel, operation, path, shape)
            if bound is not None:
                found.append(Conjunct(value, path, bound))

    walk(mask, ())
    return found


def _bound(
    kernel: Kernel, comparison: Operation, path: tuple[Operation, ...], shape: Sequence[int]
) -> Bound | None:
    """Where a comparison that holds for small indices of one dimension ends."""
    found = threshold(kernel, comparison, path, shape)
    return found[0] if found is not None and found[1] else None


def threshold(
    kernel: Kernel, comparison: Operation, path: tuple[Operation, ...], shape: Sequence[int]
) -> tuple[Bound, bool] | None:
    """Solves `i + a < b` (in any form) for the index `i` of one dimension: the index from which on
    a comparison has another answer, and whether it holds below that."""
    predicate = comparison.integer("predicate")
    if predicate not in (LESS, LESS_EQUAL, GREATER, GREATER_EQUAL):
        return None
    small, large = comparison.operands
    if predicate in (GREATER, GREATER_EQUAL):
        small, large = large, small

    def difference(index: Index) -> Int | None:
        place = _through(kernel, path, index)
        left, right = kernel.at(small, place), kernel.at(large, place)
        if not (isinstance(left, Int) and isinstance(right, Int)):
            return None
        # In 64 bits, where the difference of two i32 is itself.
        lanes = kernel.lanes
        return lanes.add(lanes.extend(right, "i64"), lanes.extend(left, "i64"), -1)

    with kernel.width(1):
        with kernel.probe() as depth:
            marks = [Operand(f"%dim{d}", "i32", depth) for d in range(len(shape))]
            probe = difference(tuple(kernel.lanes.atom(m, "i32") for m in marks))
        if probe is None:
            return None
        varying = {atom.origin: c for atom, c in probe.base.terms if atom.origin.depth == depth}
        dims = [d for d, mark in enumerate(marks) if mark in varying]
        if len(varying) != 1 or len(dims) != 1 or abs(varying[marks[dims[0]]]) != 1:
            return None
        holds_below = varying[marks[dims[0]]] < 0
        # the probe's text is gone: evaluate again at zero, where only the bound is left
        place = difference(tuple(integer(0) for _ in shape))
    if place is None:
        return None
    if not holds_below:
        place = kernel.lanes.add(integer(0, place.kind), place, -1)
    if holds_below == (predicate in (LESS_EQUAL, GREATER_EQUAL)):
        place = kernel.lanes.add(place, integer(1, place.kind))
    return Bound(dims[0], place), holds_below


def lane_dimension(kernel: Kernel, value: Value) -> int:
    """The dimension of a tensor to spread over vector lanes.

    The one along which most of the memory behind it is contiguous: what a tensor of pointers points
    at, or what the loads in an expression read, and what of it stands in buffers. Where that says
    nothing, the one along which a tensor of it that is to be kept in a buffer is stored; then the
    one of memory that varies along one dimension only, which along another is read once for all
    lanes. The last dimension that is not 1 where nothing says so at all.
    """
    shape = value.type.shape or ()
    candidates = [d for d, size in enumerate(shape) if size > 1]
    if len(candidates) < 2:
        return candidates[0] if candidates else len(shape) - 1
    with kernel.width(1), kernel.probe() as depth:
        marks = [Operand(f"%dim{d}", "i32", depth) for d in range(len(shape))]
        index = tuple(kernel.lanes.atom(m, "i32", natural=True) for m in marks)
        votes = [[0, 0, 0] for _ in shape]
        seen: set[tuple[Value, Index]] = set()
        read = _elements(kernel, value, index, seen)
        for place, is_stored in [*((each, 0) for each in read), *_stored(kernel, seen)]:
            strides = [place.base.coefficient(mark) for mark in marks]
            is_line = sum(stride != 0 for stride in strides) < 2
            for d in candidates:
                votes[d][1 if is_stored else 2 * is_line] += strides[d] == 1
    return max(reversed(candidates), key=lambda d: votes[d])


def _elements(
    kernel: Kernel, value: Value, index: Index, seen: set[tuple[Value, Index]]
) -> list[Int]:
    """The elements of memory that the evaluation of a tensor at `index` reads."""
    if (value, index) in seen:
        return []
    seen.add((value, index))
    if value.type.is_pointer:
        found = kernel.at(value, index)
        return [found.offset] if isinstance(found, Pointer) else []
    made, places = value.owner, []
    if value in kernel.buffers:
        return [memory.buffer_pointer(kernel, kernel.buffers[value], index).offset]
    if made is None or not value.type.is_tensor:
        return []
    if made.name in VIEWS:
        return _elements(kernel, *VIEWS[made.name](kernel, made, value, index), seen)
    if made.name == "tt.load":
        return _elements(kernel, made.operands[0], index, seen)
    if made.name in RULES:
        for operand in made.operands:
            places += _elements(kernel, operand, index, seen)
    return places


def _stored(kernel: Kernel, seen: Iterable[tuple[Value, Index]]) -> list[tuple[Int, int]]:
    """The elements of buffers that tensors of an expression are to be stored in, each with 1."""
    return [
        (memory.buffer_pointer(kernel, kernel.pending[value].buffer, index).offset, 1)
        for value, index in seen
        if value in kernel.pending
    ]


def run(
    kernel: Kernel,
    shape: Sequence[int],
    body: Callable[[Index], None],
    *,
    lane_dim: int | None = None,
    cuts: Sequence[Conjunct] = (),
    holding: Sequence[Conjunct] = (),
    vectors: int = 1,
    whole: int = 0,
    splits: Sequence[Split] = (),
    rows: int = 1,
    by_halves: bool = False,
) -> None:
    """Writes loops over a tile; `body` is called with the index of each chunk of so many vectors.
    It goes over the last `whole` dimensions by itself: their indices are 0.

    Inside, the comparisons in `cuts` are facts, except in the lanes of a last partial chunk. So are
    those in `holding`, along the lanes, for the chunks where they hold; others follow these. What
    the comparisons in `splits` answer is a fact too, but for the chunks where an answer changes.
    The innermost loop over rows goes so many `rows` at a time, of which `body` has the first.
    by_halves: where the end along the lanes is known, the rest has chunks of fewer vectors.
    """
    lane_dim = len(shape) - 1 if lane_dim is None else lane_dim
    width = min(kernel.isa.lanes * vectors, shape[lane_dim]) if shape else 1
    looped = len(shape) - whole
    order = [d for d in range(looped) if d != lane_dim] + ([lane_dim] if shape else [])
    kept = kernel.active_bounds
    kernel.active_bounds = frozenset(cut.bound for cut in cuts)
    outer = [cut for cut in cuts if cut.bound.dim != lane_dim]
    inner = [cut for cut in cuts if cut.bound.dim == lane_dim]
    steps = {order[-2]: rows} if rows > 1 else {}
    with kernel.width(width):
        nested = _Nested(body, outer, inner, holding, splits, steps, by_halves)
        _nest(kernel, shape, order, [integer(0)] * len(shape), nested)
    kernel.active_bounds = kept


class _Nested(NamedTuple):
    """What stands inside of the loops over a tile."""

    body: Callable[[Index], None]
    outer: Sequence[Conjunct]
    inner: Sequence[Conjunct]
    holding: Sequence[Conjunct]
    splits: Sequence[Split]
    steps: Mapping[int, int]
    """Of loops that do not go one by one, by dimension."""
    by_halves: bool


def _nest(
    kernel: Kernel, shape: Sequence[int], order: Sequence[int], index: list[Int], nested: _Nested
) -> None:
    if not order:
        with_facts(kernel, nested.outer, tuple(index), nested.body)
        return
    dim, rest = order[0], order[1:]
    if rest:
        cuts = [cut for cut in nested.outer if cut.bound.dim == dim]
        if shape[dim] == 1:
            _nest(kernel, shape, rest, index, nested)
            return
        upper, may_skip = limit(kernel, cuts, shape[dim])
        step = nested.steps.get(dim, 1)
        with kernel.writer.loop(upper, step, may_skip=may_skip) as loop:
            index[dim] = kernel.lanes.atom(loop.counter, "i32", step, natural=True)
            _nest(kernel, shape, rest, index, nested)
        index[dim] = integer(0)
        return

    def stretch(place: Int, cuts: Sequence[Conjunct], answers: Answers = ()) -> None:
        at = (*index[:dim], place, *index[dim + 1 :])
        with_facts(kernel, [*nested.outer, *cuts], at, nested.body, answers)

    if nested.splits:
        _stretches(kernel, shape[dim], nested.inner, nested.splits, stretch)
    elif nested.by_halves and count(kernel, shape[dim], nested.inner) < shape[dim]:
        _chunks_by_halves(kernel, count(kernel, shape[dim], nested.inner), nested.inner, stretch)
    elif nested.holding:
        _chunks_where(kernel, shape[dim], nested.holding, stretch)
    else:
        chunks(kernel, shape[dim], nested.inner, stretch)


def _chunks_where(
    kernel: Kernel,
    size: int,
    holding: Sequence[Conjunct],
    body: Callable[[Int, Sequence[Conjunct]], None],
) -> None:
    """Loops over `size` elements: chunks in which all comparisons hold, then the others."""
    width = kernel.lanes.width
    lane = Linear((), 1) if width > 1 else Linear()
    upper, _ = limit(kernel, holding, size)
    start = kernel.writer.emit(f"and {upper}, {-width}", "i32", [upper])
    _chunk_loop(kernel, start, holding, lane, body, may_skip=True)
    _chunk_loop(kernel, constant(size, "i32"), [], lane, body, may_skip=True, lower=start)


def chunks(
    kernel: Kernel,
    size: int,
    cuts: Sequence[Conjunct],
    body: Callable[[Int, Sequence[Conjunct]], None],
) -> None:
    """Loops over `size` elements, a vector at a time: full chunks, then a masked rest."""
    width = kernel.lanes.width
    lane = Linear((), 1) if width > 1 else Linear()
    constants = [cut.bound.upper.constant for cut in cuts]
    if cuts and all(c is not None for c in constants):
        upper = max(0, min([size, *(c for c in constants if c is not None)]))
        full = upper // width * width
        if full == width:
            body(Int("i32", Linear(), lane), cuts)
        elif full:
            _chunk_loop(kernel, constant(full, "i32"), cuts, lane, body, may_skip=False)
        if upper % width:
            body(Int("i32", Linear((), full), lane), [])
    elif size == width and not cuts:
        body(Int("i32", Linear(), lane), [])
    else:
        upper_operand, may_skip = limit(kernel, cuts, size)
        is_exact, start = end_at_multiples(cuts, width), None
        if not is_exact and width > 1:  # masked writes are slow, some processors' by a dozen cycles
            start = kernel.writer.emit(f"and {upper_operand}, {-width}", "i32", [upper_operand])
            _chunk_loop(kernel, start, cuts, lane, body, may_skip=may_skip)
        exact = cuts if is_exact else []
        _chunk_loop(kernel, upper_operand, exact, lane, body, may_skip=may_skip, lower=start)


def count(kernel: Kernel, size: int, cuts: Sequence[Conjunct]) -> int:
    """Elements along a dimension that loops go over: all of them where their end is not known."""
    ends = [cut.bound.upper.constant for cut in cuts]
    known = [end for end in ends if end is not None]
    return max(0, min([size, *known])) if len(known) == len(ends) else size


def _chunks_by_halves(
    kernel: Kernel,
    upper: int,
    cuts: Sequence[Conjunct],
    body: Callable[[Int, Sequence[Conjunct]], None],
) -> None:
    """Loops over so many elements: full chunks, of the rest chunks of half as many vectors, and so
    on; a last vector is masked."""
    start, width = 0, kernel.lanes.width
    while start < upper:
        is_last = width <= kernel.isa.lanes
        full = (upper - start) // width * width
        with kernel.width(width):
            if full > width:
                low, end = (constant(place, "i32") for place in (start, start + full))
                lane = Linear((), 1)
                _chunk_loop(kernel, end, cuts, lane, body, may_skip=False, lower=low)
            elif full:
                body(Int("i32", Linear((), start), Linear((), 1)), cuts)
            start += full
            if is_last and start < upper:
                body(Int("i32", Linear((), start), Linear((), 1)), [])
                return
        width //= 2


def _stretches(
    kernel: Kernel,
    size: int,
    cuts: Sequence[Conjunct],
    splits: Sequence[Split],
    body: Callable[[Int, Sequence[Conjunct], Answers], None],
) -> None:
    """Loops over `size` elements: whole chunks in which no comparison changes its answer, with a
    chunk between them in which one does, and a masked rest."""
    width, writer = kernel.lanes.width, kernel.writer
    places = [split.place.constant for split in splits]
    ends = [cut.bound.upper.constant for cut in cuts]
    if all(each is not None for each in (*places, *ends)):
        upper = max(0, min([size, *(end for end in ends if end is not None)]))
        _known_stretches(kernel, upper, cuts, splits, body)
        return

    def loop(lower: Operand, end: Operand, cuts: Sequence[Conjunct], answers: Answers) -> None:
        def chunk(place: Int, cuts: Sequence[Conjunct]) -> None:
            body(place, cuts, answers)

        lane = Linear((), 1) if width > 1 else Linear()
        _chunk_loop(kernel, end, cuts, lane, chunk, may_skip=True, lower=lower)

    def within(low: Operand, value: Operand, high: Operand) -> Operand:
        most = writer.call(f"llvm.smin.{value.type}", value.type, [value, high])
        return writer.call(f"llvm.smax.{value.type}", value.type, [most, low])

    end, _ = limit(kernel, cuts, size)
    whole = writer.emit(f"and {end}, {-width}", "i32", [end])
    start = constant(0, "i32")
    for done, split in enumerate(splits):
        wide = kernel.lanes.operand(split.place)
        wide = within(constant(0, "i64"), wide, constant(size, "i64"))
        place = kernel.lanes.cast("trunc", wide, "i32")
        below = writer.emit(f"and {place}, {-width}", "i32", [place])
        behind = writer.emit(f"add {place}, {width - 1}", "i32", [place])
        behind = writer.emit(f"and {behind}, {-width}", "i32", [behind])
        below, behind = within(start, below, whole), within(start, behind, whole)
        loop(start, below, cuts, _answers(splits, done))
        loop(below, behind, cuts, ())
        start = behind
    loop(start, whole, cuts, _answers(splits, len(splits)))
    loop(whole, end, (), ())


def _answers(splits: Sequence[Split], done: int) -> Answers:
    """What the comparisons answer behind so many splits and before the others."""
    return [
        (each, holds_below != (number < done))
        for number, split in enumerate(splits)
        for each, holds_below in split.changing
    ]


def _known_stretches(
    kernel: Kernel,
    upper: int,
    cuts: Sequence[Conjunct],
    splits: Sequence[Split],
    body: Callable[[Int, Sequence[Conjunct], Answers], None],
) -> None:
    """The same up to a known end, with splits at known places: every chunk is known to be there,
    and what its lanes answer."""
    width = kernel.lanes.width
    lane = Linear((), 1) if width > 1 else Linear()
    places = [split.place.constant or 0 for split in splits]
    kinds: dict[int, tuple[Sequence[Conjunct], int | None]] = {}
    for start in range(0, upper, width):
        is_whole = start + width <= upper
        is_split = any(start < place < start + width for place in places)
        done = None if is_split else sum(place <= start for place in places)
        kinds[start] = (cuts if is_whole else (), done)
    for (held, done), group in groupby(kinds, key=lambda start: kinds[start]):
        starts = [*group]
        answers = () if done is None else _answers(splits, done)

        def chunk(place: Int, cuts: Sequence[Conjunct], answers: Answers = answers) -> None:
            body(place, cuts, answers)

        if len(starts) == 1:
            chunk(Int("i32", Linear((), starts[0]), lane), held)
            continue
        end, first = (constant(at, "i32") for at in (starts[-1] + width, starts[0]))
        _chunk_loop(kernel, end, held, lane, chunk, may_skip=False, lower=first)


def _chunk_loop(
    kernel: Kernel, upper: Operand, cuts: Sequence[Conjunct], lane: Linear,
    body: Callable[[Int, Sequence[Conjunct]], None], *, may_skip: bool,
    lower: Operand | None = None,
) -> None:  # fmt: skip
    width = kernel.lanes.width
    with kernel.writer.loop(upper, width, lower=lower, may_skip=may_skip) as loop:
        base = kernel.lanes.atom(loop.counter, "i32", width, natural=True).base
        body(Int("i32", base, lane), cuts)


def end_at_multiples(cuts: Sequence[Conjunct], step: int) -> bool:
    """Whether steps of a loop from 0 up to where the first cut ends are all whole."""
    return all(cut.bound.upper.base.multiple % step == 0 for cut in cuts)


def limit(kernel: Kernel, cuts: Sequence[Conjunct], size: int) -> tuple[Operand, bool]:
    """Upper end of a loop and whether it may run zero times."""
    known = [cut.bound.upper.constant for cut in cuts]
    most = min([size, *(max(0, each) for each in known if each is not None)])
    upper: Operand = constant(most, "i32")
    for cut in cuts:
        if cut.bound.upper.constant is not None:
            continue
        # In 64 bits: what is left of a long array, or of an empty one, need not fit in 32.
        wide = kernel.lanes.operand(cut.bound.upper)
        within = kernel.writer.call("llvm.smin.i64", "i64", [wide, constant(size, "i64")])
        natural = kernel.writer.call("llvm.smax.i64", "i64", [within, constant(0, "i64")])
        found = kernel.lanes.cast("trunc", natural, "i32")
        upper = kernel.writer.call("llvm.smin.i32", "i32", [upper, found])
    return upper, bool(cuts)


def with_facts(
    kernel: Kernel,
    cuts: Sequence[Conjunct],
    index: Index,
    body: Callable[[Index], None],
    answers: Answers = (),
) -> None:
    """Calls `body` with an index at which the comparisons in `cuts` are known to hold, and those of
    `answers` to answer so."""
    facts = {cut.fact(kernel, index): True for cut in cuts}
    facts |= {each.fact(kernel, index): holds for each, holds in answers}
    kept = kernel.facts
    kernel.facts = {**kept, **facts}
    body(index)
    kernel.facts = kept
