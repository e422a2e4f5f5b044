"""Control flow in graphs of torch.compile: each graph inside compiled by itself, right as eager."""

from __future__ import annotations

import logging
import random

import pytest
import torch
from flow_programs import (
    SIMPLE,
    branches,
    drawn_program,
    each_row,
    gradients_of,
    operands,
    over_rows,
)
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional

from aotc.aot.dynamo import aotc
from aotc.aot.dynamo.programs import counters

pytestmark = [pytest.mark.torch, pytest.mark.triton, pytest.mark.usefixtures("fresh")]


@pytest.mark.parametrize("seed", range(6))
def test_drawn_programs(seed):
    function, plain = drawn_program(random.Random(seed))
    compiled = torch.compile(function, backend=aotc, options={"fallback": "error"})
    for given in (operands(seed), operands(seed + 100), [-each for each in operands(seed)]):
        torch.testing.assert_close(compiled(*given), plain(*given), rtol=1e-9, atol=1e-11)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6, 60))
def test_more_drawn_programs(seed):
    test_drawn_programs(seed)


# -- gradients -------------------------------------------------------------------------------------


@pytest.mark.parametrize("nesting", [branches, over_rows, each_row])
@pytest.mark.parametrize("sign", [1, -1])
def test_gradients(nesting, sign):
    function, plain = nesting(SIMPLE[0], SIMPLE[0], SIMPLE[1], SIMPLE[1])
    compiled = torch.compile(function, backend=aotc, options={"fallback": "error"})
    x, w = operands(0, requires_grad=True)
    given = ((x.abs() * sign).detach().requires_grad_(), w)
    for found, expected in zip(
        gradients_of(compiled, given), gradients_of(plain, given), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_gradients_of_a_loop_whose_turns_the_data_count(caplog):
    """What is kept has as many rows as there were turns, and goes to torch; the turns are ours."""

    def function(x, w):
        return while_loop(
            lambda x, w: x.abs().sum() > 5, lambda x, w: (torch.sin(x @ w), w.clone()), (x, w)
        )[0]

    def plain(x, w):
        while x.abs().sum() > 5:
            x = torch.sin(x @ w)
        return x

    x, w = operands(3, requires_grad=True)
    x, w = (x * 3).detach().requires_grad_(), (w / 2).detach().requires_grad_()
    with caplog.at_level(logging.WARNING, "aotc"):
        compiled = torch.compile(function, backend=aotc)
        found = gradients_of(compiled, (x, w))
    for one, other in zip(found, gradients_of(plain, (x, w)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    assert "its shape depends on data" in caplog.text
    assert counters()["programs_made"] > 0


# -- ends ------------------------------------------------------------------------------------------


def test_a_loop_without_turns_gives_copies():
    def function(x):
        return while_loop(lambda x: x.sum() > 1e9, lambda x: (x + 1,), (x,))[0]

    x = torch.zeros(3)
    found = torch.compile(function, backend=aotc, options={"fallback": "error"})(x)
    found += 1
    assert not x.any()


@pytest.mark.parametrize(("inside", "programs"), [(torch.sin, 1), (torch.rand_like, 2)])
def test_a_branch_is_part_of_the_program_or_one_of_its_own(inside, programs):
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x.exp(), lambda x: inside(x), (x + 1,)) * 2

    before = counters()["programs_made"]
    torch.compile(function, backend=aotc, options={"fallback": "error"})(torch.ones(3))
    assert counters()["programs_made"] - before >= programs
    assert programs > 1 or counters()["programs_made"] - before == 1


def test_any_number_of_rows():
    """One program for all numbers of rows, of what is carried in another order of its dims."""

    def function(x, w):
        def combine(carried, row):
            carried = carried * row
            return carried, carried.t().sum(0)

        return scan(combine, w, x)

    compiled = torch.compile(function, backend=aotc, dynamic=True, options={"fallback": "error"})
    w = torch.rand(5, 5).t()
    for rows in (3, 7, 4):
        x = (torch.rand(rows, 5, 5) + 0.5).transpose(1, 2)
        carried, sums = w, []
        for row in x:
            carried = carried * row
            sums.append(carried.t().sum(0))
        last, found = compiled(x, w)
        torch.testing.assert_close(last, carried)
        torch.testing.assert_close(found, torch.stack(sums))


def test_flow_beside_ops_that_torch_runs():
    """Levels of regions: what torch runs before, behind and beside a call of control flow."""

    def function(x):
        solved = torch.linalg.solve(x, x + 1)
        chosen = torch.cond(solved.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (solved,))
        beside = torch.linalg.inv(x)
        return torch.linalg.det(chosen + beside) + chosen.sum()

    x = torch.rand(4, 4, dtype=torch.float64) + 3 * torch.eye(4, dtype=torch.float64)
    found = torch.compile(function, backend=aotc, options={"fallback": "eager"})(x)
    solved = torch.linalg.solve(x, x + 1)
    chosen = solved.sin() if solved.sum() > 0 else solved.cos()
    expected = torch.linalg.det(chosen + torch.linalg.inv(x)) + chosen.sum()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_are_drawn_in_eagers_order(sign):
    """By the branch that is taken alone, and by what stands behind it."""

    def draw(x):
        return x + torch.rand(3)

    def function(x):
        before = functional.dropout(x, 0.5)
        chosen = torch.cond(x.sum() > 0, draw, torch.sin, (before,))
        return chosen + torch.rand(3)

    x = sign * torch.ones(3)
    compiled = torch.compile(function, backend=aotc, options={"fallback": "eager"})
    for _ in range(2):
        torch.manual_seed(5)
        before = functional.dropout(x, 0.5)
        chosen = draw(before) if sign > 0 else before.sin()
        expected, after = chosen + torch.rand(3), torch.rand(2)
        torch.manual_seed(5)
        torch.testing.assert_close(compiled(x), expected)
        assert torch.equal(torch.rand(2), after)


def test_an_index_is_checked_in_the_branch_that_is_taken():
    def function(x, places):
        return torch.cond(
            x.sum() > 0, lambda x, p: x[p], lambda x, p: x[p.clamp(0, 2)], (x, places)
        )

    compiled = torch.compile(function, backend=aotc, options={"fallback": "error"})
    places = torch.tensor([0, 7, 2])
    torch.testing.assert_close(compiled(-torch.ones(3), places), -torch.ones(3))
    with pytest.raises(Exception, match="index"):
        compiled(torch.ones(3), places)


def test_the_first_call_beside_eager():
    """The graphs inside stay as torch has them, also where each is compiled by itself."""

    def step(x):
        return torch.linalg.solve_ex(x + 3 * torch.eye(4), x).result.contiguous()

    def function(x):
        return while_loop(lambda x: x.abs().sum() > 1, lambda x: (step(x),), (x,))[0]

    x = torch.rand(4, 4)
    found = torch.compile(function, backend=aotc, options={"check": "first"})(x)
    while x.abs().sum() > 1:
        x = step(x)
    torch.testing.assert_close(found, x)


def test_an_effect_inside_of_control_flow_is_left_to_torch(caplog):
    """`linalg.solve` checks its data; Inductor makes code of such a loop that does not run."""

    def step(x):
        return torch.linalg.solve(x + 3 * torch.eye(4), x).contiguous()

    def function(x):
        return while_loop(lambda x: x.abs().sum() > 1, lambda x: (step(x),), (x,))[0]

    x = torch.rand(4, 4)
    with caplog.at_level(logging.WARNING, "aotc"):
        found = torch.compile(function, backend=aotc)(x)
    while x.abs().sum() > 1:
        x = step(x)
    torch.testing.assert_close(found, x)
    assert "has an effect" in caplog.text
