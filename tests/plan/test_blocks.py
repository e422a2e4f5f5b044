"""Buffers in the caller's blocks: whatever the lifetimes, nothing is overwritten that is read."""

from __future__ import annotations

import random

import pytest

from aotc.aot.plan.arena import Lifetime
from aotc.aot.plan.blocks import LEAST_BYTES, Block, Member, Scratch, in_blocks
from aotc.aot.plan.buffer_assignment import BufferAssignment, LaunchBuffers, Operand

UNIT = LEAST_BYTES
STEP = 256


def drawn(seed):
    """(assignment, blocks) of a chain of launches that read what others have written."""
    rng = random.Random(seed)
    launches, buffers, readable = [], [], []
    inputs = [rng.randint(1, 6) * UNIT for _ in range(rng.randint(1, 6))]
    outputs = [rng.randint(1, 6) * UNIT for _ in range(rng.randint(1, 6))]
    readable += [Operand("input", at, nbytes) for at, nbytes in enumerate(inputs)]
    waiting = list(range(len(outputs)))
    count = rng.randint(len(outputs), 30)
    for number in range(count):
        reads = rng.sample(readable, min(len(readable), rng.randint(1, 3)))
        if waiting and rng.random() < len(waiting) / (count - number):
            at = waiting.pop(0)
            made = Operand("output", at, outputs[at])
        else:
            made = Operand("buffer", len(buffers), rng.randint(1, 6) * UNIT - rng.randint(0, 99))
            buffers.append(made.nbytes)
        launches.append(LaunchBuffers((*reads, made), 1))
        readable.append(made)
    rows = tuple(
        Lifetime(f"{at}", nbytes, min(used), max(used))
        for at, nbytes in enumerate(buffers)
        for used in [
            [
                number
                for number, launch in enumerate(launches)
                if any((each.space, each.value) == ("buffer", at) for each in launch.operands)
            ]
        ]
    )
    members = [("input", at, nbytes) for at, nbytes in enumerate(inputs)]
    members += [("output", at, nbytes) for at, nbytes in enumerate(outputs)]
    rng.shuffle(members)
    blocks = []
    while members:
        end, own, held = 0, [], []
        for _ in range(min(len(members), rng.randint(1, 5))):
            space, number, nbytes = members.pop()
            own.append(Member(space, number, end, nbytes))
            end += nbytes
            if rng.random() < 0.3:
                held.append((end, end + UNIT))
                end += rng.randint(1, 3) * UNIT
        blocks.append(Block(end, tuple(own), tuple(held)))
    return BufferAssignment(rows, tuple(launches), (), (), ()), blocks, len(outputs)


