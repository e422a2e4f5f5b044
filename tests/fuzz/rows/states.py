"""Statements that change a state: a buffer of the model, which keeps its value to the next call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.draw import Draw, Known
from fuzz.program import NUMBERS
from fuzz.rows.movement import Text, slice_
from fuzz.rows.row import Op

Arguments = Mapping[str, Any]


def _state(d: Draw, least: int = 0) -> Known:
    return d.one_of([k for k in d.pool.values() if k.name[0] == "s" and k.rank >= least])


def whole(d: Draw) -> Arguments:
    state = _state(d)
    return {"state": state.ref, "x": d.matching(state, (state.dtype,)).ref}


def number(d: Draw) -> Arguments:
    state = _state(d)
    return {"state": state.ref, "n": d.number(state.dtype)}


def rows(d: Draw) -> Arguments:
    """The first rows, from a value that fits them."""
    state = _state(d, 1)

    def fits(known: Known) -> bool:
        return known.shape[1:] == state.shape[1:] and known.shape[0] <= state.shape[0]

    x = d.pick(dtypes=(state.dtype,), ranks=(state.rank,), where=fits)
    start = d.integer(0, state.shape[0] - x.shape[0])
    return {"state": state.ref, "x": x.ref, "start": start, "end": start + x.shape[0]}


def part(d: Draw) -> Arguments:
    state = _state(d, 1)
    places: Any = slice_(_Only(d, state))["places"]
    return {"state": state.ref, "places": Text(places), "n": d.number(state.dtype)}


class _Only:
    """A draw whose one value is the state."""

    def __init__(self, d: Draw, known: Known) -> None:
        self._draw, self._known = d, known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._draw, name)

    def pick(self, **wanted: Any) -> Known:
        return self._known


def row(d: Draw) -> Arguments:
    state = _state(d, 1)
    rest = d.integer(0, max(state.shape[0] - 1, 0))
    x = d.tensor(state.dtype, state.shape[1:])
    return {"state": state.ref, "x": x.ref, "at": rest}


def rolled(d: Draw) -> Arguments:
    return {"state": _state(d, 1).ref, "shift": d.integer(-2, 2)}


def _op(name: str, text: str, draw: Any, **more: Any) -> Op:
    return Op(name, "states", text, draw, is_statement=True, is_fixed_only=True,
              **{"level": "bits", **more})  # fmt: skip


ROWS = (
    _op("copy_", "{state}.copy_({x})", whole, weight=2),
    _op("add_", "{state}.add_({x})", whole, level="integers"),
    _op("mul_", "{state}.mul_({n})", number, level="integers"),
    _op("rows of a state", "{state}[{start}:{end}] = {x}", rows, weight=2),
    _op("row of a state", "{state}[{at}] = {x}", row),
    _op("part of a state", "{state}[{places}] = {n}", part),
    _op("state rolled", "{state}.copy_(torch.roll({state}, {shift}, 0))", rolled),
)

__all__ = ["NUMBERS", "ROWS"]
