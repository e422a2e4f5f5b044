"""Memory of ours that stays where it is, seen by other libraries without a copy.

A consumer takes a view by DLPack as often as it likes; the memory lives until the last of them has
let go, whoever else is done with it. The deleter of an exported view calls back into Python. At the
interpreter's end that is no longer possible: from then on it frees the view's own description only.
"""

from __future__ import annotations

import atexit
import ctypes

from .dlpack import (
    DELETER,
    FREE_ADDRESS,
    DLManagedTensor,
    DLManagedTensorVersioned,
    allocate_block,
    describe,
    export_capsule,
    free_block,
    header_bytes,
)
from .dtypes import DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class View:
    """An array in memory of somebody else's: dtype (a key of DTYPES), shape, address.

    device: as DLPack has it, (type, number). owner: keeps the memory, and is kept by this view and
    by all that was made of it. wait: called before the memory is handed out. strides: in elements,
    without gaps; None where it is contiguous.
    """

    __slots__ = ("_owner", "_wait", "address", "device", "dtype", "shape", "strides")

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, ...],
        address: int,
        device: tuple[int, int],
        owner: Any,
        wait: Callable[[], None],
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.address = address
        self.device = device
        self.strides = strides
        self._owner = owner
        self._wait = wait

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where the memory lies."""
        return self.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of the memory itself; raises `BufferError` where a copy is asked for."""
        if copy or (dl_device is not None and tuple(dl_device) != self.device):
            raise BufferError("the memory is handed over as it is, where it lies")
        self._wait()
        versioned = max_version is not None and max_version[0] >= 1
        block = allocate_block(header_bytes(self.shape))
        parts = (self.dtype, self.shape, self.address, self.device, self.strides)
        managed = describe(block, versioned, *parts)
        managed.deleter = DELETE_ADDRESS
        _exported[block] = (self._owner, versioned)
        return export_capsule(block, versioned)

    def __repr__(self) -> str:
        return f"<aotc view {self.dtype}{list(self.shape)}>"


class HostView(View):
    """A view of host memory, which numpy takes too; bf16, which it has no type for, as its bits."""

    __slots__ = ()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, **_interface(self)}


class DeviceView(View):
    """A view of device memory, which readers of `__cuda_array_interface__` take too."""

    __slots__ = ()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3; bf16, which numpy has no type for, has none."""
        if self.dtype == "bf16":
            raise AttributeError("bf16 has no `__cuda_array_interface__`, expected DLPack")
        self._wait()
        return {"version": 3, "stream": None, **_interface(self)}


def _interface(view: View) -> dict[str, Any]:
    row, strides = DTYPES[view.dtype], view.strides
    if strides is not None:
        strides = tuple([row.itemsize_bytes * each for each in strides])
    data = (view.address, False)
    return {"shape": view.shape, "typestr": row.numpy, "data": data, "strides": strides}


_exported: dict[int, tuple[Any, bool]] = {}  # block → what keeps the memory, whether versioned


def _delete(block: int) -> None:
    """Let go of a view, as its consumer asks for."""
    _exported.pop(block, None)
    free_block(block)


_delete_callback = DELETER(_delete)
DELETE_ADDRESS = ctypes.cast(_delete_callback, ctypes.c_void_p).value


def _at_exit() -> None:
    """From here on consumers free a description without Python, and the memory stays."""
    for block, (_, versioned) in _exported.items():
        kind: Any = DLManagedTensorVersioned if versioned else DLManagedTensor
        kind.from_address(block).deleter = FREE_ADDRESS


atexit.register(_at_exit)
