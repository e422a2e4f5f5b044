"""Chains of ops that move elements give eager's elements, whatever runs backwards in them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from aotc.aot.dynamo import aotc

sys.path.insert(0, str(Path(__file__).parent))

from movement_chains import Chain

pytestmark = [pytest.mark.torch, pytest.mark.triton]
STRICT = {"fallback": "error"}
AT_ONCE = 6  # chains in one graph


def backwards(x, y, z):
    """Views that run backwards and are cut at other places."""
    return (
        x.t().reshape(-1).flip(0),
        torch.stack([x, y], -1).flatten(1).flip(1),
        torch.cat([x, y], 1).view(-1).flip(0),
        x.rot90().reshape(-1).flip(0),
        z.transpose(2, 3).flatten(2).flip(-1),
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_that_run_backwards(dynamic, fresh):
    compiled = torch.compile(backwards, backend=aotc, options=STRICT, dynamic=dynamic)
    for rows, columns in ((2, 3), (5, 4)):
        x = torch.arange(float(rows * columns)).view(rows, columns)
        z = torch.randn(2, columns, rows, 5)
        for found, expected in zip(compiled(x, x + 50, z), backwards(x, x + 50, z), strict=True):
            assert torch.equal(found, expected)


def assert_equal_eager(first: int, dynamic: bool) -> None:
    """Compares the chains of `AT_ONCE` seeds, as one graph."""
    chains = [Chain(seed) for seed in range(first, first + AT_ONCE)]

    def model(*inputs):
        return [chain.apply(x) for chain, x in zip(chains, inputs, strict=True)]

    inputs = [chain.input() for chain in chains]
    compiled = torch.compile(model, backend=aotc, options=STRICT, dynamic=dynamic)
    for chain, found, expected in zip(chains, compiled(*inputs), model(*inputs), strict=True):
        assert found.shape == expected.shape, str(chain)
        assert torch.equal(found, expected), str(chain)


@pytest.mark.parametrize("first", range(0, 24, AT_ONCE))
def test_chains_of_movements(first, fresh):
    assert_equal_eager(first, dynamic=False)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(2000, 4000, AT_ONCE))
def test_many_chains_of_movements(first, fresh):
    assert_equal_eager(first, dynamic=first % (2 * AT_ONCE) == 0)


FIRST = [
    pytest.param(first, marks=pytest.mark.nightly if number else ())
    for number, first in enumerate(range(1000, 1012, AT_ONCE))
]


@pytest.mark.parametrize("first", FIRST)
def test_chains_of_movements_of_dynamic_sizes(first, fresh):
    assert_equal_eager(first, dynamic=True)


def test_dynamic_sizes_that_leave_nothing(fresh):
    def model(x):
        return x[2:] * 2, x[1:-1].flatten().flip(0), torch.nn.functional.pad(x, [-1, -1, 1, 1])

    compiled = torch.compile(model, backend=aotc, options=STRICT, dynamic=True)
    for shape in ((5, 4), (2, 2), (3, 7)):
        x = torch.randn(shape)
        for found, expected in zip(compiled(x), model(x), strict=True):
            assert torch.equal(found, expected)


def test_strides_over_memory_in_another_order(fresh):
    def model(x, y):
        return (
            torch.as_strided(x, (4, 3, 2), (1, 8, 2)),
            torch.as_strided(x + 1, (4, 3, 2), (1, 8, 2), 3) + 2,
            torch.as_strided(y * 2, (5,), (1,)),
        )

    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    given = x, torch.randn(6, 4).t()
    compiled = torch.compile(model, backend=aotc, options=STRICT)
    for found, expected in zip(compiled(*given), model(*given), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_memory_is_written_to_by_address(dynamic, fresh):
    def model(x):
        made, source = x + 1, x.reshape(-1)[:6].reshape(3, 2)
        other = made if dynamic else made.t()
        return (
            torch.as_strided_scatter(other, source, (3, 2), (1, 12), 2),
            torch.as_strided_scatter(made, source, (3, 2), (1, 1)),
        )

    compiled = torch.compile(model, backend=aotc, options=STRICT, dynamic=dynamic)
    for x in torch.randn(4, 6), torch.randn(4, 7):
        for found, expected in zip(compiled(x), model(x), strict=True):
            assert torch.equal(found, expected)
            assert found.stride() == expected.stride()


def _read_from_storage(x):
    return torch.as_strided(x, (2, 3), (3, 1), 1) * 2


def _read_from_storage_of_a_view(x):
    return torch.as_strided(x.view(-1, 2), (2, x.shape[0] - 4), (1, 1), 2) * 2


def _read_beside_the_storage(x):
    return torch.as_strided(x[2:], (2, 3), (3, 1)) * 2, torch.as_strided(x * 2, (3,), (2,), 1) + 1


def _read_from_where_it_begins(x):
    return torch.as_strided(x, (2, 3), (3, 1), x.storage_offset() + 1) * 2


def _write_to_storage(x):
    return torch.as_strided_scatter(x, torch.ones(2, 3), (2, 3), (3, 1), 8) * 2


def _write_in_place(x):
    torch.as_strided(x, (2, 3), (3, 1), 8).add_(1)
    return x * 2


STORAGE = [
    _read_from_storage,
    _read_from_storage_of_a_view,
    _read_beside_the_storage,
    _read_from_where_it_begins,
    _write_to_storage,
    _write_in_place,
]


@pytest.mark.parametrize("model", STORAGE)
def test_places_in_the_storage_of_an_argument_that_begins_anywhere(model, fresh):
    """torch compiles once for all of these, and asks for none of their offsets."""
    for dynamic in False, True:
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=aotc, dynamic=dynamic)
        for offset, count in ((0, 20), (4, 20), (7, 20), (4, 16), (0, 18)):
            mine, eagers = (torch.arange(60.0)[offset : offset + count] for _ in range(2))
            for found, expected in zip(compiled(mine), model(eagers), strict=True):
                assert torch.equal(found, expected), (dynamic, offset, count)
            assert torch.equal(mine, eagers)


def test_a_place_in_the_storage_of_an_argument_has_its_reason(fresh):
    compiled = torch.compile(_read_from_storage, backend=aotc, options=STRICT)
    with pytest.raises(Exception, match="a place in the storage of an argument"):
        compiled(torch.arange(20.0))


@pytest.mark.parametrize("dynamic", [False, True])
def test_counting_by_steps(dynamic, fresh):
    def model(x):
        made = {"device": x.device, "requires_grad": False}
        falling = torch.ops.prims.iota(x.shape[0], start=3, step=-2, dtype=torch.int64, **made)
        return falling, torch.ops.prims.iota(
            x.shape[0] + 2, start=0, step=1, dtype=torch.int32, **made
        )

    compiled = torch.compile(model, backend=aotc, options=STRICT, dynamic=dynamic)
    for size in (5, 3):
        x = torch.randn(size)
        for found, expected in zip(compiled(x), model(x), strict=True):
            assert torch.equal(found, expected)


def test_bits_read_as_elements_of_another_size(fresh):
    dtypes = torch.float64, torch.float32, torch.bfloat16, torch.uint8, torch.int16, torch.int64

    def model(*given):
        whole = [x.view(dtype) for x in given for dtype in dtypes if dtype != x.dtype]
        return *whole, torch.narrow_copy(given[0], 1, 1, 2), torch.narrow_copy(given[0], 0, -2, 1)

    bits = torch.randint(0, 256, (3, 32), dtype=torch.uint8)
    given = [bits.view(dtype).clone() for dtype in dtypes]
    compiled = torch.compile(model, backend=aotc, options=STRICT)
    for found, expected in zip(compiled(*given), model(*given), strict=True):
        assert found.dtype == expected.dtype
        assert torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize(
    "view", [lambda x: x.unfold(1, 4, 1), lambda x: x.as_strided((3, 4), (1, 2))]
)
def test_gradients_of_outputs_that_overlap(view, fresh):
    """`movement 20261122747`, gradients: each place of memory kept the gradient of one element."""

    def model(x):
        return view(x.neg())

    x = torch.randn(2, 5, requires_grad=True)
    slopes = torch.arange(view(x).numel()).reshape(view(x).shape) / 4
    compiled = torch.compile(model, backend=aotc, options=STRICT)
    found, expected = (torch.autograd.grad(each(x), x, slopes)[0] for each in (compiled, model))
    assert torch.equal(found, expected)
