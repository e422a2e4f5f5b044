"""The algebra of indices equals plain arithmetic, and so does its text under Triton's rules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from index_expressions import first_faults

from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Symbol
from aotc.aot.ir.size import Dim, kernel_text, size_of

X, Y = Symbol("i", 6), Symbol("j", 4)
n = size_of(Dim("n", 1, 9, 4))


def test_random_expressions_equal_brute_force() -> None:
    assert not first_faults(0, 20_000)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(8))
def test_two_million_expressions_equal_brute_force(part: int) -> None:
    assert not first_faults(10_000_000 * (part + 1), 250_000)


@pytest.mark.parametrize(
    ("built", "text"),
    [
        # Dividends that a flip makes negative are shifted by whole divisors.
        ((ix.of(X) * -1 + 3) // 2, "(5 - i) // 2 - 1"),
        ((ix.of(X) * -1 + 3) % 2, "(5 - i) % 2"),
        ((ix.of(X) * -1 + 5) // 6, "0"),
        ((ix.of(Y) - ix.of(X)) % 3, "(j + 6 - i) % 3"),
        # Where only a call could say by how much, the text is a floor for every sign.
        ((ix.of(X) * (4 - n) + 2) // 8, "tl.where(E < 0, E - 7, E) // 8"),
        ((ix.of(X) * (4 - n) + 2) % 8, "(E % 8 + 8) % 8"),
    ],
)
def test_texts_say_floor(built: ix.Index, text: str) -> None:
    assert str(built) == text.replace("E", "(i*(-size_n + 4) + 2)")


def test_a_dim_run_backwards_is_shifted_without_a_choice() -> None:
    backwards = ix.symbol("x", n) * -1 + (n - 1)
    assert str(backwards % n) == "(size_n - 1) - x"
    assert str(backwards // 2) == "((size_n - 1) - x) // 2"
    assert (ix.symbol("y", 5) * n + backwards) // n == ix.symbol("y", 5)


def test_sizes_of_negative_dividends_are_written_as_floors() -> None:
    text = kernel_text((5 - n) // 2)
    for value in range(1, 10):
        found = eval(
            text.replace("//", "/"),  # the quotients of whole numbers, rounded toward zero
            {"size_n": _Whole(value), "tl": _Choices},
        )
        assert found == (5 - value) // 2


class _Whole(int):
    def __truediv__(self, other: int) -> _Whole:
        return _Whole(int(int(self) / other))

    def __sub__(self, other: int) -> _Whole:
        return _Whole(int(self) - int(other))

    def __rsub__(self, other: int) -> _Whole:
        return _Whole(int(other) - int(self))

    def __add__(self, other: int) -> _Whole:
        return _Whole(int(self) + int(other))

    def __neg__(self) -> _Whole:
        return _Whole(-int(self))


class _Choices:
    maximum = staticmethod(lambda left, right: _Whole(max(left, right)))
    minimum = staticmethod(lambda left, right: _Whole(min(left, right)))


def test_numbers_beyond_32_bits_say_their_type() -> None:
    long = "tl.full([], 3221225472, tl.int64)"
    wide = ix.symbol("x", size_of(Dim("m", 1, 1 << 33, 4)))
    assert str((wide + 5) // 3221225472) == f"(x + 5) // {long}"
    assert str(wide * 2 + 3221225472) == f"x*2 + {long}"
    assert kernel_text(3 * n + 3221225472) == f"(3*size_n + {long})"
    assert str(3 * n + 3221225472) == "3*n + 3221225472"
    assert kernel_text((1 << 31) - 1) == "2147483647"