class Memory:
    """Who wrote to each 256 bytes of the blocks last."""

    def __init__(self, blocks):
        self.rows = [[None] * -(-block.nbytes // STEP) for block in blocks]

    def write(self, place, who):
        block, start, nbytes = place
        assert start % STEP == 0
        assert start + nbytes <= len(self.rows[block]) * STEP
        for at in range(start // STEP, -(-(start + nbytes) // STEP)):
            self.rows[block][at] = who

    def holds(self, place, who):
        block, start, nbytes = place
        return set(self.rows[block][start // STEP : -(-(start + nbytes) // STEP)]) == {who}


@pytest.mark.parametrize("is_alone", [False, True], ids=["in blocks", "alone"])
@pytest.mark.parametrize("seed", range(60))
def test_nothing_that_is_read_is_overwritten(seed, is_alone):
    assignment, blocks, outputs = drawn(seed)
    moved, scratch = in_blocks(assignment, blocks, outputs, STEP)
    count = len(blocks) + 1  # with what follows them; `count` more are for their scratch alone
    places = {
        (each.space, each.number): (number, each.start, each.nbytes)
        for number, block in enumerate(blocks)
        for each in block.members
    }
    for at, each in enumerate(scratch):
        assert Scratch.of(each.spec) == each
        own = (each.block + count, each.alone) if is_alone else (each.block, each.start)
        places["output", outputs + at] = *own, each.nbytes
    ends = [block + start + nbytes for block, start, nbytes in places.values()]
    memory = Memory([*blocks, *[Block(max(ends), ())] * (1 + count)])
    held = [
        (number, start, end - start)
        for number, block in enumerate(blocks)
        for start, end in block.held
    ]
    for place in held:
        memory.write(place, "others")
    for (space, value), place in places.items():
        if space == "input":
            memory.write(place, ("input", value))
    for before, after in zip(assignment.launches, moved.launches, strict=True):
        for old, new in zip(before.operands[:-1], after.operands[:-1], strict=True):
            place = places.get((new.space, new.value))
            if place is not None and new.nbytes:
                assert memory.holds((*place[:2], new.nbytes), (old.space, old.value))
        old, new = before.operands[-1], after.operands[-1]
        if new.space == "buffer":  # in the arena, whose rows count anew
            assert moved.buffers[new.value] == assignment.buffers[old.value]
        else:
            block, start, _ = places[new.space, new.value]
            memory.write((block, start, new.nbytes), (old.space, old.value))
    for at in range(outputs):
        if ("output", at) in places:
            assert memory.holds(places["output", at], ("output", at))
    assert all(memory.holds(place, "others") for place in held)


@pytest.mark.parametrize("layers", [2, 5, 40])
def test_only_the_last_layer_of_a_chain_needs_memory_beside_the_block(layers):
    launches, buffers, members = [], [], []
    before = Operand("input", 0, 3 * UNIT)
    for at in range(layers):
        inner, after = Operand("buffer", at, 3 * UNIT), Operand("output", at, 3 * UNIT)
        launches += [LaunchBuffers((before, inner), 1), LaunchBuffers((inner, after), 1)]
        buffers.append(Lifetime(f"{at}", 3 * UNIT, 2 * at, 2 * at + 1))
        members.append(Member("output", at, 3 * UNIT * at, 3 * UNIT))
        before = after
    assignment = BufferAssignment(tuple(buffers), tuple(launches))
    block = Block(3 * UNIT * layers, tuple(members))
    moved, scratch = in_blocks(assignment, [block], layers, STEP)
    assert moved.buffers == ()
    assert sum(each.nbytes for each in scratch if each.block == 1) == 3 * UNIT


def test_an_operand_that_starts_within_a_buffer_starts_within_its_place():
    launches = (
        LaunchBuffers((Operand("input", 0, UNIT), Operand("buffer", 0, 2 * UNIT)), 1),
        LaunchBuffers((Operand("buffer", 0, 2 * UNIT, 512), Operand("output", 0, 4 * UNIT)), 1),
    )
    rows = (Lifetime("both", 2 * UNIT, 0, 1),)
    block = Block(8 * UNIT, (Member("output", 0, 0, 4 * UNIT),))
    moved, scratch = in_blocks(BufferAssignment(rows, launches), [block], 1, STEP)
    assert moved.buffers == ()
    first, second = scratch
    assert second.start == first.start + 512
    assert second.nbytes == first.nbytes - 512
    assert moved.launches[1].operands[0] == Operand("output", 2, 2 * UNIT - 512)


def test_small_buffers_stay_in_the_arena():
    launches = (
        LaunchBuffers((Operand("input", 0, 64), Operand("buffer", 0, 64)), 1),
        LaunchBuffers((Operand("buffer", 0, 64), Operand("output", 0, UNIT)), 1),
    )
    assignment = BufferAssignment((Lifetime("small", 64, 0, 1),), launches)
    block = Block(UNIT, (Member("output", 0, 0, UNIT),))
    assert in_blocks(assignment, [block], 1, STEP) == (assignment, ())


def test_of_several_orders_the_one_is_taken_that_needs_the_least_beside_the_blocks():
    """As gradients of a convolution, from the last input to the first: a padded copy is a bit more
    than two inputs; placed first, it would leave less than one beside it."""
    size = 16 * UNIT
    reads = [Operand("input", at, size) for at in range(4)]
    sizes = (size, size, size, 2 * size + UNIT, 2 * size)
    made = [Operand("buffer", at, nbytes) for at, nbytes in enumerate(sizes)]
    operands = (
        (reads[3],),
        (reads[2], made[0]),
        (reads[1], made[0], made[1]),
        (reads[0], made[1], made[2]),
        (made[3],),
        (made[3],),
        (made[2], made[4]),
        (made[4], Operand("output", 0, UNIT)),
    )
    ends = ((1, 2), (2, 3), (3, 6), (4, 5), (6, 7))
    rows = tuple(Lifetime(f"{at}", nbytes, *ends[at]) for at, nbytes in enumerate(sizes))
    launches = tuple(LaunchBuffers(each, 1) for each in operands)
    block = Block(4 * size, tuple(Member("input", at, at * size, size) for at in range(4)))
    _, scratch = in_blocks(BufferAssignment(rows, launches, (), (), ()), [block], 1, STEP)
    assert {each.block for each in scratch} == {0}
