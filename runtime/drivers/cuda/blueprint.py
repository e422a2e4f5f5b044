"""What the graphs of a chain of launches share, whoever's memory they are over.

Sessions run the same launches over other memory, those of a range of sizes with other numbers too.
A `Blueprint` reads the launches once and keeps one graph with a node each, whose parameters lie in
one `Frame`. For a session the frame is filled with that one's addresses and numbers, the nodes take
them, and the graph is instantiated. What comes of it needs the graph no longer, but for the names
of its nodes: those that take inputs and outputs are patched from a small frame of the session's.
The frame's launches can also be issued one after the other, as a call at sizes that may not come
again is (`launch_list.py`).
"""

from __future__ import annotations

import _thread
import ctypes
from array import array
from operator import itemgetter
from struct import Struct

from ...bundle.extent import Extent
from ...bundle.outline import Table
from .graph import Execution, LaunchGraph
from .handles import TensorMap
from .launch_list import LaunchList
from .libcuda import KernelNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    from ...bundle.plan_parts import Argument, Image, Launch, Map
    from .device import Device
    from .handles import Function

    Taking = Callable[[Sequence[int]], Sequence[int]]
    Takes = dict[str, Callable[[Any], int]]  # from a space to the addresses of what lies there
    AddressOf = Callable[[str, int], int]

    class Code(Protocol):
        """What a chain asks of its code: see `DeviceCode`."""

        gpu: Device
        weights: dict[str, int]
        functions: dict[int, Function]
        has_programmatic_launch: bool

        def image(self, kernel: int) -> Image: ...


CHANGING = ("input", "output")  # spaces whose addresses change from call to call
SCRATCH, NOTHING = ("scratch", 0), 0  # what Triton's kernels take behind their arguments
ROW = Struct("<Q7I4xQQQQ")  # a KernelNode
ROW_WORDS = ROW.size // 4
GRID_WORD = KernelNode.grid_x.offset // 4


class PlacedMap:
    """A tensor map of a chain, and where its numbers stand in the chain's table.

    memory: the address behind which it begins; changes: whether a call brings that; is_fixed:
    whether all sessions have the same map.
    """

    __slots__ = ("changes", "is_fixed", "key", "memory", "row", "shape", "strides")

    def __init__(self, row: Map, argument: Argument, table: ChainTable) -> None:
        self.row, self.memory = row, table.memory(argument)
        self.shape, self.strides = table.places(row.shape), table.places(row.strides)
        self.changes = argument[0] in CHANGING
        numbers = (*row.shape, *row.strides)
        self.is_fixed = argument[0] == "weight" and Extent not in map(type, numbers)
        self.key = (self.memory, self.shape, self.strides, row.dtype, row.start, row.box,
                    row.swizzle_bytes)  # fmt: skip


class ChainTable(Table):
    """The numbers of a chain of launches and the addresses of the memory that they name, each in
    one place: behind the values of the plan."""

    __slots__ = ("addressed",)

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.addressed: dict[int, Argument] = {}  # place → memory; of the arena with a place

    def memory(self, argument: Argument) -> int:
        """The place of an argument: of a number, or of the address of memory."""
        space, value = argument
        if space == "int":
            return self.place(value)
        where: Any = (space, self.place(value)) if space == "arena" else argument
        place = self.key(where)
        self.addressed[place] = where
        return place


class Layout:
    """Where the parameters of some launches lie in a `Frame`, and what stands there.

    starts: the first slot of each launch; maps: those that the launches share, with their slots.
    """

    __slots__ = ("code", "count", "grids", "launches", "maps", "starts", "take")

    def __init__(self, code: Code, launches: Sequence[Launch], table: ChainTable) -> None:
        self.code, self.launches = code, launches
        self.starts: list[int] = []
        slots: list[int] = []
        maps: dict[Any, tuple[PlacedMap, list[int]]] = {}
        ends = table.memory(SCRATCH), table.place(NOTHING)
        for launch in launches:
            self.starts.append(len(slots))
            slots += [table.memory(argument) for argument in launch.args]
            for row in launch.maps:
                placed = PlacedMap(row, launch.args[row.argument], table)
                maps.setdefault(placed.key, (placed, []))[1].append(len(slots))
                slots += [ends[1], *placed.shape, *placed.strides]
            slots += ends
        self.maps = list(maps.values())
        self.count = len(slots)
        self.take = taking(slots)
        grids = [table.places(launch.grid) for launch in launches]
        self.grids = [taking([grid[axis] for grid in grids]) for axis in range(3)]


class Frame:
    """Memory of launches as the driver reads it: slots of parameters, the arrays of pointers to
    them, the rows of the nodes, and tensor maps.

    slots: the parameters, which may be written between uses; maps: in the order of the layout's;
    references: to each launch's row, arguments: where its array of pointers is; they live as long
    as the frame.
    """

    __slots__ = ("_layout", "_pointers", "_rows", "_words", "arguments", "maps", "references",
                 "slots")  # fmt: skip

    def __init__(self, device: Device, layout: Layout) -> None:
        self._layout = layout
        memory = array("q", bytes(8 * layout.count))
        self.slots = memoryview(memory)
        base = memory.buffer_info()[0]
        self._pointers = pointers = array("Q", range(base, base + 8 * layout.count, 8))
        self.maps = [TensorMap(device, row.row, is_described=False) for row, _ in layout.maps]
        for tensor_map, (_, slots) in zip(self.maps, layout.maps, strict=True):
            for slot in slots:
                pointers[slot] = tensor_map.address
        self._rows = rows = array("I", bytes(ROW.size * len(layout.launches)))
        self._words = memoryview(rows)
        first, code = pointers.buffer_info()[0], layout.code
        self.arguments = [first + 8 * start for start in layout.starts]
        for number, (launch, where) in enumerate(zip(layout.launches, self.arguments, strict=True)):
            function, image = code.functions[launch.kernel], code.image(launch.kernel)
            ROW.pack_into(
                rows, ROW.size * number, function.handle, 0, 0, 0, image.threads, 1, 1,
                function.shared_bytes, where, 0, 0, device.context,
            )  # fmt: skip
        base = rows.buffer_info()[0]
        ends = range(base, base + ROW.size * len(layout.launches), ROW.size)
        self.references = [ctypes.byref(KernelNode.from_address(each)) for each in ends]

    def grid(self, axis: int) -> memoryview:
        """How many programs each launch has along an axis, u32."""
        return self._words[GRID_WORD + axis :: ROW_WORDS]

    def fill(self, table: list[int], is_first: bool = True, is_of_call: bool = False) -> None:
        """Write the numbers of a session and its maps, where the context is current; is_first:
        also those that are the same for all; is_of_call: also maps of what a call brings, which
        the table has then."""
        layout = self._layout
        if not layout.launches:
            return
        self.slots[:] = array("q", layout.take(table))
        for axis, take in enumerate(layout.grids):
            self.grid(axis)[:] = array("I", take(table))
        for (placed, _), tensor_map in zip(layout.maps, self.maps, strict=True):
            if is_first or not placed.is_fixed:
                tensor_map.describe(
                    [table[each] for each in placed.shape],
                    [table[each] for each in placed.strides],
                )
                if is_of_call or not placed.changes:
                    tensor_map.write(table[placed.memory])


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


def taking(places: Sequence[int]) -> Taking:
    """What takes the numbers at these places out of a table."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda table: [table[place] for place in places]
