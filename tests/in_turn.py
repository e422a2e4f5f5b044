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
        others = _distinct([case.callspec.indices for case in cases], axis)
        values = {case.callspec.indices[axis]: case.callspec.params[axis] for case in cases}
        turns = [number for number, value in sorted(values.items()) if _is_here(value)]
        for case in cases:
            indices = case.callspec.indices
            own = turns[sum(indices[name] for name in others) % len(turns)] if turns else None
            if indices[axis] in turns and indices[axis] != own:
                case.add_marker(pytest.mark.nightly)


def _distinct(rows: list[dict[str, int]], axis: str) -> list[str]:
    """The other parameters, one name of those that are given together."""
    found = {tuple(row[name] for row in rows): name for name in rows[0] if name != axis}
    return list(found.values())


def _is_here(value: object) -> bool:
    """Whether this processor has an instruction set; true of all other values."""
    return not isinstance(value, str) or ISA_FEATURES.get(value, frozenset()) <= features()
