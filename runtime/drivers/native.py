"""Native functions of a plan: bound when a program is loaded, framed when a session is opened.

A frame lies in the session's control block. The plan's launch of it has the frame as its only
argument; where its tensors lie is written into the frame, once for what stays and before each call,
by the executor's patches, for inputs and outputs.
"""

from __future__ import annotations

import ctypes

from ..backends import abi
from ..backends.errors import FunctionFailed, NativeDiffers
from ..backends.frame import (
    CONTEXT_WORKSPACE,
    FRAME_CONTEXT,
    FRAME_FAILED,
    FRAME_MESSAGE,
    FRAME_NUMBER,
    FRAME_STATUS,
    FrameLayout,
    message_at,
    scalar_bytes,
    write_frame,
)
from ..backends.prepared import workspace_bytes
from ..dlpack import contiguous_strides

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..backends.library import NativeFunction, NativeLibrary
    from ..native_plan import NativeLaunch

ALIGNMENT_BYTES = 64


class BoundNative:
    """A native launch of a plan with the function that it calls, on the CPU."""

    __slots__ = ("function", "launch", "layout", "nbytes")

    def __init__(self, launch: NativeLaunch, function: NativeFunction) -> None:
        self.launch = launch
        self.function = function
        ranks = [len(tensor.shape) for tensor in launch.tensors]
        self.layout = FrameLayout(ranks, len(launch.scalars))
        self.nbytes = -(-self.layout.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    def at(self, launch: NativeLaunch) -> BoundNative:
        """The same function for another place of the launch."""
        return BoundNative(launch, self.function)

    def write(self, base: int, failed: int, number: int, threads: int) -> None:
        """Write the frame at `base` but for its tensors' memory.

        failed: address of the session's status; number: what it becomes when this launch fails;
        threads: what a function that is not tiled may keep busy.
        """
        launch, layout = self.launch, self.layout
        shapes = [
            (tensor.dtype, tensor.shape, contiguous_strides(tensor.shape, 1))
            for tensor in launch.tensors
        ]
        place = (abi.DEVICE_TYPES["cpu"], 0)
        state = self.function.library.state("cpu")
        write_frame(base, layout, self.function.address, shapes, place, state, 0, threads)
        ctypes.c_int64.from_address(base + FRAME_FAILED).value = failed
        ctypes.c_int32.from_address(base + FRAME_NUMBER).value = number
        room = base + FRAME_CONTEXT + CONTEXT_WORKSPACE + 8
        ctypes.c_int64.from_address(room).value = launch.workspace_bytes
        for index, (kind, value) in enumerate(launch.scalars):
            given = float.fromhex(str(value)) if kind == "real" else int(value)
            ctypes.memmove(base + layout.scalar(index), scalar_bytes(kind, given), 8)

    def check(self, path: str) -> None:
        """Raise `NativeDiffers` unless the function is as it was when the bundle was built."""
        signature, launch = self.function.signature, self.launch
        library = self.function.library
        found = [slot.kind for slot in signature.scalars]
        is_as_long = len(signature.tensors) == len(launch.tensors)
        fits = is_as_long and found == [kind for kind, _ in launch.scalars]
        pairs = zip(signature.tensors, launch.tensors, strict=False)
        fits = fits and all(
            tensor.is_written == (slot.role == "output")
            and tensor.dtype in slot.dtypes
            and slot.rank in (None, len(tensor.shape))
            for slot, tensor in pairs
        )
        if not fits or "cpu" not in signature.devices:
            raise NativeDiffers(
                name=library.name,
                file=library.path,
                what=f"the function `{signature}`",
                found="of another signature",
                expected="the one",
                path=path,
            )
        needed = self.workspace_bytes()
        if needed > launch.workspace_bytes:
            raise NativeDiffers(
                name=library.name,
                file=library.path,
                what=f"for `{signature.name}` a workspace of",
                found=f"{needed} bytes",
                expected=f"at most {launch.workspace_bytes}",
                path=path,
            )

    def workspace_bytes(self) -> int:
        """What the function asks for, of one tile; raises `FunctionFailed`."""
        if not self.function.workspace_address:
            return 0
        block = (ctypes.c_int64 * (self.nbytes // 8))()
        base = ctypes.addressof(block)
        self.write(base, base, 0, 1)
        return workspace_bytes(self.function, base, self.layout)


def guarded(
    execute: Callable[[], None], failed: int, bound: list[tuple[BoundNative, int]]
) -> Callable[[], None]:
    """A run of a session whose plan calls native functions.

    It holds the locks of libraries whose functions are not concurrent, and raises `FunctionFailed`
    after the plan has stopped at a launch that failed. failed: address of the session's status;
    bound: each native launch with the address of its frame.
    """
    alone: dict[int, NativeLibrary] = {
        id(each.function.library): each.function.library
        for each, _ in bound
        if not each.function.signature.is_concurrent
    }
    locks = [alone[key].lock for key in sorted(alone)]  # one order, so that none waits for another
    status: Any = ctypes.c_int32.from_address(failed)

    def run() -> None:
        for lock in locks:
            lock.acquire()
        try:
            status.value = 0
            execute()
        finally:
            for lock in locks:
                lock.release()
        if status.value:
            raise _failure(*bound[status.value - 1])

    return run


def _failure(native: BoundNative, base: int) -> FunctionFailed:
    """The error of a launch; its frame is as before the call afterwards."""
    status: Any = ctypes.c_int32.from_address(base + FRAME_STATUS)
    error = FunctionFailed(
        function=native.function.name, detail=message_at(base), status=status.value
    )
    status.value = 0
    ctypes.memset(base + FRAME_MESSAGE, 0, 1)
    return error
