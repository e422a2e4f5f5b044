"""Dynamic sizes: canonical arithmetic has the value of plain integers, ranges hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotc.aot.ir import size as sizes
from aotc.aot.ir.size import Dim, UndecidedSize, size_of

N, M = Dim("n", 1, 64, 16), Dim("m", 2, 512, 128)
n, m = size_of(N), size_of(M)
OPERANDS = (n, m, 2, 3, 8, 64, n * 8, m + 1, n * m)

steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "sub", "mul", "div", "mod", "max", "min"]),
        st.integers(0, len(OPERANDS) - 1),
    ),
    max_size=5,
)


def combined(operation, left, right):
    return {
        "add": lambda: left + right,
        "sub": lambda: left - right,
        "mul": lambda: left * right,
        "div": lambda: left // right,
        "mod": lambda: left % right,
        "max": lambda: sizes.largest(left, right),
        "min": lambda: sizes.smallest(left, right),
    }[operation]()


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 64), st.integers(2, 512), steps)
def test_arithmetic_is_that_of_integers(first, second, rows):
    values = {N: first, M: second}
    size = n
    for operation, place in rows:
        before, operand = size, OPERANDS[place]
        size = combined(operation, before, operand)
        expected = combined(
            operation, sizes.substitute(before, values), sizes.substitute(operand, values)
        )
        assert sizes.substitute(size, values) == expected
        low, high = sizes.bounds(size)
        assert low <= expected <= high


def test_equal_sizes_are_one_value():
    assert (n * m + n) // n == m + 1
    assert (n - 1) // 2 + 1 == (n + 1) // 2
    assert ((n - 1) // 2) // 2 == (n - 1) // 4
    assert n * 768 % 16 == 0
    assert n - n == 0
    assert type(n - n) is int
    assert n + 1 != n


def test_a_dim_of_one_value_is_a_number():
    assert size_of(Dim("k", 5, 5, 5)) == 5


def test_order_is_proved_or_refused():
    assert n * m >= n
    assert sizes.proves_at_most(n // 2 * 2, n)
    assert n < 65
    with pytest.raises(UndecidedSize, match="n < 10"):
        _ = n < 10
    with pytest.raises(UndecidedSize, match="only known at the call"):
        range(n)
    with pytest.raises(UndecidedSize):
        _ = n * 0.5


@pytest.mark.parametrize("run", [4, 64, 256])
@pytest.mark.parametrize("high", [1000, 2**31 - 1])
def test_runs_hold_what_was_taken_of_the_runs_before(run, high):
    """`sorts 202611268000095`: the first of each run, as runs of their own, and so on."""
    for wanted in range(1, run // 2 + 1):
        extent = size_of(Dim("x", 1, high, 7))
        for _ in range(4):
            count = (extent + (run - 1)) // run
            assert sizes.proves_at_most(extent, count * run), (wanted, extent)
            assert sizes.proves_below(count * run - extent, run), (wanted, extent)
            extent = count * wanted


def test_texts():
    assert str(2 * m * n + 1) == "2*m*n + 1"
    assert str((n + 1) // 2) == "((n + 1)//2)"
    assert sizes.kernel_text(n) == "size_n"
    assert sizes.kernel_text(n * 4 - 1) == "(4*size_n - 1)"


def test_factors():
    assert sizes.divides(n, n * m * 4)
    assert not sizes.divides(n, n * m + 1)
    assert sizes.common_factor(n * 12, n * m * 8) == n * 4
    assert sizes.content(n * 12 + 8) == 4
    assert sizes.typical(n * m) == 16 * 128
