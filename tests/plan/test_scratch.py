"""Scratch in the arena: alive for one launch, zeroed scratch shared and first, 256-byte aligned."""

from __future__ import annotations

from aotc.aot.lower.spec import Scratch
from aotc.aot.plan import BufferAssignment, ChosenKernel, plan_assigned
from aotc.aot.plan.arena import Lifetime
from aotc.aot.plan.buffer_assignment import LaunchBuffers, Operand
from aotc.runtime.bundle.plan import Image, Plan

IMAGE = Image(0, 64, 128, 0, 0)
BETWEEN = Operand("buffer", 0, 1000)
ASSIGNMENT = BufferAssignment(
    (Lifetime("0.0 first", 1000, 0, 1),),
    (
        LaunchBuffers((Operand("input", 0, 1000), Operand("weight", "w", 64), BETWEEN), 1),
        LaunchBuffers((BETWEEN, Operand("output", 0, 1000)), 1),
    ),
)


def planned(*scratch):
    kernels = [
        ChosenKernel(f"k{number}", f"kernel_{number}", (1, 1, 1), IMAGE, rows)
        for number, rows in enumerate(scratch)
    ]
    return plan_assigned(ASSIGNMENT, kernels, 0).at()


def test_without_scratch_the_arguments_are_the_assigned_ones():
    plan = planned((), ())
    first, second = plan.launches
    assert first.args == (("input", 0), ("weight", "w"), ("arena", 0))
    assert second.args == (("arena", 0), ("output", 0))
    assert (plan.arena_bytes, plan.zeroed_bytes) == (1024, 0)


def test_scratch_follows_the_parameters_and_never_meets_a_living_buffer():
    plan = planned((Scratch("partials", "*fp32", 3000),), (Scratch("partials", "*fp32", 5000),))
    places = [launch.args[-1] for launch in plan.launches]
    assert all(space == "arena" and offset % 256 == 0 for space, offset in places)
    (_, kept) = plan.launches[0].args[2]
    for (_, offset), nbytes in zip(places, (3000, 5000), strict=True):
        assert offset >= kept + 1000 or offset + nbytes <= kept


def test_scratch_of_different_launches_shares_bytes():
    plan = planned((Scratch("partials", "*fp32", 5000),), (Scratch("partials", "*fp32", 5000),))
    assert plan.arena_bytes == 1024 + 5120


def test_zeroed_scratch_is_first_shared_and_counted():
    counters = Scratch("counters", "*i32", 300, is_zeroed=True)
    plan = planned((counters, Scratch("partials", "*fp32", 10), counters), (counters,))
    assert plan.zeroed_bytes == 1024
    first, second = plan.launches
    assert first.args[-3] == ("arena", 0)
    assert first.args[-1] == ("arena", 512)
    assert second.args[-1] == ("arena", 0)
    for buffer in plan.buffers:
        assert buffer.offset >= 1024 or (buffer.offset, buffer.nbytes) == (0, 1024)
    assert Plan.from_msgpack(Plan.of(plan).to_msgpack()).at() == plan
