"""A bundle for the fake CUDA driver, and arrays on its device as other libraries would lend them.

The program is that of `small_bundle`: output `y` is a copy of input `x`, by way of the arena, and
output `w` is a copy of the weight.
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import small_bundle
from fake_cubin import text_image
from one_entry import one_entry

from aotc.aot.pack import BundleContents, Golden, TargetContents, TensorData, pack
from aotc.runtime.arrays.dlpack import DELETER, allocate_block, describe, export_capsule, free_block
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import Buffer, Image, Kernel, Launch, LaunchPlan, Plan
from aotc.runtime.drivers.cuda.device import Device
from aotc.runtime.drivers.cuda.device_array import DeviceArray

SHAPE = (4, 6)
WEIGHT = struct.pack("<6f", 1, 2, 3, 4, 5, 6)
NUMBERS = struct.pack("<24f", *range(24))  # of the input
OTHERS = struct.pack("<24f", *range(100, 124))
PARAMETERS = 5  # to, from, nbytes, and Triton's own two


def copy(memory, grid, values):
    """The kernel: `nbytes` bytes from one address to another."""
    to, source, nbytes = values[:3]
    if nbytes:
        memory(to, nbytes)[:] = memory(source, nbytes)


def device_plan(nbytes: int, image: bytes) -> LaunchPlan:
    """x → arena → y, weight → w."""
    grid, row = (1, 1, 1), Image(0, len(image), 32, 0, 0)
    return LaunchPlan(
        arena_bytes=-(-max(nbytes, 1) // 64) * 64,
        scratch_bytes=0,
        buffers=(Buffer("copy of x", 0, nbytes),),
        kernels=(Kernel("copy", "copy", row),),
        steps=(
            Launch(0, grid, (("arena", 0), ("input", 0), ("int", nbytes))),
            Launch(0, grid, (("output", 0), ("arena", 0), ("int", nbytes))),
            Launch(0, grid, (("output", 1), ("weight", "layer.weight"), ("int", 24))),
        ),
    )


def target(capability: int = 90, nbytes: int = 96) -> TargetContents:
    """Code for one architecture."""
    image = text_image({"copy": PARAMETERS}, capability)
    name = f"sm_{capability}"
    return TargetContents(
        f"cuda-{name}", "cuda", (name,), Plan.of(device_plan(nbytes, image)), image
    )


def host_target(nbytes: int = 96) -> TargetContents:
    """The same program for the null driver."""
    plan = Plan.of(small_bundle.copy_plan(nbytes, 24))
    return TargetContents("null", "null", (), plan, b"no code")


def contents(
    dtype: str = "f32",
    shape: tuple[int, ...] = SHAPE,
    targets: tuple = (),
    order: tuple[int, ...] = (),
) -> BundleContents:
    """Contents for sm_90, or for the targets given; order: of `x` and `y` in memory."""
    spec = TensorSpec("x", dtype, shape, order)
    weight = TensorData("f32", (6,), WEIGHT)
    zeros = TensorData(dtype, shape, bytes(spec.nbytes))
    return one_entry(
        inputs=(spec,),
        outputs=(TensorSpec("y", dtype, shape, order), TensorSpec("w", "f32", (6,))),
        targets=targets or (target(nbytes=spec.nbytes),),
        weights={"layer.bias": TensorData("u8", (3,), b"abc"), "layer.weight": weight},
        golden=Golden((zeros,), (zeros, weight), (0.0, 0.0)),
    )


def write(path: Path, **named) -> Path:
    """Pack it at `path`."""
    pack(contents(**named), path)
    return path


def numbers(of: DeviceArray, cuda) -> bytes:
    """The bytes of an array of ours once all work is done."""
    cuda.settle()
    nbytes = 4
    for extent in of.shape:
        nbytes *= extent
    return bytes(cuda.memory(of.address, nbytes))


class DeviceBlock:
    """Memory of the fake device, filled with bytes; freed with the object."""

    def __init__(self, data: bytes, ordinal: int = 0, offset: int = 0) -> None:
        self.device = Device(ordinal)
        self.base = self.device.allocate(len(data) + offset)
        self.address = self.base + offset
        self.nbytes = len(data)
        ctypes.memmove(self.address, data, len(data))

    def read(self) -> bytes:
        """What the memory holds now; the caller synchronizes first."""
        return ctypes.string_at(self.address, self.nbytes)

    def __del__(self) -> None:
        self.device.close()


class Lender:
    """An array of a library that knows nothing but DLPack; keeps the streams it was asked for."""

    def __init__(
        self, block: DeviceBlock, dtype: str = "f32", shape: tuple[int, ...] = SHAPE, **changes
    ) -> None:
        self.block = block
        self.dtype = dtype
        self.shape = shape
        self.device = changes.get("device", (2, block.device.ordinal))
        self.strides = changes.get("strides")
        self.flags = changes.get("flags", 0)
        self.streams: list[object] = []
        self.borrowed = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        self.borrowed += 1
        block = allocate_block(256)
        managed = describe(block, True, self.dtype, self.shape, self.block.address, self.device)
        managed.flags = self.flags
        if self.strides is not None:
            for axis, stride in enumerate(self.strides):
                managed.tensor.strides[axis] = stride

        managed.deleter = GIVE_BACK_ADDRESS
        _lenders[block] = self
        return export_capsule(block, True)


_lenders: dict[int, Lender] = {}


def _give_back(block: int) -> None:
    _lenders.pop(block).borrowed -= 1
    free_block(block)


GIVE_BACK = DELETER(_give_back)
GIVE_BACK_ADDRESS = ctypes.cast(GIVE_BACK, ctypes.c_void_p).value


class Interface:
    """An array that has `__cuda_array_interface__` only."""

    def __init__(
        self, block: DeviceBlock, typestr: str = "<f4", shape: tuple[int, ...] = SHAPE, **changes
    ) -> None:
        self.block = block
        row = {"typestr": typestr, "shape": shape, "data": (block.address, False), "version": 3}
        self.__cuda_array_interface__ = {**row, **changes}
