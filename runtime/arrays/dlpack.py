"""DLPack by ctypes: reading the capsules of other libraries and exporting our own arrays.

Versions: capsules of DLPack 1.x (`dltensor_versioned`) are asked for, those of 0.x accepted.
An exported array is one block from the C library that holds the managed tensor, its shape and its
data, so that its deleter is `free` itself: no Python code runs when a consumer lets go, which may
be after the interpreter's end.
"""

from __future__ import annotations

import ctypes

from ..errors import MemoryFull
from .dtypes import BY_DLPACK, DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

CPU_DEVICE = 1
CUDA_DEVICE = 2
CUDA_HOST_DEVICE = 3  # pinned host memory
CUDA_MANAGED_DEVICE = 13
HOST_DEVICES = (CPU_DEVICE, CUDA_HOST_DEVICE)
DEVICES = {
    1: "cpu",
    2: "cuda",
    3: "cuda_host",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    10: "rocm",
    13: "cuda_managed",
}
HOST = (DEVICES[CPU_DEVICE], 0)  # the name and number of where arrays of this process lie
VERSION = (1, 1)
RANK_LIMIT = 64  # as numpy's, the greatest of the libraries' own
FLAG_READ_ONLY = 1
ALIGNMENT_BYTES = 64


class DLTensor(ctypes.Structure):
    """The array itself, as dlpack.h lays it out."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DLManagedTensor(ctypes.Structure):
    """DLPack 0.x: the array, then what frees it."""

    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class DLManagedTensorVersioned(ctypes.Structure):
    """DLPack 1.x: version, what frees it, flags, the array."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


# The names stay alive as long as the module: capsules keep the pointer, not a copy.
NAME = b"dltensor"
NAME_VERSIONED = b"dltensor_versioned"
USED = b"used_dltensor"
USED_VERSIONED = b"used_dltensor_versioned"

_api = ctypes.pythonapi


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    prototype = ctypes.PYFUNCTYPE(result, *arguments)
    return prototype((name, _api))


_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_new = _function(
    "PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)
# A destructor gets an object that is being freed: by address only, never as `py_object`.
_is_valid_raw = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer_raw = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
_libc.free.restype = None
_libc.free.argtypes = (ctypes.c_void_p,)
FREE_ADDRESS = ctypes.cast(_libc.free, ctypes.c_void_p).value


def _free_unused(capsule: int) -> None:
    """Have the deleter of a capsule that nobody consumed free its block."""
    for name, kind in ((NAME_VERSIONED, DLManagedTensorVersioned), (NAME, DLManagedTensor)):
        if _is_valid_raw(capsule, name):
            block = _pointer_raw(capsule, name)
            DELETER(kind.from_address(block).deleter)(block)


_destroy = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_free_unused)


class Borrowed:
    """An array borrowed from another library by a capsule; released when this is dropped.

    dtype: a name of DTYPES, or the DLPack type as text where aotc has none; strides in bytes.
    """

    __slots__ = ("_deleter", "_managed", "address", "device", "dtype", "read_only", "shape",
                 "strides")  # fmt: skip

    address: int
    device: str
    dtype: str
    read_only: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __init__(self, capsule: Any) -> None:
        """Take over `capsule`, which is then marked as used; raises `BufferError` for one whose
        fields cannot be those of an array."""
        self._deleter = None
        versioned = bool(_is_valid(capsule, NAME_VERSIONED))
        self._managed = _pointer(capsule, NAME_VERSIONED if versioned else NAME)
        kind = DLManagedTensorVersioned if versioned else DLManagedTensor
        managed: Any = kind.from_address(self._managed)
        _rename(capsule, USED_VERSIONED if versioned else USED)
        self._deleter = managed.deleter
        if versioned and managed.major > VERSION[0]:  # what follows may lie elsewhere
            raise BufferError(f"DLPack {managed.major}, expected at most {VERSION[0]}")
        tensor = managed.tensor
        if not 0 <= tensor.ndim <= RANK_LIMIT or (tensor.ndim and not tensor.shape):
            raise BufferError(f"rank {tensor.ndim} without sizes")
        row = BY_DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
        self.dtype = row.name if row else f"dlpack({tensor.code}, {tensor.bits}, {tensor.lanes})"
        self.shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
        if not tensor.data and 0 not in self.shape:
            raise BufferError(f"shape {list(self.shape)} without memory")
        self.device = DEVICES.get(tensor.device_type, f"dlpack device {tensor.device_type}")
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.read_only = bool(versioned and managed.flags & FLAG_READ_ONLY)
        itemsize = tensor.bits // 8
        self.strides = (
            tuple(each * itemsize for each in tensor.strides[: tensor.ndim])
            if tensor.strides
            else contiguous_strides(self.shape, itemsize)
        )

    def __del__(self) -> None:
        if self._deleter:
            DELETER(self._deleter)(self._managed)
            self._deleter = None


