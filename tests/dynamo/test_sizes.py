"""Dynamic sizes: one program for all of them, or one for each."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from dynamo_models import Perceptron

from aotc.aot.dynamo import aotc
from aotc.aot.dynamo.programs import counters

pytestmark = [pytest.mark.torch, pytest.mark.triton]
STRICT = {"fallback": "error"}


def assert_gradients(module, compiled, x):
    results = []
    for each in (module, compiled):
        each.zero_grad()
        results.append(each(x))
        results[-1].square().sum().backward()
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    for one, other in zip(compiled.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_marked", [False, True], ids=["dynamic", "marked"])
def test_one_program_serves_all_sizes(is_marked, fresh):
    module = Perceptron()
    own = copy.deepcopy(module)
    compiled = torch.compile(own, backend=aotc, options=STRICT, dynamic=None if is_marked else True)
    made = []
    for rows in (4, 9, 2, 4):
        x = torch.randn(rows, 12)
        if is_marked:
            torch._dynamo.mark_dynamic(x, 0)
        assert_gradients(module, compiled, x)
        made.append(counters()["graphs"])
    assert made[0] == made[-1]


def test_numbers_and_views_follow_the_sizes(fresh):
    def model(x, y):
        rows = x.shape[0]
        made = x.t() @ y
        return (
            made,
            made[:, :2],
            rows * 2,
            x.new_zeros(rows),
            torch.arange(rows) + y.sum(),
            x[:, 1:],
        )

    compiled = torch.compile(model, backend=aotc, options=STRICT, dynamic=True)
    for rows in (3, 8, 5):
        x, y = torch.randn(rows, 6), torch.randn(rows, 4)
        for one, other in zip(compiled(x, y), model(x, y), strict=True):
            if isinstance(other, int):
                assert one == other
                continue
            torch.testing.assert_close(one, other)
            assert one.stride() == other.stride()


def test_a_graph_that_needs_numbers_is_compiled_for_each_size(fresh, caplog):
    def model(x):
        values, _ = x.sort(0)  # of a dim that may be long, its length decides how
        return values * x.shape[0] ** 0.5

    compiled = torch.compile(model, backend=aotc, options=STRICT, dynamic=True)
    caplog.set_level("INFO", "aotc")
    for rows in (8, 12, 8):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), model(x))
    assert "is compiled for each size that it meets" in caplog.text


def test_parts_of_an_argument_lie_where_they_do(fresh):
    def model(x):
        first, *rest = x.chunk(4)
        return first, *rest, x.unbind(0)[1]

    compiled = torch.compile(model, backend=aotc, options=STRICT, dynamic=True)
    for size in (8, 11, 13):
        x = torch.randn(size)
        for found, expected in zip(compiled(x), model(x), strict=True):
            assert torch.equal(found, expected)
            assert found.data_ptr() == expected.data_ptr()


def test_parts_of_a_changed_argument(fresh):
    def model(x):
        x.mul_(2)
        return x[1:], *x.chunk(2, 1), *(x + 1).chunk(2, 1)

    compiled = torch.compile(model, backend=aotc, options=STRICT, dynamic=True)
    for shape in ((4, 6), (5, 8)):
        x = torch.randn(shape)
        y = x.clone()
        for found, expected in zip(compiled(x), model(y), strict=True):
            assert torch.equal(found, expected)
            assert found.stride() == expected.stride()
            assert found.storage_offset() == expected.storage_offset()
        assert torch.equal(x, y)


def test_numbers_below_0(fresh):
    def model(number, x):
        x[number] = -1
        return x * number

    compiled = torch.compile(model, backend=aotc, options=STRICT, fullgraph=True)
    for number in (2, 3, -7, -1, -3, 1):
        x, y = torch.ones(7), torch.ones(7)
        assert torch.equal(compiled(number, x), model(number, y))
        assert torch.equal(x, y)


@pytest.mark.parametrize("seed", range(6))
def test_slices_that_are_longer_than_the_smallest_sizes(seed, fresh):
    """Guards keep calls from sizes at which a slice has fewer than no elements; plans are read
    there all the same."""
    draw = random.Random(seed)
    start, end, other = draw.randint(5, 90), draw.randint(1, 30), draw.randint(1, 12)

    def model(x, y):
        joined = torch.cat([x.reshape(-1), y])
        return x.reshape(-1)[start:] * 2, joined[other:-end].cumsum(0), y[:-other].exp()

    compiled = torch.compile(model, backend=aotc, options=STRICT, dynamic=True)
    for _ in range(6):
        x, y = (
            torch.randn(draw.randint(2, 12), draw.randint(2, 40)),
            torch.randn(draw.randint(2, 60)),
        )
        torch.testing.assert_close(compiled(x, y), model(x, y))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_of_one_size_behind_another(seed, fresh):
    """A range of one dim may hold calls only at the small sizes of the other."""
    draw = random.Random(seed)
    least = draw.randint(0, 40)

    def model(x, y):
        rest = x[y.shape[0] + least :]
        return rest * 2, rest.cumsum(0)

    compiled = torch.compile(model, backend=aotc, options=STRICT, dynamic=True)
    for _ in range(5):
        after = draw.randint(2, 40)
        x, y = torch.randn(after + least + draw.randint(2, 90)), torch.randn(after)
        torch.testing.assert_close(compiled(x, y), model(x, y))
