"""Tensor maps: what the device's copy engine must know of a matrix, as parameters of a launch."""

from __future__ import annotations

import ctypes

from ...bundle.plan_parts import MAP_ITEMSIZES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ...bundle.plan import Map
    from .context import DeviceContext

MAP_BYTES = 128
MAP_ALIGNMENT_BYTES = 64
KINDS = {"f16": 6, "f32": 7, "bf16": 9}  # CUtensorMapDataType
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # bytes → CUtensorMapSwizzle
NO_INTERLEAVE, PROMOTION_OF_128_BYTES, ZEROS_OUTSIDE = 0, 2, 0


class TensorMap:
    """One CUtensorMap in host memory, which `aim` writes for the memory at an address.

    address: of its 128 bytes; parameters: itself, then its shape and strides in elements, as
    Triton's kernels take them.
    """

    __slots__ = ("_device", "_fixed", "_room", "_start_bytes", "address", "parameters")

    def __init__(self, device: DeviceContext, row: Map) -> None:
        self._device = device
        itemsize, rank = MAP_ITEMSIZES[row.dtype], len(row.shape)
        self._room = (ctypes.c_uint8 * (MAP_BYTES + MAP_ALIGNMENT_BYTES))()
        base = ctypes.addressof(self._room)
        self.address = base + -base % MAP_ALIGNMENT_BYTES
        self._start_bytes = row.start * itemsize
        self.parameters: tuple[Any, ...] = (self, *row.shape, *row.strides)
        # CUDA counts dims from the innermost one, whose stride is not given.
        shape = (ctypes.c_uint64 * rank)(*reversed(row.shape))
        strides = (ctypes.c_uint64 * rank)(*(each * itemsize for each in row.strides[-2::-1]))
        box, ones = (ctypes.c_uint * rank)(*reversed(row.box)), (ctypes.c_uint * rank)(*[1] * rank)
        swizzle = SWIZZLES[row.swizzle_bytes]
        modes = (NO_INTERLEAVE, swizzle, PROMOTION_OF_128_BYTES, ZEROS_OUTSIDE)
        self._fixed = (KINDS[row.dtype], rank), (shape, strides, box, ones, *modes)

    def aim(self, address: int) -> None:
        """Write the map of the memory at a device address; raises `CudaError`."""
        before, behind = self._fixed
        place = address + self._start_bytes
        with self._device.current():  # the driver asks for a context, whatever the memory
            self._device.call("cuTensorMapEncodeTiled", self.address, *before, place, *behind)


def parameters(device: DeviceContext, rows: Sequence[Map], addresses: Sequence[int]) -> list[Any]:
    """The parameters of all maps of a launch whose other arguments are `addresses`."""
    found: list[Any] = []
    for row in rows:
        tensor_map = TensorMap(device, row)
        tensor_map.aim(addresses[row.argument])
        found += tensor_map.parameters
    return found