class Array:
    """An array of ours that any DLPack consumer can take, once; shape in elements.

    Its memory passes to the consumer: `torch.from_dlpack(array)` copies nothing. strides: in
    elements, without gaps; None where it is contiguous.
    """

    __slots__ = ("_block", "address", "dtype", "shape", "strides")

    address: int
    dtype: str
    shape: tuple[int, ...]

    def __init__(
        self, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None
    ) -> None:
        """Allocate without initializing; raises `MemoryFull`."""
        row = DTYPES[dtype]
        nbytes = row.itemsize_bytes
        for extent in shape:
            nbytes *= extent
        data_offset = _round_up(header_bytes(shape))
        self._block = None
        self._block = allocate_block(data_offset + nbytes)
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.address = self._block + data_offset

    def __dlpack_device__(self) -> tuple[int, int]:
        """Always the CPU."""
        return CPU_DEVICE, 0

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The capsule that carries the array away; raises `BufferError` the second time."""
        if not self._block:
            raise BufferError("the array was handed over before")
        if copy or (dl_device is not None and dl_device[0] != CPU_DEVICE):
            raise BufferError("the array is handed over as it is, on the CPU")
        versioned = max_version is not None and max_version[0] >= 1
        parts = (self.dtype, self.shape, self.address, (CPU_DEVICE, 0), self.strides)
        describe(self._block, versioned, *parts)
        block, self._block = self._block, None
        return export_capsule(block, versioned)

    def __del__(self) -> None:
        if self._block:
            _libc.free(self._block)
            self._block = None


def describe(
    block: int,
    versioned: bool,
    dtype: str,
    shape: tuple[int, ...],
    address: int,
    device: tuple[int, int],
    strides: tuple[int, ...] | None = None,
) -> Any:
    """Write a managed tensor with its shape into a block of `header_bytes`; freed by `free`.

    strides: in elements; None where it is contiguous.
    """
    kind: Any = DLManagedTensorVersioned if versioned else DLManagedTensor
    managed = kind.from_address(block)
    managed.context = None
    managed.deleter = FREE_ADDRESS
    if versioned:
        managed.major, managed.minor = VERSION
        managed.flags = 0
    tensor, row, rank = managed.tensor, DTYPES[dtype], len(shape)
    extents_address = block + ctypes.sizeof(DLManagedTensorVersioned)
    numbers = (ctypes.c_int64 * (2 * rank)).from_address(extents_address)
    numbers[:] = [*shape, *(strides or contiguous_strides(shape, 1))]
    tensor.data = address
    tensor.device_type, tensor.device_id = device
    tensor.ndim = rank
    tensor.code, tensor.bits = row.dlpack
    tensor.lanes = 1
    tensor.shape = ctypes.cast(extents_address, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(extents_address + 8 * rank, ctypes.POINTER(ctypes.c_int64))
    tensor.byte_offset = 0
    return managed


def header_bytes(shape: tuple[int, ...]) -> int:
    """Size of a managed tensor of either version with shape and strides behind it."""
    return ctypes.sizeof(DLManagedTensorVersioned) + 16 * len(shape)


def allocate_block(nbytes: int) -> int:
    """Memory from the C library, aligned to 64 bytes; raises `MemoryFull`."""
    block = _libc.aligned_alloc(ALIGNMENT_BYTES, _round_up(nbytes))
    if not block:
        raise MemoryFull(purpose="an array", nbytes=nbytes)
    return block  # type: ignore[no-any-return]


def free_block(block: int) -> None:
    """Give a block of `allocate_block` back."""
    _libc.free(block)


def export_capsule(block: int, versioned: bool) -> Any:
    """The capsule of a managed tensor; one that nobody consumes calls the tensor's deleter."""
    return _new(block, NAME_VERSIONED if versioned else NAME, _destroy)


def borrow(value: Any, stream: int | None = None) -> Borrowed:
    """The array behind `value.__dlpack__`; raises what the producer raises, often BufferError.

    stream: the one on which the array will be read, for producers on a device.
    """
    named = {} if stream is None else {"stream": stream}
    try:
        return Borrowed(value.__dlpack__(max_version=VERSION, **named))
    except TypeError:  # a producer of DLPack 0.x knows no `max_version`
        return Borrowed(value.__dlpack__(**named))


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides of a row-major array, in units of `itemsize`."""
    strides = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def ordered_strides(shape: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of an array without gaps whose dims lie in an order, outermost first."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether the elements lie row by row without gaps; dims of one element have any stride."""
    if 0 in shape:
        return True
    expected = contiguous_strides(shape, itemsize)
    rows = zip(shape, strides, expected, strict=True)
    return all(extent == 1 or stride == wanted for extent, stride, wanted in rows)


def _round_up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
