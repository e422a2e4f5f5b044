"""Index expressions: the simplified form has the value of the plain arithmetic."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotc.aot.ir import access
from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Index, Remainder, Symbol

X, Y, Z = Symbol("x", 6), Symbol("y", 8), Symbol("z", 1)


def value_of(index: Index, values: dict[Symbol, int]) -> int:
    """The value by plain floored arithmetic."""
    total = index.constant
    for atom, coefficient in index.terms:
        if isinstance(atom, Symbol):
            part = values[atom]
        elif isinstance(atom, Remainder):
            part = value_of(atom.dividend, values) % atom.divisor
        else:
            part = value_of(atom.dividend, values) // atom.divisor
        total += part * coefficient
    return total


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(["x", "y"]), st.integers(-12, 12)),
        st.tuples(st.sampled_from(["mul", "shift"]), st.just(""), st.integers(-5, 24)),
        st.tuples(st.sampled_from(["div", "mod", "restore"]), st.just(""), st.integers(1, 24)),
    ),
    max_size=7,
)


@settings(max_examples=400, deadline=None)
@given(steps)
def test_operations_are_exact(program: list[tuple[str, str, int]]) -> None:
    built = ix.of(X)
    for step, name, number in program:
        if step == "add":
            built = built + ix.of(X if name == "x" else Y) * number
        elif step == "mul":
            built = built * number
        elif step == "shift":
            built = built + number
        elif step == "restore":
            built = (built // number) * number + built % number
        else:
            built = built // number if step == "div" else built % number
    low, high = built.bounds()
    for x, y in itertools.product(range(X.extent), range(Y.extent)):
        plain = x
        for step, name, number in program:
            if step == "add":
                plain += (x if name == "x" else y) * number
            elif step in ("mul", "shift"):
                plain = plain * number if step == "mul" else plain + number
            elif step != "restore":
                plain = plain // number if step == "div" else plain % number
        found = value_of(built, {X: x, Y: y})
        assert found == plain
        assert low <= found <= high


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (ix.linear([ix.of(X), ix.of(Y)], [6, 8]), "x*8 + y"),
        ((ix.of(X) * 8 + ix.of(Y)) // 8, "x"),
        ((ix.of(X) * 8 + ix.of(Y)) % 8, "y"),
        ((ix.of(X) * 8 + ix.of(Y)) // 4, "x*2 + y // 4"),
        ((ix.of(X) * 8 + ix.of(Y)) % 4, "y % 4"),
        (ix.of(X) * -1 + 5, "5 - x"),
        ((ix.of(Y) + 1) // 2, "(y + 1) // 2"),
        ((ix.of(Y) + 8) // 8, "1"),
        ((ix.of(Y) % 4) // 2, "(y // 2) % 2"),
        (
            ((ix.of(X) * 8 + ix.of(Y)) // 3) % 5 * 3 + (ix.of(X) * 8 + ix.of(Y)) % 3,
            "(x*8 + y) % 15",
        ),
        (ix.of(Z) * 7, "0"),
    ],
)
def test_prints_the_simplest_form(built: Index, text: str) -> None:
    assert str(built) == text


@pytest.mark.parametrize(
    ("shape", "source"),
    [
        ((6, 8), (48,)),
        ((48,), (6, 8)),
        ((6, 2, 4), (6, 8)),
        ((6, 8, 1), (1, 6, 8)),
        ((2, 24), (6, 8)),
    ],
)
def test_reshape_there_and_back_is_the_identity(
    shape: tuple[int, ...], source: tuple[int, ...]
) -> None:
    start = tuple(ix.symbol(f"i{axis}", extent) for axis, extent in enumerate(shape))
    inside = access.through_reshape(start, shape, source)
    assert access.through_reshape(inside, source, shape) == start
    assert ix.linear(inside, source) == ix.linear(start, shape)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=2), st.integers(1, 30))
def test_a_quotient_and_its_remainder_join_again(factors: list[int], divisor: int) -> None:
    start = ix.of(X) * factors[0] + ix.of(Y) * factors[1]
    assert (start // divisor) * divisor + start % divisor == start


def test_convolution_index_of_padded_windows() -> None:
    position = [ix.symbol("n", 2), ix.symbol("p", 5), ix.symbol("w", 3)]
    padded = access.through_window(position, [1], [2], [1])
    inner, conditions = access.through_pad(padded, [0, 1], [2, 9])
    assert [str(part) for part in inner] == ["n", "p*2 + w - 1"]
    assert [str(condition) for condition in conditions] == [
        "(p*2 + w - 1 >= 0) & (p*2 + w - 1 < 9)"
    ]


def test_stride_is_none_where_a_division_hides_the_symbol() -> None:
    assert (ix.of(X) * 8 + ix.of(Y)).stride(Y) == 1
    assert (ix.of(X) * 8 + ix.of(Y)).stride(X) == 8
    assert (ix.of(X) % 4 + ix.of(Y)).stride(X) is None
