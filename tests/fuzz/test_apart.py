"""Reference numbers are those of the elements, however torch's kernels take their memory."""

from __future__ import annotations

import pytest
import torch

from fuzz.program import Input, Program, Ref, Step
from fuzz.run import CALLS_WITH_STATE, EAGER, WIDE, Session

pytestmark = [pytest.mark.torch]
RANDOM = "torch.randn({shape}, generator={generator}).to({dtype})"
COUNTED = "torch.arange(24).reshape({shape}).to({dtype})"


def step(name, op, text, **arguments):
    return Step(name, op, text, arguments)


def numbers(program, mode=EAGER):
    return Session(program, 0, mode).outputs()


def test_the_median_of_one_element_seen_often():
    steps = (
        step("v0", "expand", "{x}.expand(2, 3, 1, 3, -1)", x=Ref("x0")),
        step("v1", "median", "torch.median({x}, 1).values", x=Ref("v0")),
    )
    given = Input("x0", "f32", (1, 1, 1), RANDOM, 2915)
    program = Program("sorts 20261123033", (given,), (), steps, ("v1",))
    expected = program.values(0, program.inputs)[0].expand(2, 1, 3, 1)
    for mode in (EAGER, WIDE):
        torch.testing.assert_close(numbers(program, mode)[0], expected, check_dtype=False)


def test_a_slice_of_windows_that_overlap_is_replaced():
    text = "torch.slice_scatter({x}, {y}, -1, 3, 4, 1)"
    steps = (
        step("v0", "unfold", "{x}.unfold(0, 4, 1)", x=Ref("x0")),
        step("v1", "slice_scatter", text, x=Ref("v0"), y=Ref("x1")),
    )
    given = Input("x0", "i32", (8, 1, 3), COUNTED, 0), Input("x1", "i32", (5, 1, 3, 1), RANDOM, 0)
    program = Program("norms 20261123357", given, (), steps, ("v1",))
    windows, last = (each.clone() for each in program.values(0, given))
    expected = torch.cat([windows.unfold(0, 4, 1)[..., :3], last], -1)
    assert torch.equal(numbers(program)[0], expected)


def test_a_state_changed_from_a_view_of_itself_is_read_before():
    steps = (
        step("v0", "diagonal", "torch.diagonal({x}, 0, 2, 0)", x=Ref("s0")),
        step("", "add_", "{state}.add_({x})", state=Ref("s0"), x=Ref("v0")),
        step("v1", "neg", "-{x}", x=Ref("s0")),
        step("v2", "neg", "-{x}", x=Ref("v0")),
    )
    state = Input("s0", "f32", (64, 11, 2), RANDOM, 9603)
    program = Program("states 20261123352", (), (state,), steps, ("v1", "v2"))
    own = program.values(0, program.states)[0]
    found = numbers(program)
    for call in range(CALLS_WITH_STATE):
        own = own + own.diagonal(0, 2, 0)
        assert torch.equal(found[2 * call], -own)
        assert torch.equal(found[2 * call + 1], -own.diagonal(0, 2, 0))  # it follows the change
