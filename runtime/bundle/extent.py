"""Dynamic sizes as a list of integer instructions, read and evaluated strictly.

Values are numbered: the dims of the program first, in the order of the manifest, then one value for
each row. A row refers to earlier values only, so there are no loops, and nothing but this is
evaluated:

    row       = ["number", value, 0]                value: an integer
              | [operation, left, right]            numbers of earlier values
    operation = "add" | "mul" | "floordiv" | "max" | "min"

Every value must fit 62 bits and every divisor be at least 1; otherwise `SizeInvalid` is raised.
"""

from __future__ import annotations

from operator import add, floordiv, mul

from ..errors import SizeInvalid
from ..record import Record
from .schema import Fields, Integer, List, Refused, Schema, Tagged, Text, along, describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from .schema import Numbering

    Step = tuple[Callable[[int, int], int] | None, int, int]

VALUE_LIMIT = 1 << 62
ROWS_LIMIT = 1 << 14
DIMS_LIMIT = 64
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": add,
    "mul": mul,
    "floordiv": floordiv,
    "max": max,
    "min": min,
}
NUMBER = "number"
Row = tuple[str, int, int]


class Extent(Record):
    """A dynamic size: the number of its value, and in signatures its formula as text, as which it
    prints: `batch`, `2*seq + 1`."""

    index: int
    text: str = ""

    def __str__(self) -> str:
        return self.text or f"value {self.index}"

    __repr__ = __str__


INDEX = Integer(0, ROWS_LIMIT + DIMS_LIMIT)
_UNNAMED: dict[int, Extent] = {}  # by number, at most ROWS_LIMIT + DIMS_LIMIT
FORMULA = Text(256)
ROWS = List(
    Tagged(
        "a row [operation, left, right]",
        {
            NUMBER: (Integer(-VALUE_LIMIT, VALUE_LIMIT), INDEX),
            **dict.fromkeys(OPERATIONS, (INDEX, INDEX)),
        },
    ),
    limit=ROWS_LIMIT,
)


class Number(Integer):
    """A whole number, or an `Extent`: `[number of a value]`, if named `[number, formula]`."""

    __slots__ = ("is_named",)
    has_numbers = True

    def __init__(self, low: int, high: int, is_named: bool = False) -> None:
        super().__init__(low, high)
        self.is_named = is_named

    def read(self, value: Any, count: int = 0) -> Any:
        if type(value) is not list:
            return super().read(value)
        if len(value) != 1 + self.is_named:
            expected = f"{self.expected} or the number of a value in a list"
            raise Refused(describe(value), expected)
        if self.is_named:
            found = Extent(*along([INDEX.read, FORMULA.read], value))
        else:  # a plan names a few values thousands of times
            known = _UNNAMED.get(value[0]) if type(value[0]) is int else None
            if known is None:
                (index,) = along([INDEX.read], value)
                known = _UNNAMED[index] = Extent(index, "")
            found = known
        if found.index >= count:
            raise Refused(f"value {found.index}", f"one of {count} values")
        return found

    def write(self, value: Any) -> Any:
        if type(value) is not Extent:
            return value
        return [value.index, value.text] if self.is_named else [value.index]

    def at(self, value: Any, number: Numbering) -> Any:
        if type(value) is int:  # it was checked when it was read
            return value
        found = number(value)
        return super().read(found) if type(found) is int else found


class Apart(Schema):
    """`item`, whose formulas have a numbering of their own with at most `count` values."""

    __slots__ = ("count", "item")

    def __init__(self, item: Schema, count: int) -> None:
        self.item, self.count = item, count

    @property
    def expected(self) -> str:  # type: ignore[override]
        """As of `item`."""
        return self.item.expected

    def read(self, value: Any, count: int = 0) -> Any:
        return self.item.read(value, self.count)

    def write(self, value: Any) -> Any:
        return self.item.write(value)


class Numbered(Fields):
    """A map with a numbering of its own for its formulas: its `dims`, and one value for each row of
    its `sizes`."""

    __slots__ = ()

    def read(self, value: Any, count: int = 0) -> Any:
        return super().read(value, count_of(value))


WORD = Number(-(1 << 63), (1 << 63) - 1)


def reader(values: Sequence[Any]) -> Callable[[Any], Any]:
    """A function from the numbers of a plan to their values at a call's sizes: an integer is
    itself, a formula is looked up by the number of its value."""
    return lambda number: values[number.index] if type(number) is Extent else number


def count_of(tree: Any) -> int:
    """How many values a decoded file has: its dims, or the count that it gives, and its rows."""
    found = [tree.get(name) for name in ("dims", "sizes")] if type(tree) is dict else []
    lists = sum(len(each) for each in found if type(each) is list)
    return lists + sum(each for each in found if type(each) is int)


def broken_rows(rows: Sequence[Sequence[Any]], dims: int) -> Iterator[tuple[str, object, str]]:
    """Rows that name a value which is not before them, as (field, found, expected)."""
    for index, (operation, *operands) in enumerate(rows):
        if operation == NUMBER:
            continue
        for place, operand in enumerate(operands, 1):
            if operand >= dims + index:
                yield f"sizes[{index}][{place}]", operand, f"less than {dims + index}"


def evaluate(rows: Sequence[Row], dims: Sequence[int]) -> list[int]:
    """All values for the dims' sizes; raises `SizeInvalid`."""
    return evaluate_line(line_of(rows), dims)


def line_of(rows: Iterable[Row]) -> list[Step]:
    """The rows in the form that `evaluate_line` takes: each with its function, None for a
    constant."""
    return [(OPERATIONS.get(name), left, right) for name, left, right in rows]


def evaluate_line(line: Sequence[Step], dims: Sequence[int]) -> list[int]:
    """`evaluate` of rows that `line_of` prepared."""
    values = list(dims)
    append = values.append
    for operate, left, right in line:
        if operate is None:
            append(left)
            continue
        second = values[right]
        if operate is floordiv and second < 1:
            raise SizeInvalid(found=f"a division by {second}", expected="a divisor from 1 on")
        found = operate(values[left], second)
        if not -VALUE_LIMIT <= found <= VALUE_LIMIT:
            raise SizeInvalid(found="a size beyond 62 bits", expected="smaller inputs")
        append(found)
    return values


def highest(rows: Sequence[Row], ranges: Sequence[Sequence[int]]) -> list[int]:
    """Upper bounds of all values while the dims are within their ranges, by interval arithmetic on
    each row. A division counts as one by 1 if the divisor may be less."""
    ends = [(low, high) for low, high in ranges]
    for operation, left, right in rows:
        if operation == NUMBER:
            ends.append((left, left))
            continue
        first, second = ends[left], ends[right]
        if operation == "floordiv":
            second = (max(1, second[0]), max(1, second[1]))
        found = [OPERATIONS[operation](one, other) for one in first for other in second]
        ends.append((min(found), max(found)))
    return [high for _, high in ends]
