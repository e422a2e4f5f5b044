"""`debug="races"`: two programs at one place, one of them writing, are named with both lines."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from aotc import kernels
from aotc.aot.errors import DataRace, OutOfBounds


@pytest.fixture(autouse=True, scope="module")
def on_cpu() -> Iterator[None]:
    with kernels.on_cpu():
        yield


@triton.jit
def add_one_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def overlapping_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * (BLOCK - 1) + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n)
    tl.store(out + i, a, mask=i < n)  # overlapping


@triton.jit
def shifting_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i + 1, mask=i + 1 < n)  # reads the neighbour's
    tl.store(out + i, a, mask=i < n)  # writes its own


@triton.jit(noinline=True)
def store_total(out, value):
    tl.store(out, value)  # in a function


@triton.jit
def calling_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    store_total(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))


@triton.jit
def summing_kernel(x, out, n, BLOCK: tl.constexpr, IS_READ: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))  # atomically
    if IS_READ:
        tl.store(out + 1 + tl.program_id(0), tl.load(out))  # not atomically


@triton.jit
def last_arriver_kernel(x, parts, counter, out, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + i)))
    if tl.atomic_add(counter, 1) == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, PROGRAMS))))


def line_of(text: str) -> str:
    lines = linecache.getlines(__file__)
    return f"{__file__}:{next(i for i, x in enumerate(lines, 1) if text in x)}"


def launch(kernel: Any, *tensors: torch.Tensor, **more: Any) -> None:
    kernel[(7,)](*tensors, 100, BLOCK=16, debug="races", **more)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.int8], ids=str)
def test_programs_with_places_of_their_own_do_not_race(kind: torch.dtype) -> None:
    x, out = torch.ones(100, dtype=kind), torch.zeros(100, dtype=kind)
    launch(add_one_kernel, x, out)
    assert (out == 2).all()
    launch(add_one_kernel, x, x)
    launch(shifting_kernel, x, out)
    launch(summing_kernel, torch.ones(100), torch.zeros(8), IS_READ=False)


def raced(kernel: Any, *tensors: torch.Tensor, **more: Any) -> DataRace:
    with pytest.raises(DataRace) as caught:
        launch(kernel, *tensors, **more)
    return caught.value


def test_two_programs_that_write_one_place_are_named_with_both_lines() -> None:
    error = raced(overlapping_kernel, torch.ones(100), torch.zeros(100))
    line = line_of("# overlapping")
    assert (error.line, error.other_line) == (line, line)
    assert {error.program[0], error.other[0]} in ({place, place + 1} for place in range(7))
    assert "of `out`" in error.where
    assert error.access == error.other_access == "writes"


def test_reading_what_another_program_writes_is_named_where_arguments_share_memory() -> None:
    x = torch.ones(101)
    for tensors in ((x, x), (x[1:], x[:100])):
        with pytest.raises(DataRace) as caught:
            launch(shifting_kernel, *tensors)
        lines = {caught.value.line, caught.value.other_line}
        assert line_of("# writes its own") in lines
        assert {caught.value.access, caught.value.other_access} <= {"reads", "writes"}
    assert lines == {line_of("# writes its own"), line_of("# reads the neighbour's")}


def test_functions_are_followed() -> None:
    error = raced(calling_kernel, torch.ones(100), torch.zeros(1))
    assert error.where == "byte 0 of `out`"
    assert error.line == error.other_line == line_of("# in a function")


def test_reading_what_others_change_atomically_is_a_race() -> None:
    error = raced(summing_kernel, torch.ones(100), torch.zeros(8), IS_READ=True)
    lines = {line_of("# atomically"), line_of("# not atomically")}
    assert {error.line, error.other_line} == lines


def test_kernels_that_wait_for_an_atomic_result_are_not_followed() -> None:
    parts, counter, out = torch.zeros(8), torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    last_arriver_kernel[(8,)](
        torch.ones(128), parts, counter, out, PROGRAMS=8, BLOCK=16, debug="races"
    )
    assert out.item() == 128


def test_accesses_beyond_a_tensor_are_found_too() -> None:
    with pytest.raises(OutOfBounds, match="of `out`"):
        launch(add_one_kernel, torch.ones(100), torch.zeros(99))
