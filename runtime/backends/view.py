"""Any array as a native function sees it: address, element type, shape, strides, device.

This is the slow path, by which a function's first call on arrays of some shapes finds out what they
are. It is also the only path for tensors that may have gaps, and for arrays on a device.
"""

from __future__ import annotations

import sys

from ..arrays.buffers import buffer_address
from ..arrays.dlpack import CUDA_DEVICE, CUDA_MANAGED_DEVICE, DEVICES, HOST, HOST_DEVICES, borrow
from ..arrays.dtypes import DTYPES
from ..arrays.exchange import BY_BUFFER, BY_NUMPY, BY_TORCH
from ..drivers.cuda.streams import LEGACY, LEGACY_NAME
from ..errors import InputDevice, InputGradient, InputUnreadable
from .abi import DEVICE_TYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .signature import TensorSlot

DEVICE_NAMES = " or ".join(DEVICE_TYPES)
BITS_OF = ("bf16", "f16")  # libraries without these element types carry them as 16-bit numbers


class View:
    """An array's memory; strides in elements; owner: what keeps the memory alive."""

    __slots__ = ("address", "device", "dtype", "is_read_only", "owner", "shape", "strides")

    def __init__(
        self,
        owner: Any,
        address: int,
        dtype: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        device: tuple[str, int] = HOST,
        is_read_only: bool = False,
    ) -> None:
        self.owner = owner
        self.address = address
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.device = device
        self.is_read_only = is_read_only


def view_of(slot: TensorSlot, label: str, value: Any, stream: int | None) -> View:
    """The view of an array; raises `InputUnreadable`, `InputDevice` or `InputGradient`.

    label: the argument's name for messages; stream: on which it is read, where it is on a device.
    """
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter):
        return _of_torch(slot, label, value, torch)
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _of_numpy(slot, value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _of_capsule(slot, label, value, stream)
    return _of_buffer(slot, label, value)


def _of_torch(slot: TensorSlot, label: str, value: Any, torch: Any) -> View:
    if value.layout is not torch.strided or value.is_neg():
        found = f"a tensor of layout {value.layout}, or a lazy negative"
        raise InputUnreadable(role=slot.role, name=label, found=found, expected="a dense tensor")
    if value.device.type not in DEVICE_TYPES:
        raise InputDevice(role=slot.role, name=label, found=value.device, expected=DEVICE_NAMES)
    if value.requires_grad and torch.is_grad_enabled():
        raise InputGradient(name=label)
    if value.numel() and not value.data_ptr():
        found = "a tensor without memory"
        raise InputUnreadable(role=slot.role, name=label, found=found, expected="a dense tensor")
    dtype = str(value.dtype).removeprefix("torch.")
    device = (value.device.type, value.device.index or 0)
    shape, strides = tuple(value.shape), tuple(value.stride())
    return View(value, value.data_ptr(), BY_TORCH.get(dtype, dtype), shape, strides, device)


def _of_numpy(slot: TensorSlot, value: Any) -> View:
    name = value.dtype.name
    dtype = BY_NUMPY.get(value.dtype.str, "bf16" if name == "bfloat16" else name)
    itemsize = value.itemsize
    strides = tuple(each // itemsize for each in value.strides)
    if any(each % itemsize for each in value.strides):
        dtype = f"{dtype} at odd strides"
    dtype = _as_bits(slot, dtype, ("uint16",))
    read_only = not value.flags.writeable
    return View(value, value.ctypes.data, dtype, value.shape, strides, is_read_only=read_only)


def _as_bits(slot: TensorSlot, dtype: str, accepted: tuple[str, ...]) -> str:
    """A 16-bit float where the slot takes one and the array holds its bits."""
    if dtype not in accepted:
        return dtype
    return next((each for each in BITS_OF if each in slot.dtypes), dtype)


def _of_capsule(slot: TensorSlot, label: str, value: Any, stream: int | None) -> View:
    expected = "an array with DLPack in host memory or on a CUDA device"
    try:
        kind, ordinal = (int(each) for each in value.__dlpack_device__())
        if kind in HOST_DEVICES:
            device, borrowed = HOST, borrow(value)
        elif kind in (CUDA_DEVICE, CUDA_MANAGED_DEVICE):
            on = LEGACY_NAME if stream in (None, LEGACY) else stream
            device, borrowed = (DEVICES[CUDA_DEVICE], ordinal), borrow(value, on)
        else:
            found = DEVICES.get(kind, f"dlpack device {kind}")
            raise InputDevice(role=slot.role, name=label, found=found, expected=DEVICE_NAMES)
    except InputDevice:
        raise
    except Exception as error:  # what a producer raises is its own choice
        found = f"an array that gives no DLPack capsule ({error})"
        raise InputUnreadable(role=slot.role, name=label, found=found, expected=expected) from error
    itemsize = DTYPES[borrowed.dtype].itemsize_bytes if borrowed.dtype in DTYPES else 1
    strides = tuple(each // itemsize for each in borrowed.strides)
    return View(
        borrowed,
        borrowed.address,
        borrowed.dtype,
        borrowed.shape,
        strides,
        device,
        borrowed.read_only,
    )


def _of_buffer(slot: TensorSlot, label: str, value: Any) -> View:
    try:
        view = memoryview(value)
    except Exception as error:  # released or closed; what an exporter raises is its own choice
        why = "" if isinstance(error, TypeError) else f", whose buffer cannot be read ({error})"
        found, expected = f"of type `{type(value).__name__}`{why}", "an array"
        raise InputUnreadable(role=slot.role, name=label, found=found, expected=expected) from None
    if view.suboffsets:
        found, expected = "a buffer of addresses (suboffsets)", "an array in one block"
        raise InputUnreadable(role=slot.role, name=label, found=found, expected=expected)
    letter = view.format.lstrip("@=<")
    letter = {"l": "q" if view.itemsize == 8 else "i", "c": "B"}.get(letter, letter)
    dtype = _as_bits(
        slot, BY_BUFFER.get(letter, f"buffer format `{letter}`"), ("buffer format `H`",)
    )
    address = buffer_address(view) if view.nbytes else 0
    strides = tuple(each // view.itemsize for each in view.strides or ())
    shape = tuple(view.shape or ())
    return View(view, address, dtype, shape, strides, is_read_only=view.readonly)
