"""Calls a program with torch's tensors: a list of arguments in, a list of results out.

torch's guards have checked shapes, dtypes and devices before, so that a call only reads addresses,
allocates outputs and runs. An argument whose layout differs from the one that the graph expects is
copied first. `Interface` says, as data, which arguments and results of a graph are which inputs and
outputs of its program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from aotc.aot.capture.aten_signature import Fixed, Given, Made, Passed, Shown, Taken, Viewed, reach
from aotc.aot.dynamo.call_blocks import NO_BLOCKS, Blocks, CallBlocks, Layout, reinterpreted
from aotc.aot.dynamo.devices import device_at
from aotc.runtime import Program
from aotc.runtime.bundle.extent import Extent, Row, evaluate, reader
from aotc.runtime.drivers.cuda.errors import DeviceMemoryFull

Dims = tuple[tuple[int, int | None], ...]  # (argument, axis) that shows each size of a call


@dataclass(frozen=True, slots=True)
class Interface:
    """One graph's. Plain data: it is stored beside torch's own record of a compiled function.

    taken, made: one an input and an output of the program. dims: where each size of a call is read:
    (argument, axis), or (argument, None) where the argument is the number itself. rows: what is
    computed of them, as `runtime/bundle/extent.py` has it; an `Extent` is one of these values.
    blocks: those that inputs or outputs of a call lie in; outputs of the program that `made` does
    not have are parts of these.
    """

    taken: tuple[Taken | Shown, ...]
    made: tuple[Made, ...]
    results: tuple[Given | Passed | Viewed | Fixed | Extent, ...]
    dims: Dims = ()
    rows: tuple[Row, ...] = ()
    blocks: Blocks = NO_BLOCKS

    @property
    def ends(self) -> tuple[tuple[Taken | Shown, ...], tuple[Made, ...], tuple[Any, ...]]:
        """What goes in and what comes out."""
        return self.taken, self.made, self.results

    @property
    def has_program(self) -> bool:
        """Whether anything is computed."""
        return bool(self.made)


def sizes_at(dims: Dims, arguments: Sequence[Any]) -> list[int]:
    """The sizes of a call, each read where an argument shows it."""
    return [
        arguments[place] if axis is None else arguments[place].shape[axis] for place, axis in dims
    ]


Boxed = Callable[[list[Any]], Any]
FRAMES_KEPT = 64  # sizes that a call has met, for each graph
ALIGNMENT_BYTES = 16  # kernels of a GPU read vectors of this size
_address = torch.Tensor.data_ptr
_strides = torch.Tensor.stride
_empty_on_device = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
_current_device = getattr(torch._C, "_cuda_getDevice", lambda: None)  # None of torch without CUDA


def _empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")


_empty_on_host = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", _empty)

_RECORDED: dict[int, Program] = {}  # programs that CUDA graphs of the user's have launches of


@dataclass(frozen=True, slots=True)
class Frame:
    """What a call at given sizes does."""

    made: tuple[Layout, ...]  # one an output of the program
    numbers: tuple[tuple[int, int], ...]  # (place among the results, value)
    views: tuple[tuple[int, Viewed], ...]  # (place among the results, its numbers known)
    run: Callable[[list[int]], None]
    gaps: tuple[tuple[int, tuple[int, ...]], ...] = ()  # (output, the strides it is given in)
    shapes: tuple[tuple[int, ...], ...] = ()  # of the program's inputs, where it has dims
    strides: list[tuple[int, ...]] = field(default_factory=list)  # of arguments, as is expected


class Call:
    """A graph that is called with a list of arguments, which it empties, and gives a list."""

    def __init__(
        self, interface: Interface, program: Program | None, ordinal: int | None = None
    ) -> None:
        """`program` is None where nothing is computed: every result is an argument's. `ordinal` is
        that of the CUDA device that its tensors are on, None for the CPU."""
        self._device = None if ordinal is None else device_at(ordinal)
        self._ordinal = ordinal
        self._interface = interface
        self._program = program
        rows = list(enumerate(interface.results))
        taken = [row for row in interface.taken if isinstance(row, Taken)] if program else []
        self._places = [row.place for row in taken]
        self._taken = taken
        self._marked = [row.place for row in taken if row.may_be_marked]
        self._unread = [0] * (len(interface.taken) - len(taken)) if program else []
        self._given = [(place, row.number) for place, row in rows if isinstance(row, Given)]
        self._passed = [(place, row.place) for place, row in rows if isinstance(row, Passed)]
        self._blank = [row.value if isinstance(row, Fixed) else None for _, row in rows]
        self._frames: dict[tuple[int, ...], Frame] = {}
        self._fixed = None if interface.dims else self._frame((), ())
        self._blocks: CallBlocks | None = None
        if interface.blocks.rows and self._fixed is not None:
            parts = interface.blocks, len(interface.taken), self._fixed.made
            self._blocks = CallBlocks(*parts, self._empty)

    def __call__(self, arguments: list[Any]) -> list[Any]:
        """Run once; `arguments` is empty afterwards."""
        frame = self._fixed or self._frame_for(arguments)
        for place in self._marked:
            arguments[place] = arguments[place].resolve_conj().resolve_neg()
        values = [arguments[place] for place in self._places]
        if list(map(_strides, values)) != frame.strides:
            values = [_laid(*pair) for pair in zip(values, self._taken, strict=True)]
        addresses = list(map(_address, values))
        device = self._device
        if device is not None and any(each % ALIGNMENT_BYTES for each in addresses):
            values = list(map(_aligned, values))
            addresses = list(map(_address, values))
        addresses += self._unread
        blocks, held = self._blocks, None
        if blocks is None:
            made = [self._empty(*layout) for layout in frame.made]
            addresses += map(_address, made)
        else:
            made = blocks.made()
            addresses += map(_address, made)
            scratch, held = blocks.scratch(addresses, values)
            addresses += scratch
        if device is not None and torch.cuda.is_current_stream_capturing():
            self._record(frame, addresses)
        else:
            try:
                frame.run(addresses)
            except DeviceMemoryFull:  # torch's allocator keeps what it has for results to come
                torch.cuda.empty_cache()
                frame.run(addresses)
        for number, strides in frame.gaps:
            made[number] = _spread(made[number], strides)
        results = self._results(frame, arguments, made)
        arguments.clear()
        del held  # memory of this call's, which is in use up to here
        return results

    def _empty(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor:
        """Memory for a result, by the function that Inductor's code calls, where torch has it: it
        takes half as long as `torch.empty_strided`."""
        ordinal = self._ordinal
        if ordinal is None:
            return _empty_on_host(shape, strides, dtype)
        if _empty_on_device is not None and _current_device() == ordinal:
            return _empty_on_device(shape, strides, dtype)
        return torch.empty_strided(shape, strides, dtype=dtype, device=self._device)

    def _record(self, frame: Frame, addresses: list[int]) -> None:
        """Have the user's CUDA graph, that torch's current stream is recorded as, hold the call.

        Its intermediates lie in memory of torch's allocator, which gives what belongs to that
        graph, so that replays share nothing with calls. The program stays until the process ends,
        since nobody says when the graph is replayed for the last time.
        """
        program, device = self._program, self._device
        if program is None:
            return
        held: list[torch.Tensor] = []

        def take(nbytes: int) -> int:
            held.append(torch.empty(nbytes, dtype=torch.uint8, device=device))
            return _address(held[-1])

        program.record_at(addresses, take, frame.shapes)
        _RECORDED[id(program)] = program

    def _results(
        self, frame: Frame, arguments: Sequence[Any], made: Sequence[torch.Tensor]
    ) -> list[Any]:
        results = self._blank.copy()
        for place, number in self._given:
            results[place] = made[number]
        for place, source in self._passed:
            results[place] = arguments[source]
        for place, row in frame.views:
            results[place] = _view(
                arguments[row.place] if row.is_argument else made[row.place], row
            )
        for place, number in frame.numbers:
            results[place] = number
        return results

    def _frame_for(self, arguments: Sequence[Any]) -> Frame:
        """The frame of the sizes that the arguments have."""
        key = tuple(sizes_at(self._interface.dims, arguments))
        frame = self._frames.get(key)
        if frame is None:
            if len(self._frames) >= FRAMES_KEPT:
                self._frames.pop(next(iter(self._frames)))
            frame = self._frames[key] = self._frame(key, arguments)
        return frame

    def _frame(self, sizes: tuple[int, ...], arguments: Sequence[Any]) -> Frame:
        interface = self._interface
        number = reader(evaluate(interface.rows, sizes))
        rows = list(enumerate(interface.results))
        numbers = tuple((at, number(row)) for at, row in rows if isinstance(row, Extent))
        views = tuple((at, row.at(number)) for at, row in rows if isinstance(row, Viewed))
        program = self._program
        if program is None:
            return Frame((), numbers, views, _nothing)
        run, outputs = program.run_at, program.outputs
        shapes: tuple[tuple[int, ...], ...] = ()
        if program.dims:
            shapes = tuple(_shape(row, arguments[row.place]) for row in interface.taken)
            _, outputs = program.signature.at(program.signature.bind(shapes))
            run = functools.partial(program.run_at, shapes=shapes)
        made = zip(outputs[: len(interface.made)], interface.made, strict=True)
        layouts = tuple(_layout(spec.shape, row) for spec, row in made)
        gaps = tuple(
            (at, tuple(map(number, row.strides)))
            for at, row in enumerate(interface.made)
            if row.strides is not None
        )
        memory = shapes if program.dims else [spec.shape for spec in program.inputs]
        taken = zip(memory, interface.taken, strict=True)
        strides = [_dense(extents, row) for extents, row in taken if isinstance(row, Taken)]
        return Frame(layouts, numbers, views, run, gaps, shapes, strides)


def _dense(memory: Sequence[Any], row: Taken) -> tuple[int, ...]:
    """Strides of an argument whose memory has the dims `memory`, without gaps but for its own."""
    if row.steps is not None:
        return row.steps
    memory = memory[:-1] if row.has_parts else memory
    strides, step = [0] * len(memory), 1
    for axis, extent in zip(reversed(row.order), reversed(memory), strict=True):
        strides[axis] = step
        step *= max(extent, 1)
    return tuple(strides)


def _laid(value: torch.Tensor, row: Taken) -> torch.Tensor:
    """An argument that lies as the graph expects."""
    if row.steps is None:
        return value.permute(row.order).contiguous().resolve_neg()  # one element stays as it is
    if value.stride() == row.steps:
        return value
    return value.new_empty_strided(value.shape, row.steps).copy_(value)


def _aligned(value: torch.Tensor) -> torch.Tensor:
    """An argument on a CUDA device as its kernels read it: from an aligned address."""
    return value.clone() if _address(value) % ALIGNMENT_BYTES else value


def _layout(memory: Sequence[Any], row: Made) -> Layout:
    """The layout of an output whose memory has the dims `memory` in its order."""
    memory = memory[:-1] if row.dtype.is_complex else memory
    shape, strides, step = [0] * len(memory), [0] * len(memory), 1
    for axis, extent in zip(reversed(row.order), reversed(memory), strict=True):
        shape[axis], strides[axis] = extent, step
        step *= max(extent, 1)
    return tuple(shape), tuple(strides), row.dtype


def _view(value: torch.Tensor, row: Viewed) -> torch.Tensor:
    """A view of a tensor; an argument that lies otherwise is copied first."""
    if row.is_argument and value.stride() != row.base:
        value = value.new_empty_strided(value.shape, row.base).copy_(value)
    return reinterpreted(value, row.shape, row.strides, row.offset)  # type: ignore[no-any-return]


def _spread(value: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A tensor copied to memory with gaps."""
    return value.new_empty_strided(value.shape, strides).copy_(value)


def _shape(row: Taken | Shown, value: Any) -> tuple[int, ...]:
    """The shape of an input for an argument."""
    if isinstance(row, Shown):
        return (int(value),)
    if row.steps is not None:
        return (reach(value.shape, row.steps),)
    return (*(value.shape[axis] for axis in row.order), *((2,) if row.has_parts else ()))


def _nothing(addresses: list[int]) -> None:
    """The run of a graph that computes nothing."""
