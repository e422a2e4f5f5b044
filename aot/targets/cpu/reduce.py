"""`tt.reduce` and `tt.scan`: combinations along one dimension of a tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from aotc.aot.targets.cpu import memory, root_ops, tiles
from aotc.aot.targets.cpu.evaluate import Kernel, literal
from aotc.aot.targets.cpu.linear import Int, Lane, Linear, integer
from aotc.aot.targets.cpu.literals import LLVM_TYPES, float_constant, is_vector, wrap
from aotc.aot.targets.cpu.memory import Index
from aotc.aot.targets.cpu.operands import typed
from aotc.aot.targets.cpu.ttir import Block, Operation
from aotc.aot.targets.cpu.writer import Operand, constant

IDENTITIES: Mapping[str, float | int] = {
    "arith.addf": 0.0, "arith.addi": 0, "arith.mulf": 1.0, "arith.muli": 1,
    "arith.maxnumf": -math.inf, "arith.maximumf": -math.inf,
    "arith.minnumf": math.inf, "arith.minimumf": math.inf,
    "arith.ori": 0, "arith.xori": 0, "arith.andi": -1, "arith.maxui": 0, "arith.minui": -1,
}  # fmt: skip
"""Value that a reduction by one operation may start from; `identity` adds the signed bounds."""


def identity(block: Block, kind: str) -> Lane | None:
    """The neutral element of a combine function of one operation, if it has one."""
    if len(block.operations) != 2:
        return None
    name = block.operations[0].name
    if name in ("arith.maxsi", "arith.minsi"):
        bits = int(kind[1:])
        number: float | int = -(1 << (bits - 1)) if name == "arith.maxsi" else (1 << (bits - 1)) - 1
    elif name in IDENTITIES:
        number = IDENTITIES[name]
    else:
        return None
    if kind[0] in "fb":
        return float_constant(float(number), kind)
    if kind == "i1":
        return constant("true" if number else "false", "i1")
    found = wrap(int(number), kind)
    return integer(found, kind) if kind in ("i32", "i64") else constant(found, LLVM_TYPES[kind])


def reduce(kernel: Kernel, operation: Operation) -> None:
    """`tt.reduce`: scalars or a tensor of one dimension less, one a operand."""
    axis = operation.integer("axis")
    shape = operation.operands[0].type.shape or ()
    if axis == tiles.lane_dimension(kernel, operation.operands[0]) or all(
        n == 1 for d, n in enumerate(shape) if d != axis
    ):
        _reduce_lanes(kernel, operation, axis, shape)
    else:
        _reduce_across(kernel, operation, axis, shape)


def _neutral_cuts(
    kernel: Kernel, operation: Operation, shape: Sequence[int]
) -> list[tiles.Conjunct]:
    """Where the operand is the neutral element beyond a mask, so that loops may end there."""
    if len(operation.operands) != 1:
        return []
    value = operation.operands[0]
    made, block = value.owner, operation.body
    neutral = identity(block, value.type.element)
    if made is None or neutral is None or value in kernel.buffers:
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
    if literal(source.attributes["value"], other) != neutral:
        return []
    return tiles.conjuncts(kernel, mask, shape)


def _start(kernel: Kernel, operation: Operation) -> list[Operand] | None:
    """Neutral elements as lanes to start from; None when there are none."""
    found = [identity(operation.body, x.type.element) for x in operation.operands]
    if len(found) != 1 or found[0] is None:
        return None
    return [kernel.lanes.splat(kernel.lanes.operand(found[0]))]


def _values(kernel: Kernel, operation: Operation, index: Index) -> list[Lane]:
    return [kernel.at(x, index) for x in operation.operands]


def _combine(
    kernel: Kernel, operation: Operation, old: Sequence[Operand], new: Sequence[Lane]
) -> list[Operand]:
    kinds = [x.type.element for x in operation.operands]
    left = [typed(kernel.lanes, x, kind) for x, kind in zip(old, kinds, strict=True)]
    made = kernel.apply(operation.body, [*left, *new])
    return [kernel.lanes.splat(kernel.lanes.operand(x)) for x in made]


def _reduce_lanes(kernel: Kernel, operation: Operation, axis: int, shape: tuple[int, ...]) -> None:
    """Reduces along the dimension that is spread over lanes, then across the lanes."""
    outer = tuple(1 if d == axis else n for d, n in enumerate(shape))
    rank_one = len(shape) == 1
    cuts = _neutral_cuts(kernel, operation, shape)
    inner = [cut for cut in cuts if cut.bound.dim == axis]
    results = [] if rank_one else [root_ops.new_buffer(kernel, x) for x in operation.results]
    filling = root_ops.Filling(kernel, shape)

    def row(index: Index) -> None:
        with kernel.width(min(kernel.isa.lanes, shape[axis])):
            kernel.active_bounds = frozenset(cut.bound for cut in inner)
            total = _row_total(kernel, operation, axis, shape, index, inner, filling)
        lanes = [
            typed(kernel.lanes, x, v.type.element)
            for x, v in zip(total, operation.operands, strict=True)
        ]
        if rank_one:
            kernel.scalars.update(zip(operation.results, lanes, strict=True))
            return
        place = index[:axis] + index[axis + 1 :]
        for buffer, lane in zip(results, lanes, strict=True):
            memory.write_buffer(kernel, buffer, place, lane)

    if rank_one:
        row((integer(0),))
        kernel.active_bounds = frozenset()
    else:
        _rows(kernel, outer, axis, row)
        depth = kernel.writer.depth
        for result, buffer in zip(operation.results, results, strict=True):
            kernel.buffers[result] = buffer._replace(min_depth=depth)
    filling.finish([cut.bound for cut in inner])


def _rows(kernel: Kernel, outer: tuple[int, ...], axis: int, row: Callable[[Index], None]) -> None:
    with kernel.width(1):
        tiles.run(kernel, outer, row, lane_dim=axis)


def _row_total(
    kernel: Kernel, operation: Operation, axis: int, shape: tuple[int, ...], outer: Index,
    cuts: Sequence[tiles.Conjunct], filling: root_ops.Filling,
) -> list[Operand]:  # fmt: skip
    """One row: lanes of partial results, several chains when the row is long, then one value."""
    width = kernel.lanes.width
    size = shape[axis]
    constants = [cut.bound.upper.constant for cut in cuts]
    known = all(c is not None for c in constants)
    upper = max(0, min([size, *(c for c in constants if c is not None)])) if known else size
    start = _start(kernel, operation)
    first: Int | None = None
    if start is None:  # no neutral element: the first chunk starts the chain
        first = Int("i32", integer(0).base, _lane_stride(width))
        start = [
            kernel.lanes.splat(kernel.lanes.operand(x))
            for x in _at(kernel, operation, axis, outer, first, [], filling)
        ]
    is_long = first is None and upper >= 8 * width
    chains = 4 if is_long and (known or tiles.end_at_multiples(cuts, 4 * width)) else 1
    step = width * chains
    inside = cuts if known or tiles.end_at_multiples(cuts, step) else []
    begin = width if first is not None else 0
    totals = [list(start) for _ in range(chains)]
    full = upper // step * step if known else 0
    if full > begin or not known:
        limit, may_skip = (
            (constant(full, "i32"), False) if known else tiles.limit(kernel, cuts, size)
        )
        carried = [x for chain in totals for x in chain]
        with kernel.writer.loop(
            limit, step, carried, constant(begin, "i32"), may_skip=may_skip
        ) as loop:
            count = len(start)
            after: list[Operand] = []
            for chain in range(chains):
                base = kernel.lanes.atom(loop.counter, "i32", width, natural=True)
                place = Int("i32", base.base.plus(integer(chain * width).base), _lane_stride(width))
                new = _at(kernel, operation, axis, outer, place, inside, filling)
                after += _combine(
                    kernel, operation, loop.carried[chain * count : (chain + 1) * count], new
                )
            loop.next_values = after
        totals = [loop.results[i * count : (i + 1) * count] for i in range(chains)]
    total = totals[0]
    for chain_total in totals[1:]:
        total = _combine(kernel, operation, total, _lanes_of(kernel, operation, chain_total))
    if known:
        for offset in range(max(full, begin), upper, width):
            place = Int("i32", integer(offset).base, _lane_stride(width))
            facts = cuts if offset + width <= upper else []
            new = _at(kernel, operation, axis, outer, place, facts, filling)
            total = _combine(kernel, operation, total, new)
    return _across(kernel, operation, total)


def _lane_stride(width: int) -> Linear:
    return Linear((), 1 if width > 1 else 0)


def _lanes_of(kernel: Kernel, operation: Operation, operands: Sequence[Operand]) -> list[Lane]:
    return [
        typed(kernel.lanes, x, v.type.element)
        for x, v in zip(operands, operation.operands, strict=True)
    ]


def _at(
    kernel: Kernel, operation: Operation, axis: int, outer: Index, place: Int,
    facts: Sequence[tiles.Conjunct], filling: root_ops.Filling,
) -> list[Lane]:  # fmt: skip
    index = (*outer[:axis], place, *outer[axis + 1 :])
    found: list[Lane] = []

    def body(at: Index) -> None:
        filling.enter(at)
        found.extend(_values(kernel, operation, at))

    tiles.with_facts(kernel, facts, index, body)
    return found


def _across(kernel: Kernel, operation: Operation, total: Sequence[Operand]) -> list[Operand]:
    """Combines the lanes of each operand by halves until one is left."""
    width = kernel.lanes.width
    current = list(total)
    while width > 1:
        half = width // 2
        parts: list[list[Operand]] = []
        for start in (0, half):
            picks = ", ".join(f"i32 {start + i}" for i in range(half))
            made = []
            for operand in current:
                kind = operand.type.replace(f"<{width} x", f"<{half} x")
                text = f"shufflevector {operand}, {operand.type} poison, <{half} x i32> <{picks}>"
                made.append(kernel.writer.emit(text, kind, [operand]))
            parts.append(made)
        with kernel.width(half):
            current = _combine(kernel, operation, parts[0], _lanes_of(kernel, operation, parts[1]))
        width = half
    return [_first(kernel, x) for x in current]


def _first(kernel: Kernel, operand: Operand) -> Operand:
    if not is_vector(operand):
        return operand
    kind = operand.type[operand.type.index(" x ") + 3 : -1]
    return kernel.writer.emit(f"extractelement {operand}, i32 0", kind, [operand])


def _reduce_across(kernel: Kernel, operation: Operation, axis: int, shape: tuple[int, ...]) -> None:
    """Reduces along a dimension that is not spread over lanes: each lane has its own result."""
    kept = tuple(n for d, n in enumerate(shape) if d != axis)
    results = [root_ops.new_buffer(kernel, x) for x in operation.results]
    cuts = [cut for cut in _neutral_cuts(kernel, operation, shape) if cut.bound.dim == axis]

    def body(index: Index) -> None:
        def values(place: Int, facts: Sequence[tiles.Conjunct]) -> list[Lane]:
            found: list[Lane] = []
            at = (*index[:axis], place, *index[axis:])
            tiles.with_facts(
                kernel, facts, at, lambda i: found.extend(_values(kernel, operation, i))
            )
            return found

        start = _start(kernel, operation)
        begin = 0
        if start is None:
            start = [kernel.lanes.splat(kernel.lanes.operand(x)) for x in values(integer(0), [])]
            begin = 1
        upper, may_skip = tiles.limit(kernel, cuts, shape[axis])
        low = constant(begin, "i32")
        with kernel.writer.loop(
            upper, 1, start, low, may_skip=may_skip or shape[axis] <= begin
        ) as loop:
            place = kernel.lanes.atom(loop.counter, "i32", natural=True)
            loop.next_values = _combine(kernel, operation, loop.carried, values(place, cuts))
        for buffer, total, value in zip(results, loop.results, operation.results, strict=True):
            memory.write_buffer(
                kernel, buffer, index, typed(kernel.lanes, total, value.type.element)
            )

    lane = tiles.lane_dimension(kernel, operation.operands[0])
    tiles.run(kernel, kept, body, lane_dim=lane - (lane > axis))
    for result, buffer in zip(operation.results, results, strict=True):
        kernel.buffers[result] = buffer._replace(min_depth=kernel.writer.depth)


def scan(kernel: Kernel, operation: Operation) -> None:
    """`tt.scan`: a running combination along one axis, element by element."""
    axis = operation.integer("axis")
    reverse = bool(operation.attributes.get("reverse", False))
    shape = operation.operands[0].type.shape or ()
    results = [root_ops.new_buffer(kernel, x) for x in operation.results]
    outer = tuple(1 if d == axis else n for d, n in enumerate(shape))
    size = shape[axis]

    def place(step: Int) -> Int:
        return kernel.lanes.add(integer(size - 1), step, -1) if reverse else step

    def line(index: Index) -> None:
        def write(at: Int, lanes: Sequence[Lane]) -> None:
            where = (*index[:axis], at, *index[axis + 1 :])
            for buffer, lane in zip(results, lanes, strict=True):
                memory.write_buffer(kernel, buffer, where, lane)

        def values(at: Int) -> list[Lane]:
            return _values(kernel, operation, (*index[:axis], at, *index[axis + 1 :]))

        first = values(place(integer(0)))
        write(place(integer(0)), first)
        start = [kernel.lanes.operand(x) for x in first]
        with kernel.writer.loop(constant(size, "i32"), 1, start, constant(1, "i32")) as loop:
            at = place(kernel.lanes.atom(loop.counter, "i32", natural=True))
            total = _combine(kernel, operation, loop.carried, values(at))
            write(at, _lanes_of(kernel, operation, total))
            loop.next_values = total

    with kernel.width(1):
        _rows(kernel, outer, axis, line)
    for result, buffer in zip(operation.results, results, strict=True):
        kernel.buffers[result] = buffer._replace(min_depth=kernel.writer.depth)
