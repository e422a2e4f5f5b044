"""What is left to nightly runs: of each combination one value, and every pair of values stays."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import in_turn
import pytest
from in_turn import leave_out


class Case:
    """As much of a test as `leave_out` asks for."""

    def __init__(self, params: dict[str, object], axis: str) -> None:
        self.nodeid, self.callspec = f"file::test[{params}]", SimpleNamespace(params=params)
        self.axis, self.is_nightly = axis, False

    def get_closest_marker(self, name: str) -> SimpleNamespace:
        assert name == in_turn.MARKER
        return SimpleNamespace(args=(self.axis,))

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.is_nightly = mark.name == "nightly"


def left(axis: str, **values: list) -> list[dict[str, object]]:
    rows = itertools.product(*values.values())
    cases = [Case(dict(zip(values, row, strict=True)), axis) for row in rows]
    leave_out(cases)
    return [case.callspec.params for case in cases if not case.is_nightly]


def test_each_combination_has_one_value_and_each_pair_is_there():
    found = left("kind", size=[1, 2, 3, 4], dtype=["a", "b"], kind=["x", "y"])
    assert len(found) == 4 * 2
    assert len({(row["size"], row["dtype"]) for row in found}) == 4 * 2
    assert len({(row["size"], row["kind"]) for row in found}) == 4 * 2
    assert len({(row["dtype"], row["kind"]) for row in found}) == 2 * 2


def test_values_that_are_given_together_count_once():
    cases = [
        Case({"rows": size, "columns": 7 * size, "kind": kind}, "kind")
        for size in range(4)
        for kind in ("x", "y")
    ]
    leave_out(cases)
    found = [case.callspec.params for case in cases if not case.is_nightly]
    assert [(row["rows"], row["kind"]) for row in found] == [(0, "x"), (1, "y"), (2, "x"), (3, "y")]


def test_an_instruction_set_that_is_not_here_takes_no_turn(monkeypatch):
    monkeypatch.setattr(in_turn, "features", lambda: in_turn.ISA_FEATURES["x86-64-v3"])
    rows = ["x86-64-v3", "x86-64-amx"]  # tests of the second skip themselves
    assert len(left("isa", seed=[1, 2], isa=rows)) == 4
