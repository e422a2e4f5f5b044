"""Arrays in plain memory without numpy: read and written as .npy, drawn at random, compared.

`aotc run` and `aotc verify` work where only the base dependencies are installed, so nothing here
imports numpy. bf16, which numpy lacks, is stored in .npy files as its bits (`<u2`).
"""

from __future__ import annotations

import ast
import ctypes
import math
import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotc.aot.errors import InputFileError
from aotc.runtime import Program
from aotc.runtime.arrays.buffers import buffer_address, copy_strided
from aotc.runtime.arrays.dlpack import CPU_DEVICE, ordered_strides
from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.arrays.view import HostView
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.comparison import elements, relative_difference
from aotc.runtime.programs.entry import EntryFunction

MAGIC = b"\x93NUMPY"
ARCHIVE_MAGIC = b"PK\x03\x04"  # of a .npz file
HEADER_LIMIT_BYTES = 1 << 16
# The element types of buffers that have no elements, as only these keep a shape with a 0 in it.
ELEMENTS: Mapping[str, Any] = {
    "d": ctypes.c_double, "f": ctypes.c_float, "H": ctypes.c_uint16, "q": ctypes.c_int64,
    "i": ctypes.c_int32, "h": ctypes.c_int16, "b": ctypes.c_int8, "B": ctypes.c_uint8,
    "?": ctypes.c_bool,
}  # fmt: skip


class _NotTaken(Exception):
    """A .npy file that numpy reads, but not `aotc`: why, and what to do first."""


@dataclass(frozen=True, slots=True)
class HostArray:
    """A contiguous array in row-major order; `data` holds its elements' bytes."""

    dtype: str  # key of DTYPES
    shape: tuple[int, ...]
    data: bytes

    @property
    def type_text(self) -> str:
        """Its dtype and shape, such as `f32[2, 3]`."""
        return f"{self.dtype}{list(self.shape)}"

    def buffer(self) -> memoryview:
        """The array as the runtime takes it: a view with element type and shape."""
        letter: Any = "H" if self.dtype in ("f16", "bf16") else DTYPES[self.dtype].buffer
        view = memoryview(self.data)
        if 0 in self.shape:
            kind = ELEMENTS[letter]
            for extent in reversed(self.shape):
                kind = kind * extent
            return memoryview(kind())
        if not self.shape:  # `cast` takes no shape without dims
            return view.cast(letter)
        return view.cast(letter, self.shape)

    def values(self) -> tuple[float, ...]:
        """Its elements as Python numbers, in row-major order."""
        return tuple(elements(self.dtype, self.data))


def host_arrays(
    specs: Sequence[TensorSpec], data: Mapping[str, bytes | memoryview]
) -> dict[str, HostArray]:
    """Bytes by name as arrays of the types that the specs give, in their order.

    Where the shape is dynamic, the data is a view that has it.
    """
    found = {}
    for spec in specs:
        value = data[spec.name]
        shape = spec.shape if spec.is_fixed else tuple(memoryview(value).shape or ())
        found[spec.name] = HostArray(spec.dtype, shape, bytes(value))
    return found


def buffers(
    specs: Sequence[TensorSpec], data: Mapping[str, bytes | memoryview]
) -> dict[str, memoryview]:
    """The same as the runtime takes them."""
    return {name: array.buffer() for name, array in host_arrays(specs, data).items()}


def as_laid(spec: TensorSpec, array: memoryview) -> memoryview | HostView:
    """A copy of a contiguous array in the spec's order of memory; the array where it has none."""
    shape = tuple(array.shape or ())
    if not spec.order or 0 in shape:
        return array
    itemsize = DTYPES[spec.dtype].itemsize_bytes
    steps = [itemsize * math.prod(shape[axis + 1 :]) for axis in spec.order]
    memory = bytearray(array.nbytes)
    address = buffer_address(memory)
    extents = tuple(shape[axis] for axis in spec.order)
    copy_strided(address, buffer_address(array), itemsize, extents, tuple(steps))
    place, strides = (CPU_DEVICE, 0), ordered_strides(shape, spec.order)
    return HostView(spec.dtype, shape, address, place, memory, lambda: None, strides)


def outputs_of(
    program: Program | EntryFunction, inputs: Mapping[str, memoryview]
) -> dict[str, bytes | memoryview]:
    """Call the program on arrays by name; its outputs by name, as `host_arrays` takes them."""
    results = program.flatten(program(**inputs))
    pairs = zip(program.outputs, results, strict=True)
    return {spec.name: bytes(result) if spec.is_fixed else result for spec, result in pairs}


