"""Sizes that depend on a call: a straight line of integer instructions, read and run strictly.

Values are numbered: the dims of the program first, in the order of the manifest, then one value for
each row. A row names values before it, so that nothing loops and nothing is evaluated but this:

    row       = ["number", value, 0]                value: a whole number
              | [operation, left, right]            numbers of earlier values
    operation = "add" | "mul" | "floordiv" | "max" | "min"

Every value fits 62 bits and every divisor is at least 1, or the evaluation ends with `SizeInvalid`.
"""

from __future__ import annotations

from ..errors import SizeInvalid
from ..record import Record
from .schema import Integer, Schema, Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

VALUE_LIMIT = 1 << 62
ROWS_LIMIT = 1 << 14
DIMS_LIMIT = 64
OPERATIONS = ("add", "mul", "floordiv", "max", "min")
NUMBER = "number"
Row = tuple[str, int, int]


class Extent(Record):
    """A size of a shape that depends on the call: number of its value, and its formula for people.

    Prints as the formula: `batch`, `2*seq + 1`.
    """

    __slots__ = ("index", "text")
    index: int
    text: str

    def __init__(self, index: int, text: str) -> None:
        self._set(index=index, text=text)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


class RowsSchema(Schema):
    """The list of rows; `dims` is how many values stand before them."""

    __slots__ = ()
    expected = f"a list of up to {ROWS_LIMIT} rows [operation, left, right]"

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not list or len(value) > ROWS_LIMIT:
            self.refuse(value, field, path)
        for index, row in enumerate(value):
            where = f"{field}[{index}]"
            is_row = type(row) is list and len(row) == 3 and type(row[0]) is str
            if not is_row or (row[0] != NUMBER and row[0] not in OPERATIONS):
                self.refuse(row, where, path)
            low = -VALUE_LIMIT if row[0] == NUMBER else 0
            Integer(low, VALUE_LIMIT).check(row[1], f"{where}[1]", path)
            Integer(0, ROWS_LIMIT + DIMS_LIMIT).check(row[2], f"{where}[2]", path)


class ExtentSchema(Schema):
    """A whole number, or `[number of a value]`; with `is_named`, `[number, formula]`."""

    __slots__ = ("is_named", "number")

    def __init__(self, low: int, high: int, is_named: bool = False) -> None:
        self.number = Integer(low, high)
        self.is_named = is_named
        self.expected = f"{self.number.expected} or the number of a value in a list"

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not list:
            self.number.check(value, field, path)
            return
        if len(value) != 1 + self.is_named:
            self.refuse(value, field, path)
        Integer(0, ROWS_LIMIT + DIMS_LIMIT).check(value[0], f"{field}[0]", path)
        if self.is_named:
            Text(256).check(value[1], f"{field}[1]", path)


def reader(values: Sequence[Any]) -> Callable[[Any], Any]:
    """A function from the numbers of a plan to their values at a call's sizes: a whole number is
    itself, a list holds the number of a value."""
    return lambda number: values[number[0]] if type(number) is list else number


def placed(memory: Sequence[Any], at: Callable[[Any], Any]) -> tuple[str, Any]:
    """(space, value) of `[space, number]`."""
    return memory[0], at(memory[1])


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
    values = list(dims)
    for operation, left, right in rows:
        if operation == NUMBER:
            values.append(left)
            continue
        first, second = values[left], values[right]
        if operation == "add":
            found = first + second
        elif operation == "mul":
            found = first * second
        elif operation == "floordiv":
            if second < 1:
                raise SizeInvalid(found=f"a division by {second}", expected="a divisor from 1 on")
            found = first // second
        else:
            found = max(first, second) if operation == "max" else min(first, second)
        if not -VALUE_LIMIT <= found <= VALUE_LIMIT:
            raise SizeInvalid(found="a size beyond 62 bits", expected="smaller inputs")
        values.append(found)
    return values


def highest(rows: Sequence[Row], ranges: Sequence[Sequence[int]]) -> list[int]:
    """For each value a number that it does not exceed while the dims are within their ranges.

    Ends are followed through each row as if its operands did not depend on each other. A division
    counts as one by 1 where the divisor may be less.
    """
    ends = [(low, high) for low, high in ranges]
    for operation, left, right in rows:
        if operation == NUMBER:
            ends.append((left, left))
            continue
        first, second = ends[left], ends[right]
        if operation == "floordiv":
            second = (max(1, second[0]), max(1, second[1]))
        found = [_ENDS[operation](one, other) for one in first for other in second]
        ends.append((min(found), max(found)))
    return [high for _, high in ends]


_ENDS: dict[str, Callable[[int, int], int]] = {
    "add": lambda left, right: left + right,
    "mul": lambda left, right: left * right,
    "floordiv": lambda left, right: left // right,
    "max": max,
    "min": min,
}
