"""Native functions of a plan: bound when a program is loaded, framed when a session is opened.

A frame lies in the session's control block. The native launch of it has the frame as its only
argument; where its tensors lie is written into the frame, once for what stays and before each call,
by the executor's patches, for inputs and outputs.
"""

from __future__ import annotations

import ctypes

from ..arrays.dlpack import HOST, contiguous_strides
from ..bundle.native_plan import NativeLaunch
from ..drivers.cpu.executor_abi import (
    CONTEXT_STREAM,
    CONTEXT_WORKSPACE,
    FRAME_CONTEXT,
    FRAME_FAILED,
    FRAME_MESSAGE,
    FRAME_NUMBER,
    FRAME_STATUS,
)
from . import abi
from .errors import FunctionFailed, NativeDiffers
from .frame import FrameLayout, message_at, scalar_bytes, write_frame
from .prepared import workspace_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .library import NativeFunction, NativeLibrary

ALIGNMENT_BYTES = 64


class BoundNative:
    """A native step of a plan with the function that it calls.

    device: (family, ordinal) of its tensors; needed_bytes: of the workspace of one tile.
    """

    __slots__ = ("device", "function", "launch", "layout", "nbytes", "needed_bytes")

    def __init__(
        self,
        launch: NativeLaunch,
        function: NativeFunction,
        device: tuple[str, int] = HOST,
    ) -> None:
        self.launch = launch
        self.device = device
        self.function = function
        ranks = [len(tensor.shape) for tensor in launch.tensors]
        self.layout = FrameLayout(ranks, len(launch.scalars))
        self.nbytes = -(-self.layout.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.needed_bytes = 0 if launch.workspace_bytes is None else launch.workspace_bytes
        if launch.workspace_bytes is None:
            self.needed_bytes = self.workspace_bytes()

    def write(self, base: int, failed: int, number: int, threads: int, state: int) -> None:
        """Write the frame at `base` but for its tensors' memory; `state` is the library's.

        failed: address of the session's status; number: what it becomes when this launch fails;
        threads: what a function that is not tiled may keep busy.
        """
        launch, layout = self.launch, self.layout
        shapes = [
            (tensor.dtype, tensor.shape, contiguous_strides(tensor.shape, 1))
            for tensor in launch.tensors
        ]
        device = (abi.DEVICE_TYPES[self.device[0]], self.device[1])
        write_frame(base, layout, self.function.address, shapes, device, state, 0, threads)
        ctypes.c_int64.from_address(base + FRAME_FAILED).value = failed
        ctypes.c_int32.from_address(base + FRAME_NUMBER).value = number
        size_field = base + FRAME_CONTEXT + CONTEXT_WORKSPACE + 8
        ctypes.c_int64.from_address(size_field).value = self.needed_bytes
        for index, (kind, value) in enumerate(launch.scalars):
            given = float.fromhex(str(value)) if kind == "real" else int(value)
            ctypes.memmove(base + layout.scalar(index), scalar_bytes(kind, given), 8)

    def check(self, path: str) -> None:
        """Raise `NativeDiffers` unless the function is as it was when the bundle was built."""
        signature, launch = self.function.signature, self.launch
        library = self.function.library
        kinds = [slot.kind for slot in signature.scalars]
        is_as_long = len(signature.tensors) == len(launch.tensors)
        fits = is_as_long and kinds == [kind for kind, _ in launch.scalars]
        pairs = zip(signature.tensors, launch.tensors, strict=False)
        fits = fits and all(
            tensor.is_written == (slot.role == "output")
            and tensor.dtype in slot.dtypes
            and slot.rank in (None, len(tensor.shape))
            for slot, tensor in pairs
        )
        where = {"name": library.name, "file": library.path, "path": path}
        if not fits or self.device[0] not in signature.devices:
            what, found = f"the function `{signature}`", "of another signature"
            raise NativeDiffers(what=what, found=found, expected="the one", **where)
        needed, most = self.workspace_bytes(), launch.workspace_bytes
        if most is not None and needed > most:
            what, found = f"for `{signature.name}` a workspace of", f"{needed} bytes"
            raise NativeDiffers(what=what, found=found, expected=f"at most {most}", **where)

    def state(self) -> int:
        """The library's state on the device; its `initialize` runs at the first question."""
        return self.function.library.state(*self.device)

    def workspace_bytes(self, state: int | None = None) -> int:
        """What the function asks for, of one tile; raises `FunctionFailed`.

        state: in place of the library's own, for a build without the device.
        """
        if not self.function.workspace_address:
            return 0
        block = (ctypes.c_int64 * (self.nbytes // 8))()
        base = ctypes.addressof(block)
        self.write(base, base, 0, 1, self.state() if state is None else state)
        return workspace_bytes(self.function, base, self.layout)


def _failure(native: BoundNative, base: int, status: int) -> FunctionFailed:
    """The error of a call; its frame is as before the call afterwards."""
    detail = message_at(base)
    ctypes.memset(base + FRAME_MESSAGE, 0, 1)
    ctypes.memset(base + FRAME_STATUS, 0, 4)
    return FunctionFailed(function=native.function.name, detail=detail, status=status)


class DeviceStep:
    """A native function between the graphs of a plan on a device: it adds its work to the stream
    of the call, and the host does not wait."""

    __slots__ = ("_block", "_call", "_changing", "_lock", "_native", "_pointers", "_words")

    def __init__(
        self,
        native: BoundNative,
        fixed_address: Callable[[str, int | str], int | None],
        workspace: int = 0,
    ) -> None:
        """`fixed_address` gives the address of an argument that stays, None for inputs and outputs;
        `workspace` is where memory lies that the plan has no place for."""
        layout = native.layout
        self._native = native
        self._block = (ctypes.c_int64 * (native.nbytes // 8))()
        base = ctypes.addressof(self._block)
        native.write(base, base, 0, 1, native.state())
        self._words = memoryview(self._block).cast("B").cast("q")
        self._changing: list[tuple[int, str, int]] = []  # word, space, index
        words = [layout.data(number) >> 3 for number in range(len(native.launch.tensors))]
        words.append((FRAME_CONTEXT + CONTEXT_WORKSPACE) >> 3)
        self._words[words[-1]] = workspace
        for word, (space, value) in zip(words, native.launch.memory, strict=False):
            address = fixed_address(space, value)
            if address is None:
                self._changing.append((word, space, int(value)))
            else:
                self._words[word] = address
        self._call: Any = abi.KERNEL(native.function.address)
        self._pointers = (base + FRAME_CONTEXT, base + layout.tensors, base + layout.scalars)
        is_alone = not native.function.signature.is_concurrent
        self._lock = native.function.library.lock if is_alone else None

    def __call__(self, address_of: Callable[[str, int], int], stream: int) -> None:
        """One call on this call's inputs and outputs; raises `FunctionFailed`."""
        for word, space, index in self._changing:
            self._words[word] = address_of(space, index)
        self._words[(FRAME_CONTEXT + CONTEXT_STREAM) >> 3] = stream
        if self._lock is None:
            status = self._call(*self._pointers)
        else:
            with self._lock:
                status = self._call(*self._pointers)
        if status:
            raise _failure(self._native, ctypes.addressof(self._block), status)


def _guarded(
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
            native, base = bound[status.value - 1]
            raise _failure(native, base, ctypes.c_int32.from_address(base + FRAME_STATUS).value)

    return run


class Natives:
    """The functions that the native steps of a plan call, by back end and name, and what a
    driver's sessions make of them."""

    __slots__ = ("functions",)

    def __init__(self, functions: Mapping[tuple[str, str], NativeFunction]) -> None:
        self.functions = functions

    def bound(self, step: Any, device: tuple[str, int] = HOST) -> BoundNative | None:
        """The function of a native step; None for other steps."""
        if type(step) is not NativeLaunch:
            return None
        return BoundNative(step, self.functions[step.backend, step.function], device)

    guarded = staticmethod(_guarded)
    step = DeviceStep