def pack_values(spec: TensorSpec, values: list[float]) -> HostArray:
    """Python numbers as an array of the spec's dtype and shape; floats are rounded."""
    if spec.dtype == "bf16":
        wide = struct.pack(f"<{len(values)}f", *values)
        narrow = bytearray(len(wide) // 2)
        narrow[0::2], narrow[1::2] = wide[2::4], wide[3::4]  # towards zero: these are test inputs
        return HostArray(spec.dtype, spec.shape, bytes(narrow))
    form = f"<{len(values)}{DTYPES[spec.dtype].buffer}"
    return HostArray(spec.dtype, spec.shape, struct.pack(form, *values))


def draw(spec: TensorSpec, seed: int, like: HostArray | None = None) -> HostArray:
    """A random array of a fixed shape: floats are normal, whole numbers lie in the range of `like`,
    or are 0.

    Indices out of range would read foreign memory, so whole numbers are never guessed.
    """
    generator = random.Random(f"{seed}/{spec.name}")
    count = math.prod(spec.shape)
    if spec.dtype.startswith(("f", "bf")):
        return pack_values(spec, [generator.gauss(0.0, 1.0) for _ in range(count)])
    known = like.values() if like is not None and like.data else (0,)
    low, high = int(min(known)), int(max(known))
    return pack_values(spec, [generator.randint(low, high) for _ in range(count)])


def read_npy(path: Path) -> HostArray:
    """An array from a .npy file in row-major order; raises InputFileError for all else."""
    try:
        data = path.read_bytes()
    except OSError as error:
        detail = (error.strerror or "").lower()
        raise InputFileError(path=path, detail=detail, advice="") from None
    try:
        return _parse_npy(data)
    except _NotTaken as error:
        detail, advice = error.args
        raise InputFileError(path=path, detail=detail, advice=advice) from None
    except (ValueError, SyntaxError, KeyError, TypeError, struct.error) as error:
        raise InputFileError(path=path, detail=str(error), advice="") from None


def npy_bytes(array: HostArray) -> bytes:
    """A .npy file of version 1.0, as `numpy.save` writes it."""
    kind = DTYPES[array.dtype].numpy
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {array.shape}, }}"
    prefix_bytes = len(MAGIC) + 4
    padding = -(prefix_bytes + len(head) + 1) % 64
    text = f"{head}{' ' * padding}\n".encode("latin1")
    return MAGIC + b"\x01\x00" + struct.pack("<H", len(text)) + text + array.data


def difference(found: HostArray, expected: HostArray) -> float:
    """Greatest difference relative to the expected scale; infinite for another type or shape."""
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return math.inf
    return relative_difference(expected.dtype, found.data, expected.data)


def _parse_npy(data: bytes) -> HostArray:
    if data[:6] != MAGIC or len(data) < 12:
        if data[:4] == ARCHIVE_MAGIC:
            advice = "each array has a file of its own: "
            raise _NotTaken("it is an archive of files, such as .npz, expected a .npy file", advice)
        raise ValueError("it is not a .npy file")
    length_bytes = 2 if data[6] == 1 else 4
    start = 8 + length_bytes
    header_bytes = int.from_bytes(data[8:start], "little")
    if header_bytes > HEADER_LIMIT_BYTES:
        raise ValueError(f"its header has {header_bytes} bytes, expected at most 65536")
    head: Any = ast.literal_eval(data[start : start + header_bytes].decode("latin1"))
    kinds = {row.numpy: row.name for row in DTYPES.values() if row.name != "bf16"}
    kinds |= {"<u2": "bf16", "|V2": "bf16", "<V2": "bf16"}
    if head["descr"] not in kinds:
        known = f"expected one of: {', '.join(DTYPES)}"
        advice = "convert it with `array.astype`, then "
        raise _NotTaken(f"its elements are `{head['descr']}`, {known}", advice)
    shape = tuple(int(extent) for extent in head["shape"])
    if head["fortran_order"] and len(shape) > 1:
        advice = "copy it with `numpy.ascontiguousarray`, then "
        raise _NotTaken("it is in Fortran order, expected row-major order", advice)
    dtype = kinds[head["descr"]]
    body = data[start + header_bytes :]
    expected_bytes = math.prod(shape) * DTYPES[dtype].itemsize_bytes
    if len(body) != expected_bytes:
        raise ValueError(f"it holds {len(body)} bytes of elements, expected {expected_bytes}")
    return HostArray(dtype, shape, body)
