"""What kernels are measured on, and when two results agree."""

import numpy
import pytest

from aotc.aot.measure.numbers import PATTERN_ELEMENTS, TOLERANCES, WIDTHS, agree, pattern
from aotc.aot.tune.job import Operand
from aotc.aot.tune.measuring import buffer_of


def floats(kind):
    data = numpy.frombuffer(pattern(kind), "<u2")
    return (data.astype("<u4") << 16).view("<f4")


def test_floats_are_normal_and_never_all_equal():
    for values in (floats("bf16"), numpy.frombuffer(pattern("fp32"), "<f4")):
        assert abs(float(values.mean())) < 0.01
        assert abs(float(values.std()) - 1) < 0.01


@pytest.mark.parametrize("kind", ["i8", "i32", "i64", "u8"])
def test_whole_numbers_are_indices_into_anything(kind):
    assert pattern(kind) == bytes(PATTERN_ELEMENTS * WIDTHS[kind])


def test_truth_values_are_both():
    assert set(pattern("i1")) == {0, 1}


@pytest.mark.parametrize("kind", TOLERANCES)
def test_sums_in_another_order_agree_and_a_wrong_number_does_not(kind):
    size = {"fp64": "<f8", "fp32": "<f4"}.get(kind)
    expected = numpy.frombuffer(pattern(kind)[:8000], size or "<u2").copy()
    near = expected.copy()
    near.view("<u2")[0] ^= 1  # the last bit of a number
    assert agree(kind, near.tobytes(), expected.tobytes())
    wrong = expected.copy()
    wrong[-1] = wrong[0] if size is None else expected[-1] + 1
    wrong[-2] = expected[3]
    assert not agree(kind, wrong.tobytes(), expected.tobytes())


def test_nan_agrees_with_nan_only():
    one, other = (numpy.array(row, "<f4").tobytes() for row in ([1, numpy.nan], [1, 2]))
    assert agree("fp32", one, one)
    assert not agree("fp32", one, other)
    assert not agree("fp32", other, one)


def test_infinity_agrees_with_the_same_infinity_only():
    plus, minus, finite = (numpy.array([1, x], "<f4").tobytes() for x in (numpy.inf, -numpy.inf, 3))
    assert agree("fp32", plus, plus)
    assert not agree("fp32", plus, minus)
    assert not agree("fp32", finite, plus)
    assert not agree("fp32", plus, finite)


def test_a_few_whole_numbers_may_differ():
    expected = numpy.arange(10_000, dtype="<i4")
    found = expected.copy()
    found[5] = 1  # the place of a maximum where two are almost equal
    assert agree("i32", found.tobytes(), expected.tobytes())
    found[:200] = 0
    assert not agree("i32", found.tobytes(), expected.tobytes())


def test_whole_numbers_that_say_how_much_is_read_are_large():
    """Else attention over a cache would be measured on none of its keys."""
    positions = Operand(16, "read")
    assert buffer_of("i64", positions, are_most=False).data == b""
    large = numpy.frombuffer(buffer_of("i64", positions, are_most=True).data, "<i8")
    assert (large > 1 << 40).all()
    for kind, role in (("i1", "read"), ("bf16", "read"), ("i32", "weight"), ("i32", "stored")):
        assert buffer_of(kind, Operand(16, role), are_most=True).data == b""
