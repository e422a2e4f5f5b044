"""The memory of one native call: what a function gets, laid out so that a call writes addresses.

    frame    function, tensors, scalars, session's status, context, own status, message
    tensors  a DLTensor each; then shapes and strides of all of them; then the scalars

Direct calls fill a frame and call the function on its addresses. In a plan the executor's native
code does so: the launch's only argument is the frame, and what changes from call to call are the
`data` fields of its tensors (`aot/targets/cpu/executor.py` reads these offsets). A change of any
number here is a new plan abi.
"""

from __future__ import annotations

import ctypes
import struct

from ..arrays.dtypes import DTYPES
from ..drivers.cpu.executor_abi import (
    CONTEXT_BYTES,
    FRAME_BYTES,
    FRAME_CONTEXT,
    FRAME_MESSAGE,
    MESSAGE_BYTES,
)
from . import abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    # dtype, shape, strides in elements
    TensorShape = tuple[str, tuple[int, ...], tuple[int, ...]]


class FrameLayout:
    """Where the parts of a frame lie for tensors of given ranks; offsets and size in bytes."""

    __slots__ = ("nbytes", "scalars", "shapes", "tensors")

    def __init__(self, ranks: Sequence[int], scalar_count: int) -> None:
        self.tensors = FRAME_BYTES
        self.shapes = self.tensors + abi.TENSOR_BYTES * len(ranks)
        self.scalars = self.shapes + 16 * sum(ranks)
        self.nbytes = self.scalars + abi.SCALAR_BYTES * scalar_count

    def data(self, tensor: int) -> int:
        """Offset of the `data` field of a tensor."""
        return self.tensors + abi.TENSOR_BYTES * tensor

    def scalar(self, place: int) -> int:
        """Offset of a scalar."""
        return self.scalars + abi.SCALAR_BYTES * place


def write_frame(
    base: int,
    layout: FrameLayout,
    function: int,
    shapes: Sequence[TensorShape],
    device: tuple[int, int],
    state: int,
    stream: int = 0,
    threads: int = 1,
) -> None:
    """Write all of a frame at `base` but the tensors' data, the scalars and the workspace.

    device: DLPack's number of its kind, and its own; threads: what the call may keep busy.
    """
    _put(base, "<4Q", function, base + layout.tensors, base + layout.scalars, 0)
    _put(
        base + FRAME_CONTEXT,
        "<I5i6Q",
        *(CONTEXT_BYTES, *device, threads, 0, 1),
        *(stream, state, 0, 0, base + FRAME_MESSAGE, MESSAGE_BYTES),
    )
    place = base + layout.shapes
    for number, (dtype, shape, strides) in enumerate(shapes):
        rank, (code, bits) = len(shape), DTYPES[dtype].dlpack
        _put(
            base + layout.data(number),
            "<QiiiBBHQQQ",
            *(0, *device, rank, code, bits, 1, place, place + 8 * rank, 0),
        )
        _put(place, f"<{2 * rank}q", *shape, *strides)
        place += 16 * rank


def message_at(base: int) -> str:
    """What the function wrote with `aotc_fail`."""
    raw = ctypes.string_at(base + FRAME_MESSAGE, MESSAGE_BYTES).partition(b"\0")[0]
    return raw.decode("utf-8", "backslashreplace") or "it gave no message"


def scalar_bytes(kind: str, value: float) -> bytes:
    """One `aotc_scalar`; raises `struct.error` or `OverflowError` for a number out of range."""
    return struct.pack("<q" if kind == "whole" else "<d", value)


def _put(address: int, layout: str, *values: int) -> None:
    record = struct.pack(layout, *values)
    ctypes.memmove(address, record, len(record))
