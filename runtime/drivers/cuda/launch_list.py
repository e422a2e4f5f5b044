"""Launches that are issued one after the other, without a CUDA graph.

A graph costs the host 4 to 8 µs a launch to make and 0.02 µs to launch; launches by themselves
cost 4 to 6 µs each, and the device begins with the first one (docs/dynamic.md has the figures). So
calls that may be the only ones at their sizes, and launches that a user's own graph records, are
issued from a list: rows of memory as the driver reads them, over which one loop of `map` goes
without Python between.
"""

from __future__ import annotations

import ctypes
from array import array

from .graph import DEPENDENCIES
from .libcuda import LaunchAttribute, LaunchConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .device import Device
    from .frame import Frame, Layout

NAME = "cuLaunchKernelEx"
# CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_EARLY = LaunchAttribute(id=6, value=1)
_WORDS = ctypes.sizeof(LaunchConfig) // 4
_GRID_WORD = LaunchConfig.grid_x.offset // 4


class LaunchList:
    """The launches of a frame, whose numbers and grids may change between two uses.

    are_programmatic: which launches may begin before the one before them has ended, as
    `LaunchGraph.kernel` has it; the first one never does, since what is before it is not ours.
    """

    __slots__ = ("_arguments", "_configs", "_device", "_frame", "_functions", "_none", "_rows",
                 "_stream", "_words")  # fmt: skip

    def __init__(
        self, device: Device, frame: Frame, layout: Layout, are_programmatic: Sequence[bool]
    ) -> None:
        self._device, self._frame = device, frame
        count, code = len(layout.launches), layout.code
        memory = array("I", bytes(ctypes.sizeof(LaunchConfig) * count))
        self._words = memoryview(memory)
        self._rows = rows = (LaunchConfig * count).from_buffer(memory)
        self._stream = 0
        early, is_known = ctypes.addressof(_EARLY), DEPENDENCIES in device.functions
        self._functions: list[ctypes.c_void_p] = []
        for number, (row, launch) in enumerate(zip(rows, layout.launches, strict=True)):
            function, image = code.functions[launch.kernel], code.image(launch.kernel)
            row.threads_x, row.threads_y, row.threads_z = image.threads, 1, 1
            row.shared_bytes = function.shared_bytes
            if number and is_known and are_programmatic[number]:
                row.attributes, row.attribute_count = early, 1
            self._functions.append(ctypes.c_void_p(function.handle))
        base, step = ctypes.addressof(rows), ctypes.sizeof(LaunchConfig)
        self._configs = [ctypes.c_void_p(base + step * each) for each in range(count)]
        self._arguments = [ctypes.c_void_p(each) for each in frame.arguments]
        self._none = [None] * count

    def issue(self, stream: int) -> None:
        """Launch all on a stream, where the context is current; asynchronous. What the frame holds
        may change as soon as this returns. Raises `CudaError`."""
        for axis in range(3):
            self._words[_GRID_WORD + axis :: _WORDS] = self._frame.grid(axis)
        if stream != self._stream:
            for row in self._rows:
                row.stream = stream
            self._stream = stream
        launch = self._device.functions[NAME]
        columns = self._configs, self._functions, self._arguments, self._none
        for result in map(launch, *columns):
            if result:
                self._device.fail(NAME, result)
