"""Linear forms of integers: what they evaluate to is what the arithmetic says, lane by lane."""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Callable

import pytest

from aotc.aot.targets.cpu.lanes import Lanes
from aotc.aot.targets.cpu.linear import Int, Lane, Linear, Pointer, integer, wrap
from aotc.aot.targets.cpu.writer import Operand, Writer

WIDTH = 8
NUMBERS = (-1000, -17, -8, -3, -1, 0, 1, 2, 7, 8, 64, 999)


def quotient(a: int, b: int) -> int:
    """Rounded towards zero, as the hardware divides."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INSTRUCTIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "mul": operator.mul,
    "sdiv": quotient,
    "udiv": operator.floordiv,
    "srem": lambda a, b: a - b * quotient(a, b),
    "urem": operator.mod,
}


class Evaluation:
    """Runs the straight-line text that a Writer holds, on given values of its named operands."""

    def __init__(self, writer: Writer, given: dict[str, int]) -> None:
        self.known: dict[str, list[int]] = {name: [value] for name, value in given.items()}
        for line in writer.scopes[0].lines:
            name, _, text = line.strip().partition(" = ")
            self.known[name] = self.instruction(text)

    def instruction(self, text: str) -> list[int]:
        name, rest = text.replace("sdiv exact", "sdiv").split(" ", 1)
        if name in ("sext", "zext", "trunc"):
            value, _, kind = rest.partition(" to ")
            return [wrap(x, kind.split()[-1].rstrip(">")) for x in self.operand(value)]
        a, b, *_ = re.split(r", (?![^<]*>)", rest)
        if name == "insertelement":
            return self.operand(b)
        if name == "shufflevector":
            return self.operand(a)[:1] * WIDTH
        kind = re.search(r"i\d+", a)[0]
        left, right = self.operand(a), self.operand(b)
        assert len(left) == len(right)
        function = INSTRUCTIONS[name]
        return [wrap(function(x, y), kind) for x, y in zip(left, right, strict=True)]

    def operand(self, text: str) -> list[int]:
        """Values of `i32 7`, `<2 x i32> <i32 0, i32 1>`, `%v3` with or without its type."""
        found = re.search(r"%[\w.]+$", text)
        if found:
            return self.known[found[0]]
        if text.endswith(">"):
            return [int(x) for x in re.findall(r"i\d+ (-?\d+)", text)]
        return [int(text.split()[-1])]


def values(lanes: Lanes, lane: Lane, **given: int) -> list[int]:
    """What a lane value is in each lane, when the atoms `%name` have the given values."""
    operand = lanes.operand(lane)
    evaluation = Evaluation(lanes.writer, {f"%{name}": value for name, value in given.items()})
    found = evaluation.operand(str(operand))
    return found * lanes.width if len(found) == 1 else found


@pytest.fixture
def lanes() -> Lanes:
    return Lanes(Writer(), WIDTH, WIDTH)


def atom(
    lanes: Lanes, name: str, multiple: int = 1, kind: str = "i32", *, natural: bool = False
) -> Int:
    return lanes.atom(Operand(f"%{name}", kind), kind, multiple, natural=natural)


def chunk(base: Int, stride: int = 1) -> Int:
    """`base + stride * lane`."""
    return Int(base.kind, base.base, Linear((), stride))


@pytest.mark.parametrize("seed", range(20))
def test_sums_and_products_of_forms(lanes: Lanes, seed: int) -> None:
    draw = random.Random(seed)
    c, d, stride = (draw.choice(NUMBERS) for _ in range(3))
    x, y = draw.choice(NUMBERS), draw.choice(NUMBERS)
    form = lanes.add(
        lanes.multiply(chunk(atom(lanes, "x"), stride), integer(c)),
        lanes.add(atom(lanes, "y"), integer(d)),
        -1,
    )
    expected = [(x + stride * lane) * c - (y + d) for lane in range(WIDTH)]
    assert values(lanes, form, x=x, y=y) == expected


def test_equal_terms_cancel(lanes: Lanes) -> None:
    x = atom(lanes, "x")
    assert lanes.add(lanes.add(x, integer(5)), x, -1).constant == 5
    assert lanes.writer.scopes[0].lines == []


@pytest.mark.parametrize("x", NUMBERS)
@pytest.mark.parametrize("y", NUMBERS)
def test_product_with_a_uniform_factor_keeps_its_lanes(lanes: Lanes, x: int, y: int) -> None:
    left = lanes.add(chunk(atom(lanes, "x"), 3), integer(2))
    product = lanes.multiply(left, atom(lanes, "y"))
    assert not product.base.is_vector
    assert values(lanes, product, x=x, y=y) == [(x + 2 + 3 * lane) * y for lane in range(WIDTH)]


def test_product_of_two_that_differ_by_lane(lanes: Lanes) -> None:
    product = lanes.multiply(chunk(atom(lanes, "x")), chunk(atom(lanes, "y"), -2))
    expected = [(5 + lane) * (-7 - 2 * lane) for lane in range(WIDTH)]
    assert values(lanes, product, x=5, y=-7) == expected


@pytest.mark.parametrize("remainder", [False, True])
@pytest.mark.parametrize("divisor", [-5, 1, 3, 8, 24])
@pytest.mark.parametrize("x", NUMBERS)
def test_division_rounds_towards_zero(lanes: Lanes, x: int, divisor: int, remainder: bool) -> None:
    form = lanes.add(chunk(atom(lanes, "x"), 3), integer(-4))
    found = lanes.divide(form, integer(divisor), remainder=remainder)
    function = INSTRUCTIONS["srem" if remainder else "sdiv"]
    expected = [function(x + 3 * lane - 4, divisor) for lane in range(WIDTH)]
    assert values(lanes, found, x=x) == expected


@pytest.mark.parametrize("divisor", [8, 16, 24])
@pytest.mark.parametrize("x", [0, 8, 40, 1016])
def test_an_aligned_chunk_does_not_straddle(lanes: Lanes, x: int, divisor: int) -> None:
    form = chunk(atom(lanes, "x", WIDTH, natural=True))
    whole = lanes.divide(form, integer(divisor), remainder=False)
    rest = lanes.divide(form, integer(divisor), remainder=True)
    assert whole.is_uniform
    assert rest.stride == Linear((), 1)
    assert not rest.base.is_vector
    assert values(lanes, whole, x=x) == [(x + lane) // divisor for lane in range(WIDTH)]
    assert values(lanes, rest, x=x) == [(x + lane) % divisor for lane in range(WIDTH)]


@pytest.mark.parametrize(("multiple", "divisor", "x"), [(4, 16, 12), (8, 12, 8), (1, 8, 5)])
def test_a_chunk_that_may_straddle_is_divided_lane_by_lane(
    lanes: Lanes, multiple: int, divisor: int, x: int
) -> None:
    form = chunk(atom(lanes, "x", multiple, natural=True))
    for remainder, function in ((False, operator.floordiv), (True, operator.mod)):
        found = lanes.divide(form, integer(divisor), remainder=remainder)
        assert not found.is_uniform
        assert values(lanes, found, x=x) == [function(x + lane, divisor) for lane in range(WIDTH)]


def test_division_of_terms_that_the_divisor_divides(lanes: Lanes) -> None:
    row = atom(lanes, "row", natural=True)
    flat = lanes.add(lanes.multiply(row, integer(12)), integer(31))
    assert values(lanes, lanes.divide(flat, integer(12), remainder=False), row=4) == [6] * WIDTH
    assert lanes.divide(flat, integer(12), remainder=True).constant == 7
    assert not any("div" in line for line in lanes.writer.scopes[0].lines)


def test_numbers_of_lanes_are_divided_by_what_divides_them(lanes: Lanes) -> None:
    """Every lane has a number of its own, of which only a common divisor is known."""
    items = [12 * (lane * lane % 5) for lane in range(WIDTH)]
    own = Operand(lanes.literal(items, "i32"), f"<{WIDTH} x i32>")
    form = lanes.atom(own, "i32", 4, natural=True)
    found = lanes.divide(form, integer(4), remainder=False)
    for line in lanes.writer.scopes[0].lines:  # both operands of an instruction have its type
        assert line.count(f"<{WIDTH} x i32>") == 0 or line.count("<i32") >= line.count("x i32>")
    assert values(lanes, found) == [item // 4 for item in items]


def test_a_remainder_keeps_the_common_divisor(lanes: Lanes) -> None:
    found = lanes.divide(atom(lanes, "x", 24, natural=True), integer(32), remainder=True)
    assert found.base.multiple == 8
    assert found.natural
    assert values(lanes, found, x=24 * 5) == [24] * WIDTH


@pytest.mark.parametrize("x", NUMBERS)
def test_extension_keeps_the_value_and_its_origin(lanes: Lanes, x: int) -> None:
    form = lanes.add(lanes.multiply(chunk(atom(lanes, "x"), -2), integer(3)), integer(-9))
    wide = lanes.extend(form, "i64")
    assert wide.kind == "i64"
    assert wide.base.coefficient(Operand("%x", "i32")) == 3
    assert wide.base.coefficient(Operand("%y", "i32")) == 0
    assert values(lanes, wide, x=x) == [(x - 2 * lane) * 3 - 9 for lane in range(WIDTH)]


@pytest.mark.parametrize("x", NUMBERS)
def test_a_narrowed_value_has_no_origin(lanes: Lanes, x: int) -> None:
    narrow = lanes.extend(atom(lanes, "x", kind="i64"), "i32")
    assert narrow.base.coefficient(Operand("%x", "i64")) == 0
    assert values(lanes, narrow, x=x + (1 << 40)) == [x] * WIDTH


def test_a_negative_number_is_not_zero_extended_term_by_term(lanes: Lanes) -> None:
    lanes.convert(lanes.add(atom(lanes, "x"), integer(-1)), "i64", signed=False)
    written = lanes.writer.scopes[0].lines
    assert [line.split(" = ")[1].split()[0] for line in written] == ["add", "zext"]


def test_a_contiguous_pointer_has_one_address(lanes: Lanes) -> None:
    base = Operand("%p", "ptr")
    contiguous = Pointer(base, chunk(atom(lanes, "x")), "f32")
    strided = Pointer(base, chunk(atom(lanes, "x"), 2), "f32")
    assert lanes.operand(contiguous).type == "ptr"
    assert lanes.operand(strided).type == "<8 x ptr>"


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [(128, "i8", -128), (-129, "i8", 127), (1 << 31, "i32", -(1 << 31)), (-1, "i64", -1)],
)
def test_wrap(value: int, kind: str, expected: int) -> None:
    assert wrap(value, kind) == expected
