"""The work of checking a plan grows with its rows: lines of the reader are counted [S5]."""

from __future__ import annotations

import sys

import pytest

from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import Buffer, Kernel, Launch, LaunchPlan, Plan
from aotc.runtime.bundle.plan_rules import check_steps

SPEC = (TensorSpec("x", "f32", (16,)),)


def arena(count: int) -> bytes:
    """Buffers that overlap, and launches on the last bytes of each."""
    buffers = [Buffer(f"b{at}", 64 * at, 128) for at in range(count)]
    steps = [Launch(0, (1, 1, 1), (("arena", 64 * at + 127),)) for at in range(count)]
    plan = LaunchPlan(64 * count + 64, 0, buffers, (Kernel("k", "k"),), steps)
    return Plan.of(plan).to_msgpack()


def kernels(count: int) -> bytes:
    """As many kernels, each used once, on weights."""
    rows = [Kernel(f"k{at}", f"kernel {at}") for at in range(count)]
    steps = [Launch(at, (1, 1, 1), (("weight", f"w{at}"), ("int", at))) for at in range(count)]
    return Plan.of(LaunchPlan(0, 0, (), rows, steps)).to_msgpack()


def uses(count: int) -> bytes:
    """One kernel, launched in as many ways."""
    steps = [Launch(0, (1 + at, 1, 1), (("output", 0),)) for at in range(count)]
    return Plan.of(LaunchPlan(0, 0, (), (Kernel("k", "k"),), steps)).to_msgpack()


def lines(data: bytes, count: int) -> int:
    """Lines of Python that reading and checking the plan runs."""
    found = 0
    weights = {f"w{at}": 64 for at in range(count)}

    def trace(frame, event, argument):
        nonlocal found
        found += event == "line"
        return trace

    before = sys.gettrace()  # of a measure of coverage
    sys.settrace(trace)
    try:
        plan = Plan.from_msgpack(data)
        plan.validate([(1, 1)], weights, "plan", None)
        check_steps(plan.at(), (), (), (SPEC, SPEC), weights, "plan")
    finally:
        sys.settrace(before)
    return found


@pytest.mark.parametrize("make", [arena, kernels, uses])
def test_ten_times_the_rows_are_ten_times_the_work(make):
    few, many = (lines(make(count), count) for count in (300, 3000))
    assert many < 11 * few


@pytest.mark.nightly
@pytest.mark.parametrize("make", [arena, kernels, uses])
def test_a_hundred_times_the_rows(make):
    few, many = (lines(make(count), count) for count in (300, 30_000))
    assert many < 120 * few
