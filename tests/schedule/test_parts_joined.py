"""Parts that are joined lane by lane: the kernel that joins them computes them, unless dear."""

from __future__ import annotations

import pytest

from aotc.aot.ir.text import parse_graph
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU


def product(count: int) -> str:
    """Of complex numbers, as pairs beside each other."""
    pairs, part = f"f32[{count}, 2]", f"f32[{count}, 1]"
    return f"""\
%x = input(name='x') : {pairs}
%y = input(name='y') : {pairs}
%2 = slice(%x, axis=1, start=0, step=1, stop=1) : {part}
%3 = slice(%x, axis=1, start=1, step=1, stop=2) : {part}
%4 = slice(%y, axis=1, start=0, step=1, stop=1) : {part}
%5 = slice(%y, axis=1, start=1, step=1, stop=2) : {part}
%6 = mul(%2, %4) : {part}
%7 = mul(%3, %5) : {part}
%8 = sub(%6, %7) : {part}
%9 = mul(%2, %5) : {part}
%10 = mul(%3, %4) : {part}
%11 = add(%9, %10) : {part}
%12 = concat(%8, %11, axis=1) : {pairs}
return output_0=%12
"""


@pytest.mark.parametrize("count", [100, 100_000, 1_000_001])
def test_a_product_of_complex_numbers_is_one_kernel(count):
    (group,) = schedule(parse_graph(product(count)), CPU).groups
    # Numbers beside each other are in one vector, also where a vector of the narrowest target is.
    assert group.domain.lanes.extent > 2


def test_dear_parts_are_stored_where_they_are_many():
    text = """\
%x = input(name='x') : f32[1000000, 1]
%y = input(name='y') : f32[1000000, 1]
%2 = exp(%x) : f32[1000000, 1]
%3 = erf(%2) : f32[1000000, 1]
%4 = exp(%3) : f32[1000000, 1]
%5 = concat(%y, %4, axis=1) : f32[1000000, 2]
return output_0=%5
"""
    assert len(schedule(parse_graph(text), CPU).groups) == 2
