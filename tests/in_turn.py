"""Tests whose parameters multiply: the values of one of them take turns in the default run.

    @pytest.mark.in_turn("row")

For each combination of the other parameters one value of `row` is in the default run: that whose
number is the sum of the others' numbers, by the count of values. So every value of every parameter
is there, and where there are two other parameters each pair of values is, as far as the counts
allow. All combinations are `pytest -m "nightly or not nightly"`, those left out `-m nightly`.
Instruction sets that this processor has not take no turn: their tests skip, as they do elsewhere.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features

MARKER = "in_turn"


def leave_out(items: list[pytest.Item]) -> None:
    """Mark `nightly` what has no turn."""
    functions = defaultdict(list)
    for item in items:
        if item.get_closest_marker(MARKER) is not None:
            functions[item.nodeid.partition("[")[0]].append(item)
    for cases in functions.values():
        axis = cases[0].get_closest_marker(MARKER).args[0]
        numbers = {name: _numbers(cases, name) for name in cases[0].callspec.params}
        others = {tuple(row): row for name, row in numbers.items() if name != axis}
        values = {
            row: case.callspec.params[axis] for row, case in zip(numbers[axis], cases, strict=True)
        }
        turns = [number for number, value in sorted(values.items()) if _is_here(value)]
        sums = map(sum, zip(*others.values(), strict=True))
        for case, own, others_sum in zip(cases, numbers[axis], sums, strict=True):
            if own in turns and own != turns[others_sum % len(turns)]:
                case.add_marker(pytest.mark.nightly)


def _numbers(cases: list[pytest.Item], name: str) -> list[int]:
    """The number of each case's value of a parameter, in the order in which values come. Those
    that are given together have the same numbers, and count once."""
    order: dict[str, int] = {}
    return [order.setdefault(repr(case.callspec.params[name]), len(order)) for case in cases]


def _is_here(value: object) -> bool:
    """Whether this processor has an instruction set; true of all other values."""
    return not isinstance(value, str) or ISA_FEATURES.get(value, frozenset()) <= features()
