"""Structured control flow: loops with carried scalars and tensors, branches.

A carried tensor of pointers or indices that moves by one amount everywhere is kept as its start and
a running scalar. Any other carried tensor stands in memory: in one buffer where the loop's body
only updates it element by element, else in two that change places every iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from aotc.aot.targets.cpu import root_ops
from aotc.aot.targets.cpu.elementwise import RULES
from aotc.aot.targets.cpu.evaluate import Kernel, Shifted
from aotc.aot.targets.cpu.lanes import typed
from aotc.aot.targets.cpu.linear import Int, Lane, Pointer, integer
from aotc.aot.targets.cpu.memory import Buffer
from aotc.aot.targets.cpu.ttir import Block, Operation, Value, unsupported
from aotc.aot.targets.cpu.writer import Loop, Operand, constant

RunBlock = Callable[[Block], Operation]
"""Lowers the operations of a block and returns its terminator."""


@dataclass(eq=False)
class Carried:
    """How one loop-carried value travels: its LLVM values at the start, and at each turn."""

    argument: Value
    initial: Value
    start: list[Operand]

    def bind(self, kernel: Kernel, value: Value, operands: Sequence[Operand]) -> None:
        """Makes `value` (the argument, or the loop's result) stand for these LLVM values."""
        raise NotImplementedError

    def following(self, kernel: Kernel, value: Value) -> list[Operand]:
        """LLVM values for the next turn, when the body gives `value`."""
        raise NotImplementedError


class CarriedScalar(Carried):
    """An integer, a float or a pointer in a register."""

    def bind(self, kernel: Kernel, value: Value, operands: Sequence[Operand]) -> None:
        kernel.scalars[value] = scalar_lane(kernel, operands[0], value)

    def following(self, kernel: Kernel, value: Value) -> list[Operand]:
        return [kernel.lanes.operand(kernel.scalar(value))]


def scalar_lane(kernel: Kernel, operand: Operand, value: Value) -> Lane:
    if value.type.is_pointer:
        return Pointer(operand, integer(0, "i64"), value.type.pointee)
    return typed(kernel.lanes, operand, value.type.element)


class CarriedShift(Carried):
    """A tensor that moves by a scalar each turn: `initial + sum of steps`."""

    def bind(self, kernel: Kernel, value: Value, operands: Sequence[Operand]) -> None:
        kernel.shifted[value] = Shifted(
            self.initial, kernel.lanes.atom(operands[0], operands[0].type)
        )

    def following(self, kernel: Kernel, value: Value) -> list[Operand]:
        index = tuple(integer(0) for _ in value.type.shape or ())
        step = kernel.at(_step(self.argument, value), index)
        if not isinstance(step, Int):
            raise unsupported("a loop-carried tensor that moves by other than i32 or i64")
        offset = kernel.shifted[self.argument].offset
        return [
            kernel.lanes.operand(kernel.lanes.add(offset, kernel.lanes.extend(step, offset.kind)))
        ]


class CarriedBuffer(Carried):
    """A tensor in memory that the body updates element by element, in place."""

    buffer: Buffer

    def bind(self, kernel: Kernel, value: Value, operands: Sequence[Operand]) -> None:
        kernel.buffers[value] = self.buffer._replace(min_depth=kernel.writer.depth)

    def following(self, kernel: Kernel, value: Value) -> list[Operand]:
        if value not in kernel.buffers or kernel.buffers[value].base != self.buffer.base:
            root_ops.materialize(kernel, value, self.buffer)
        return []


class CarriedPair(Carried):
    """A tensor in two buffers: the body reads one and writes the other, then they change places."""

    buffer: Buffer

    def bind(self, kernel: Kernel, value: Value, operands: Sequence[Operand]) -> None:
        kernel.buffers[value] = self.buffer._replace(
            base=operands[0], min_depth=kernel.writer.depth
        )
        self.spare = operands[1]

    def following(self, kernel: Kernel, value: Value) -> list[Operand]:
        current = kernel.buffers[self.argument].base
        spare = self.buffer._replace(base=self.spare, min_depth=kernel.writer.depth)
        root_ops.materialize(kernel, value, spare)
        return [self.spare, current]


def _step(argument: Value, following: Value) -> Value:
    assert following.owner is not None
    a, b = following.owner.operands
    return b if a is argument else a


def _is_shift(argument: Value, following: Value) -> bool:
    """The body gives `argument + step` with the same step for every element."""
    made = following.owner
    if (
        made is None
        or made.name not in ("tt.addptr", "arith.addi")
        or argument not in made.operands
    ):
        return False
    if made.name == "arith.addi" and following.type.element not in ("i32", "i64"):
        return False
    return _is_uniform(_step(argument, following))


def _is_uniform(value: Value) -> bool:
    made = value.owner
    if made is None:
        return False
    if made.name in ("tt.broadcast", "tt.expand_dims"):
        return _is_uniform(made.operands[0])
    return made.name == "tt.splat" or (
        made.name == "arith.constant" and len(getattr(made.attributes["value"], "values", [0])) == 1
    )


def _is_update(argument: Value, following: Value) -> bool:
    """All uses of `argument` lead, element by element, to `following` and nowhere else."""
    current = argument
    while current is not following:
        if len(current.uses) != 1:
            return False
        use = current.uses[0]
        is_accumulator = use.name == "tt.dot" and use.operands[2] is current
        if not is_accumulator and use.name not in RULES:
            return False
        if use.parent is not (following.owner.parent if following.owner else None):
            return False
        current = use.results[0]
    return len(following.uses) == 1 or argument is following


def _carry(kernel: Kernel, argument: Value, initial: Value, following: Value) -> Carried:
    if not argument.type.is_tensor:
        return _carried_scalar(kernel, argument, initial)
    if _is_shift(argument, following):
        return _carried_shift(argument, initial)
    if not _is_update(argument, following):
        return _carried_pair(kernel, argument, initial)
    single = CarriedBuffer(argument, initial, [])
    single.buffer = _first(kernel, initial)
    _compute_in_place(kernel, argument, following, single.buffer)
    return single


def _carried_scalar(kernel: Kernel, argument: Value, initial: Value) -> CarriedScalar:
    return CarriedScalar(argument, initial, [kernel.lanes.operand(kernel.scalar(initial))])


def _carried_shift(argument: Value, initial: Value) -> CarriedShift:
    kind = "i64" if argument.type.is_pointer else argument.type.element
    return CarriedShift(argument, initial, [constant(0, kind)])


def _carried_pair(kernel: Kernel, argument: Value, initial: Value) -> CarriedPair:
    buffer, spare = _first(kernel, initial), root_ops.new_buffer(kernel, argument)
    pair = CarriedPair(argument, initial, [buffer.base, spare.base])
    pair.buffer = buffer
    return pair


def _first(kernel: Kernel, initial: Value) -> Buffer:
    """The tensor that a loop begins with, in memory of its own."""
    if initial in kernel.pending:
        root_ops.force(kernel, initial)
    return root_ops.materialize(kernel, initial)


def _compute_in_place(kernel: Kernel, argument: Value, following: Value, buffer: Buffer) -> None:
    """Dots on the way from the carried value to its update add to the carried buffer itself."""
    current = argument
    while current is not following:
        current = current.uses[0].results[0]
        kernel.in_place[current] = buffer


def _bind_all(
    kernel: Kernel, carried: Sequence[Carried], values: Sequence[Value], operands: Sequence[Operand]
) -> None:
    rest = list(operands)
    for item, value in zip(carried, values, strict=True):
        count = len(item.start)
        item.bind(kernel, value, rest[:count])
        del rest[:count]


def for_loop(kernel: Kernel, operation: Operation, run: RunBlock) -> None:
    """`scf.for(lower, upper, step, initial…)`."""
    with turns(kernel, operation):
        run(operation.body)


@contextmanager
def turns(
    kernel: Kernel,
    operation: Operation,
    left_out: Collection[Value] = (),
    more: Sequence[Operand] = (),
) -> Iterator[Loop]:
    """The turns of `scf.for`, whose block's operations the body lowers.

    `left_out`: arguments of the block that nothing carries; `more`: values carried beside the
    block's own, whose next ones the body leaves in `next_values`.
    """
    lower, upper, step = (kernel.scalar(x) for x in operation.operands[:3])
    block, lanes = operation.body, kernel.lanes
    ends = operation.results, operation.operands[3:], block.operations[-1].operands
    rows = [row for row in zip(block.arguments[1:], *ends, strict=True) if row[0] not in left_out]
    carried = [_carry(kernel, row[0], row[2], row[3]) for row in rows]
    start = [x for item in carried for x in item.start]
    with kernel.writer.loop(
        lanes.operand(upper),
        lanes.operand(step),
        [*start, *more],
        lanes.operand(lower),
        hint=_hint(operation),
    ) as loop:
        kernel.min_depths[operation] = kernel.writer.depth
        kernel.scalars[block.arguments[0]] = _counter(kernel, loop.counter, lower, step)
        _bind_all(kernel, carried, [row[0] for row in rows], loop.carried)
        turn = Loop(loop.counter, loop.carried[len(start) :])
        yield turn
        loop.next_values = [
            x
            for item, row in zip(carried, rows, strict=True)
            for x in item.following(kernel, row[3])
        ] + list(turn.next_values or [])
    _bind_all(kernel, carried, [row[1] for row in rows], loop.results)
    turn.results = loop.results[len(start) :]


LOOP_METADATA = """\
!0 = distinct !{!0, !1}
!1 = !{!"llvm.licm.disable"}"""
"""Of loops whose invariants LLVM leaves where they stand."""


def _hint(operation: Operation) -> str:
    """`disable_licm=True` of the loop, for LLVM; addresses are computed outside all the same."""
    annotation = str(operation.attributes.get("llvm.loop_annotation", ""))
    is_disabled = "licm" in annotation and "disable = true" in annotation
    return ", !llvm.loop !0" if is_disabled else ""


def _counter(kernel: Kernel, counter: Operand, lower: Lane, step: Lane) -> Int:
    """A loop counter is a multiple of what its constant start and step are both multiples of."""
    if not (isinstance(lower, Int) and isinstance(step, Int)):
        raise unsupported("a `for` loop that does not count in i32 or i64")
    multiple = 1
    if lower.constant is not None and step.constant is not None:
        multiple = math.gcd(lower.constant, step.constant)
    natural = lower.natural and step.natural
    return kernel.lanes.atom(counter, counter.type, max(1, multiple), natural=natural)


def while_loop(kernel: Kernel, operation: Operation, run: RunBlock) -> None:
    """`scf.while(initial…)`: `before` gives a condition, and what `after` and the results are."""
    before, after = operation.regions[0][0], operation.regions[1][0]
    given, following = before.operations[-1].operands[1:], after.operations[-1].operands
    inside = dict(zip(given, after.arguments, strict=True))
    rows = zip(before.arguments, operation.operands, following, strict=True)
    carried = {row[0]: _carry_around(kernel, *row, inside.get(row[0])) for row in rows}
    kept = [_keep(kernel, value, carried.get(value)) for value in given]
    start = [x for item in carried.values() for x in item.start]
    with kernel.writer.while_loop(start, _hint(operation)) as (phis, test, repeat, results):
        kernel.min_depths[operation] = kernel.writer.depth
        _bind_all(kernel, list(carried.values()), before.arguments, phis)
        condition, *_ = run(before).operands
        operands = [item.operand(kernel) for item in kept]
        test(kernel.lanes.operand(kernel.scalar(condition)), operands)
        for item, value, operand in zip(kept, after.arguments, operands, strict=True):
            item.bind(kernel, value, operand)
        run(after)
        pairs = zip(carried.values(), following, strict=True)
        repeat([x for item, value in pairs for x in item.following(kernel, value)])
    for item, value, operand in zip(kept, operation.results, results, strict=True):
        item.bind(kernel, value, operand)


def _carry_around(
    kernel: Kernel, argument: Value, initial: Value, following: Value, inside: Value | None
) -> Carried:
    """How an argument of `before` travels; inside: what it is in `after`, if it is passed on."""
    if not argument.type.is_tensor:
        return _carried_scalar(kernel, argument, initial)
    if inside is not None and _is_shift(inside, following):
        return _carried_shift(inside, initial)
    return _carried_pair(kernel, argument, initial)


@dataclass(frozen=True, eq=False)
class Kept:
    """What `before` gives `after`, and the loop at its end."""

    value: Value

    def operand(self, kernel: Kernel) -> Operand:
        """Its LLVM value at the end of `before`."""
        return kernel.lanes.operand(kernel.scalar(self.value))

    def bind(self, kernel: Kernel, value: Value, operand: Operand) -> None:
        """Makes `value` (an argument of `after`, or the loop's result) stand for it."""
        kernel.scalars[value] = scalar_lane(kernel, operand, value)


@dataclass(frozen=True, eq=False)
class KeptShift(Kept):
    """A tensor that moves by a scalar each turn, as `before` was given it."""

    shift: CarriedShift

    def operand(self, kernel: Kernel) -> Operand:
        return kernel.lanes.operand(kernel.shifted[self.value].offset)

    def bind(self, kernel: Kernel, value: Value, operand: Operand) -> None:
        self.shift.bind(kernel, value, [operand])


@dataclass(frozen=True, eq=False)
class KeptBuffer(Kept):
    """A tensor in memory: as `before` was given it, or else written at its end."""

    buffer: Buffer
    is_given: bool

    def operand(self, kernel: Kernel) -> Operand:
        if self.is_given:
            return kernel.buffers[self.value].base
        buffer = self.buffer._replace(min_depth=kernel.writer.depth)
        return root_ops.materialize(kernel, self.value, buffer).base

    def bind(self, kernel: Kernel, value: Value, operand: Operand) -> None:
        depth = kernel.writer.depth
        kernel.buffers[value] = self.buffer._replace(base=operand, min_depth=depth)


def _keep(kernel: Kernel, value: Value, carried: Carried | None) -> Kept:
    if not value.type.is_tensor:
        return Kept(value)
    if isinstance(carried, CarriedShift):
        return KeptShift(value, carried)
    if isinstance(carried, CarriedPair):
        return KeptBuffer(value, carried.buffer, is_given=True)
    return KeptBuffer(value, root_ops.new_buffer(kernel, value), is_given=False)


def branch(kernel: Kernel, operation: Operation, run: RunBlock) -> None:
    """`scf.if`: scalars merge by phi; both sides write a tensor result to one buffer."""
    condition = kernel.lanes.operand(kernel.scalar(operation.operands[0]))
    buffers = {x: root_ops.new_buffer(kernel, x) for x in operation.results if x.type.is_tensor}
    scalars = [x for x in operation.results if not x.type.is_tensor]

    def side(region: list[Block]) -> Callable[[], list[Operand]]:
        def write() -> list[Operand]:
            kernel.min_depths[operation] = kernel.writer.depth
            # A missing `else` is an empty block in MLIR's generic form.
            if not region or not region[0].operations:
                return []
            given = run(region[0]).operands
            made: list[Operand] = []
            for result, value in zip(operation.results, given, strict=True):
                if result in buffers:
                    root_ops.materialize(
                        kernel, value, buffers[result]._replace(min_depth=kernel.writer.depth)
                    )
                else:
                    made.append(kernel.lanes.operand(kernel.scalar(value)))
            return made

        return write

    regions = [*operation.regions, []][:2]
    merged = kernel.writer.branch(condition, [side(region) for region in regions])
    for result, buffer in buffers.items():
        kernel.buffers[result] = buffer._replace(min_depth=kernel.writer.depth)
    for result, operand in zip(scalars, merged, strict=True):
        kernel.scalars[result] = scalar_lane(kernel, operand, result)
