"""Calls of a program with torch's tensors: a list of arguments in, a list of results out.

torch's guards have checked shapes, dtypes and devices by now, so that a call takes addresses, makes
outputs and runs. An argument that does not lie as the graph was told is copied first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotc.aot.capture.aten_ends import Fixed, Made, Passed, Shown, Taken, Viewed
from aotc.aot.dynamo.interface import Interface, Numbered
from aotc.runtime import Program
from aotc.runtime.dynamic_program import DynamicProgram
from aotc.runtime.extent import evaluate

Boxed = Callable[[list[Any]], Any]
FRAMES_KEPT = 64  # sizes that a call has met, for each graph


@dataclass(frozen=True, slots=True)
class Frame:
    """What a call at given sizes does: shape, strides and dtype of each output, and the run."""

    made: tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]
    numbers: tuple[tuple[int, int], ...]  # (place among the results, value)
    run: Callable[[list[int]], None]


class Call:
    """A graph that is called with a list of arguments, which it empties, and gives a list."""

    def __init__(self, interface: Interface, program: Program | None) -> None:
        """`program` is None where nothing is computed: every result is an argument's."""
        self._interface = interface
        self._program = program
        rows = interface.results
        readers = [_reader(row) for row in interface.taken]
        self._readers = readers if program is not None else []
        self._made = [place for place, row in enumerate(rows) if isinstance(row, Made)]
        self._passed = [
            (place, row.place) for place, row in enumerate(rows) if isinstance(row, Passed)
        ]
        self._viewed = [(place, row) for place, row in enumerate(rows) if isinstance(row, Viewed)]
        self._blank = [row.value if isinstance(row, Fixed) else None for row in rows]
        self._frames: dict[tuple[int, ...], Frame] = {}
        self._fixed = None if interface.dims else self._frame(())

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """Run once; `arguments` is empty afterwards."""
        frame = self._fixed or self._frame_for(arguments)
        results = self._blank.copy()
        hold, addresses = [], []
        for place, order in self._readers:
            if place is None:
                addresses.append(0)  # an input that shows a size and is not read
                continue
            value = arguments[place]
            if order is not None:
                value = value.permute(order)
            if not value.is_contiguous():
                value = value.contiguous()
                hold.append(value)
            addresses.append(value.data_ptr())
        for place, (shape, strides, dtype) in zip(self._made, frame.made, strict=True):
            made = results[place] = torch.empty_strided(shape, strides, dtype=dtype)
            addresses.append(made.data_ptr())
        frame.run(addresses)
        for place, source in self._passed:
            results[place] = arguments[source]
        for place, row in self._viewed:
            results[place] = _view(arguments[row.place], row)
        for place, number in frame.numbers:
            results[place] = number
        arguments.clear()
        return results

    def _frame_for(self, arguments: Sequence[Any]) -> Frame:
        """The frame of the sizes that the arguments have."""
        key = tuple(
            arguments[place] if axis is None else arguments[place].shape[axis]
            for place, axis in self._interface.dims
        )
        frame = self._frames.get(key)
        if frame is None:
            if len(self._frames) >= FRAMES_KEPT:
                self._frames.pop(next(iter(self._frames)))
            frame = self._frames[key] = self._frame(key, arguments)
        return frame

    def _frame(self, sizes: tuple[int, ...], arguments: Sequence[Any] = ()) -> Frame:
        values = evaluate(self._interface.rows, list(sizes))
        numbers = tuple(
            (place, values[row.index])
            for place, row in enumerate(self._interface.results)
            if isinstance(row, Numbered)
        )
        program = self._program
        if program is None:
            return Frame((), numbers, _nothing)
        rows = [row for row in self._interface.results if isinstance(row, Made)]
        if not isinstance(program, DynamicProgram):
            made = tuple(
                _layout(spec.shape, row) for spec, row in zip(program.outputs, rows, strict=True)
            )
            return Frame(made, numbers, program.run_at)
        shapes = tuple(_shape(row, arguments[row.place]) for row in self._interface.taken)
        _, outputs = program.signature.at(program.signature.bind(shapes))
        made = tuple(_layout(spec.shape, row) for spec, row in zip(outputs, rows, strict=True))
        return Frame(made, numbers, program.runner(shapes))


def _layout(
    memory: Sequence[Any], row: Made
) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    """Shape, strides and dtype of a result whose memory has the dims `memory` in its order."""
    shape, strides, step = [0] * len(memory), [0] * len(memory), 1
    for axis, extent in zip(reversed(row.order), reversed(memory), strict=True):
        shape[axis], strides[axis] = extent, step
        step *= max(extent, 1)
    return tuple(shape), tuple(strides), row.dtype


def _view(value: torch.Tensor, row: Viewed) -> torch.Tensor:
    """A view of an argument, which is copied first where it lies otherwise than was told."""
    if value.stride() != row.strides:
        ordered = value.new_empty_strided(value.shape, row.strides)
        value = ordered.copy_(value)
    return value.as_strided(row.shape, row.view_strides, value.storage_offset() + row.offset)


def _reader(row: Taken | Shown) -> tuple[int | None, tuple[int, ...] | None]:
    """Where an input's memory comes from, and its order where that is not the plain one."""
    if isinstance(row, Shown):
        return None, None
    return row.place, None if _is_plain(row.order) else row.order


def _shape(row: Taken | Shown, value: Any) -> tuple[int, ...]:
    """The shape of an input for an argument."""
    if isinstance(row, Shown):
        return (int(value),)
    return tuple(value.shape[axis] for axis in row.order)


def _is_plain(order: Sequence[int]) -> bool:
    return list(order) == sorted(order)


def _nothing(addresses: list[int]) -> None:
    """The run of a graph that computes nothing."""
