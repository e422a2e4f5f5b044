"""Where the parameters of a chain of launches lie, as the driver reads them.

A `ChainTable` has each number and each address of the chain once, a `Layout` says which of them
stand where, and a `Frame` is the memory: filled with a session's numbers, it is what nodes of a
graph or single launches are made of.
"""

from __future__ import annotations

import ctypes
from array import array
from operator import itemgetter
from struct import Struct

from ...bundle.extent import Extent
from ...bundle.outline import Table
from .handles import TensorMap
from .libcuda import KernelNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    from ...bundle.plan_parts import Argument, Image, Launch, Map
    from .device import Device
    from .handles import Function

    Taking = Callable[[Sequence[int]], Sequence[int]]

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


def taking(places: Sequence[int]) -> Taking:
    """What takes the numbers at these places out of a table."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda table: [table[place] for place in places]
