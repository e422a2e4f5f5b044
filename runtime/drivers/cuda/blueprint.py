"""CUDA graphs of a chain of launches, shared by the sessions that run it.

Sessions run the same launches over other memory, those of a range of sizes with other numbers too.
A `Blueprint` reads the launches once and keeps one graph with a node each, whose parameters lie in
one `Frame` (`frame.py`). For a session the frame is filled with that one's addresses and numbers,
the nodes take them, and the graph is instantiated. What comes of it needs the graph no longer, but
for the names of its nodes: those that take inputs and outputs are patched from a small frame of the
session's. The frame's launches can also be issued one after the other, as a call at sizes that may
not come again is (`launch_list.py`).
"""

from __future__ import annotations

import _thread

from .frame import CHANGING, ChainTable, Frame, Layout
from .graph import Execution, LaunchGraph
from .launch_list import LaunchList

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ...bundle.plan_parts import Argument, Launch
    from .frame import Code

    Takes = dict[str, Callable[[Any], int]]  # from a space to the addresses of what lies there
    AddressOf = Callable[[str, int], int]


class Blueprint:
    """A chain of launches; see the module. Safe between threads.

    moving: the layout of the launches that take an input or output; patches: for each such
    memory the slots of a moving frame that take its address, each with the number of its launch
    there, and the numbers of the maps that are aimed at it. is_kept: whether it goes with the code,
    and not with a session.
    """

    __slots__ = ("_are_programmatic", "_brought", "_device", "_frame", "_graph", "_list", "_lock",
                 "_moving_numbers", "_nodes", "_table", "_tail", "_takes", "_whole", "is_kept",
                 "moving", "patches")  # fmt: skip

    def __init__(
        self, code: Code, launches: Sequence[Launch], count: int = 0, is_kept: bool = True
    ) -> None:
        """launches: their numbers may be formulas of `count` values."""
        self._device = code.gpu
        self.is_kept = is_kept
        self._lock = _thread.allocate_lock()  # held while a session's numbers are in the frame
        self._graph: LaunchGraph | None = None
        self._frame: Frame | None = None
        self._list: LaunchList | None = None
        self._nodes: list[Any] = []
        self._table = table = ChainTable(count)
        self._are_programmatic = [
            code.has_programmatic_launch and code.image(launch.kernel).is_programmatic
            for launch in launches
        ]
        self._whole = Layout(code, launches, table)
        self._moving_numbers = [
            number
            for number, launch in enumerate(launches)
            if any(space in CHANGING for space, _ in launch.args)
        ]
        self.moving = Layout(code, [launches[each] for each in self._moving_numbers], table)
        self.patches: dict[Argument, tuple[list[tuple[int, int]], list[int]]] = {}
        self._find_patches()
        self._tail = [key if type(key) is int else 0 for key in table.keys]
        self._takes: list[tuple[int, str, Any]] = []
        self._brought: list[tuple[int, str, Any]] = []  # places of what a call brings
        for place, (space, value) in table.addressed.items():
            if space == "weight":
                self._tail[place - count] = code.weights[str(value)]
            else:
                rows = self._brought if space in CHANGING else self._takes
                rows.append((place, space, value))

    @property
    def count(self) -> int:
        """How many launches there are."""
        return len(self._whole.launches)

    def _find_patches(self) -> None:
        layout = self.moving
        for number, (launch, start) in enumerate(zip(layout.launches, layout.starts, strict=True)):
            for at, argument in enumerate(launch.args):
                if argument[0] in CHANGING:
                    slots, _ = self.patches.setdefault(argument, ([], []))
                    slots.append((start + at, number))
        for number, (placed, _) in enumerate(layout.maps):  # of launches that have the argument
            if placed.changes:
                self.patches[self._table.addressed[placed.memory]][1].append(number)

    def table(self, values: Sequence[int], takes: Takes) -> list[int]:
        """The numbers and addresses of a session: of its values, and by the function of each
        space; 0 for what a call brings."""
        found = [*values, *self._tail]
        for place, space, value in self._takes:
            found[place] = takes[space](found[value] if space == "arena" else value)
        return found

    def instantiate(self, execution: Execution, table: list[int]) -> None:
        """Have `execution` be a graph of the launches over a session's numbers."""
        device = self._device
        with self._lock, device.current():
            frame = self._filled(table)
            if self._graph is None:
                self._graph, self._nodes = self._built(frame)
            else:
                self._graph.update(self._nodes, frame.references)
            execution.pointer.value = self._graph.instance()

    def issue(self, table: list[int], address_of: AddressOf, stream: int) -> None:
        """Launch them one after the other in the order of a stream, over a session's numbers.

        address_of: of what the call brings, by space and number. Nothing of the table, which this
        changes, is read once it returns.
        """
        for place, space, number in self._brought:
            table[place] = address_of(space, number)
        with self._lock, self._device.current():
            frame = self._filled(table, is_of_call=True)
            if self._list is None:
                self._list = LaunchList(self._device, frame, self._whole, self._are_programmatic)
            self._list.issue(stream)

    def _filled(self, table: list[int], is_of_call: bool = False) -> Frame:
        """The frame of all launches with these numbers, where the lock is held."""
        frame = self._frame
        if frame is None:
            frame = Frame(self._device, self._whole)
            frame.fill(table, is_of_call=is_of_call)
            self._frame = frame
        else:
            frame.fill(table, is_first=False, is_of_call=is_of_call)
        return frame

    def _built(self, frame: Frame) -> tuple[LaunchGraph, list[Any]]:
        """The graph of the whole chain, and its nodes."""
        graph = LaunchGraph(self._device)
        try:
            with graph:
                nodes = list(map(graph.add_kernel, frame.references, self._are_programmatic))
        except BaseException:
            graph.close()
            raise
        return graph, nodes

    def moving_frame(self, table: list[int]) -> tuple[Frame, list[Any]]:
        """A frame of a session's own for the launches that take inputs and outputs, and their
        nodes."""
        with self._device.current():
            frame = Frame(self._device, self.moving)
            frame.fill(table)
        return frame, [self._nodes[each] for each in self._moving_numbers]

    def close(self) -> None:
        """Give its graph back; what was instantiated from it may not be patched any more."""
        graph, self._graph, self._frame, self._list = self._graph, None, None, None
        if graph is not None:
            graph.close()
