"""Arrays in and out: torch, numpy, DLPack producers, plain buffers; results in the caller's type.

A kind is a row of functions for one library. The kind of an argument is found by its type, once for
each type, so that a call pays one dict lookup for it. Neither torch nor numpy is imported here:
where an argument is one of theirs, the caller's own module is in `sys.modules`.

Every kind gives

- `address(port, value, hold)`: the address of memory with the elements of `value`, contiguous or in
  the port's order. It is the caller's own memory where that lies so; else a copy, which `hold`
  keeps alive;
- `output(port, value)`: the same for an output given by the caller; never a copy, must be writable;
- `make(port)`: a fresh array for the output and its address.

The buffers of `BUFFER` are contiguous whatever the port's order, as `memoryview` has no other;
`address_of_output` has a session write these after its run, and other contiguous outputs.

All raise the `InputError` family with the argument's name, what was found and what was expected.
"""

from __future__ import annotations

import sys
from operator import index

from ..errors import InputDevice, InputGradient, OutputUnusable
from .buffers import buffer_address, writable_address
from .dlpack import DEVICES, HOST, HOST_DEVICES, Array, Borrowed, borrow, contiguous_strides
from .dtypes import DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .port import Port


class TorchKind:
    """torch tensors on the CPU, by their methods: a sixth of the cost of DLPack."""

    __slots__ = ()

    def address(self, port: Port, value: Any, hold: list[Any]) -> int:
        try:
            if (
                value.dtype is port.torch_dtype
                and value.shape == port.shape
                and value.is_cpu
                and (
                    value.is_contiguous()
                    if port.strides is None
                    else value.stride() == port.strides
                )
                and not value.requires_grad
                and not value.is_neg()
            ):
                return value.data_ptr()  # type: ignore[no-any-return]
            return self._slow_address(port, value, hold)
        except RuntimeError as error:  # such as of a tensor inside of `torch.vmap`
            raise port.no_answer(value, "memory", error) from error

    def _slow_address(self, port: Port, value: Any, hold: list[Any]) -> int:
        torch = sys.modules["torch"]
        self._check(port, value, torch)
        if value.requires_grad:
            if torch.is_grad_enabled():
                raise InputGradient(name=port.name)
            value = value.detach()
        if value.is_neg():
            value = value.resolve_neg()
            hold.append(value)
        if is_laid(port, value):
            return value.data_ptr()  # type: ignore[no-any-return]
        itemsize = value.element_size()
        strides = tuple(each * itemsize for each in value.stride())
        copied = port.copied(value.data_ptr(), strides, itemsize)
        hold.append(copied)
        return copied.address

    def _check(self, port: Port, value: Any, torch: Any) -> None:
        if not value.is_cpu:
            raise InputDevice(role=port.role, name=port.name, found=value.device, expected=HOST[0])
        self.check_type(port, value, torch)

    def check_type(self, port: Port, value: Any, torch: Any) -> None:
        """Raise unless `value` is a dense tensor of the port's dtype and shape, on any device."""
        if port.torch_dtype is None:
            port.torch_dtype = getattr(torch, TORCH_DTYPES[port.dtype])
        if value.layout is not torch.strided:
            found = f"a tensor of layout {value.layout}"
            raise port.unreadable(found, "a dense tensor")
        found_dtype = str(value.dtype).removeprefix("torch.")
        port.check(BY_TORCH.get(found_dtype, found_dtype), tuple(value.shape))

    def output(self, port: Port, value: Any) -> int:
        try:
            return self._output(port, value)
        except RuntimeError as error:
            raise port.no_answer(value, "memory", error) from error

    def _output(self, port: Port, value: Any) -> int:
        if (
            value.dtype is port.torch_dtype
            and value.shape == port.shape
            and value.is_cpu
            and (value.is_contiguous() if port.strides is None else value.stride() == port.strides)
            and not value.requires_grad
            and not value.is_neg()
        ):
            return value.data_ptr()  # type: ignore[no-any-return]
        self._check(port, value, sys.modules["torch"])
        if not is_laid(port, value):
            raise port.refuse_layout()
        if value.is_neg():
            raise port.refuse_memory("negated by a mark of torch's")
        if value.requires_grad:
            raise port.refuse_memory("a tensor that requires a gradient")
        return value.data_ptr()  # type: ignore[no-any-return]

    def make(self, port: Port) -> tuple[Any, int]:
        # A third of the cost of `torch.empty` with its keyword arguments.
        try:
            if port.torch_template is None:
                port.torch_template = self.template(port, HOST[0])
            value = sys.modules["torch"].empty_like(port.torch_template)
        except RuntimeError as error:  # torch's for an allocation that fails
            raise MemoryError(str(error)) from error
        return value, value.data_ptr()

    def template(self, port: Port, device: str) -> Any:
        """A tensor of the output's type, shape and strides that owns at most one element."""
        torch = sys.modules["torch"]
        dtype = getattr(torch, TORCH_DTYPES[port.dtype])
        if port.strides is not None:
            template = torch.empty_strided(port.shape, port.strides, dtype=dtype, device=device)
            template.untyped_storage().resize_(0)
            return template
        one = torch.empty((), dtype=dtype, device=device)
        template = one.expand(port.shape)
        if not torch.empty_like(template).is_contiguous():
            template = torch.empty(port.shape, dtype=dtype, device=device)
        return template


def is_laid(port: Port, value: Any) -> bool:
    """Whether a tensor of torch's lies as the program reads and writes it."""
    if port.order is None:
        return value.is_contiguous()  # type: ignore[no-any-return]
    return port.is_laid(value.stride(), 1)


class NumpyKind:
    """numpy arrays; bf16, which numpy lacks, is taken and given as uint16 bits."""

    __slots__ = ()

    def address(self, port: Port, value: Any, hold: list[Any]) -> int:
        if value.dtype is port.numpy_dtype and value.shape == port.shape:
            try:
                return writable_address(_in_memory(port, value))
            except (TypeError, ValueError):  # read-only, not contiguous or empty
                pass
        self._check(port, value)
        laid = _in_memory(port, value)
        if laid.flags.c_contiguous:
            return buffer_address(laid)
        copied = port.copied(value.ctypes.data, value.strides, value.itemsize)
        hold.append(copied)
        return copied.address

    def _check(self, port: Port, value: Any) -> None:
        dtype = value.dtype
        found = dtype.name if dtype.isnative else dtype.str
        if found == "bfloat16" or (dtype.str == "<u2" and port.dtype == "bf16"):
            found = "bf16"
        elif dtype.isnative:
            found = BY_NUMPY.get(dtype.str, found)
        port.check(found, value.shape)
        if port.numpy_dtype is None and dtype.str == DTYPES[port.dtype].numpy:
            port.numpy_dtype = dtype

    def output(self, port: Port, value: Any) -> int:
        if value.dtype is port.numpy_dtype and value.shape == port.shape:
            try:
                return writable_address(_in_memory(port, value))
            except (TypeError, ValueError):
                pass
        self._check(port, value)
        laid = _in_memory(port, value)
        if not laid.flags.c_contiguous:
            raise port.refuse_layout()
        if not value.flags.writeable:
            raise port.refuse_memory("read-only")
        return buffer_address(laid)

    def make(self, port: Port) -> tuple[Any, int]:
        numpy = sys.modules["numpy"]
        if port.numpy_dtype is None:
            port.numpy_dtype = numpy.dtype(DTYPES[port.dtype].numpy)
        value = numpy.empty(port.in_memory(port.shape), port.numpy_dtype)
        address = writable_address(value) if port.nbytes else 0
        if port.order is not None:
            value = value.transpose([port.order.index(axis) for axis in range(len(port.order))])
        return value, address


def _in_memory(port: Port, value: Any) -> Any:
    """A numpy array with its dims as the port has them in memory."""
    return value if port.order is None else value.transpose(port.order)


class CapsuleKind:
    """Anything else with `__dlpack__`; outputs by the `from_dlpack` of the argument's library."""

    __slots__ = ("module",)

    def __init__(self, module: str) -> None:
        self.module = module

    def address(self, port: Port, value: Any, hold: list[Any]) -> int:
        borrowed = self._borrow(port, value)
        hold.append(borrowed)
        itemsize = DTYPES[borrowed.dtype].itemsize_bytes
        if port.is_laid(borrowed.strides, itemsize):
            return borrowed.address
        copied = port.copied(borrowed.address, borrowed.strides, itemsize)
        hold.append(copied)
        return copied.address

    def _borrow(self, port: Port, value: Any) -> Borrowed:
        try:
            device = int(value.__dlpack_device__()[0])
            borrowed = borrow(value) if device in HOST_DEVICES else None
        except Exception as error:  # what a producer raises is its own choice
            raise port.no_capsule(error) from error
        if borrowed is None or borrowed.device not in HOST_NAMES:
            found = DEVICES.get(device, f"dlpack device {device}")
            found = found if borrowed is None else borrowed.device
            raise InputDevice(role=port.role, name=port.name, found=found, expected=HOST[0])
        port.check(borrowed.dtype, borrowed.shape)
        return borrowed

    def output(self, port: Port, value: Any) -> int:
        borrowed = self._borrow(port, value)
        if borrowed.read_only:
            raise port.refuse_memory("read-only")
        if not port.is_laid(borrowed.strides, DTYPES[borrowed.dtype].itemsize_bytes):
            raise port.refuse_layout()
        return borrowed.address  # `value` keeps the memory alive after that

    def make(self, port: Port) -> tuple[Any, int]:
        array = Array(port.dtype, port.shape, port.strides)
        address = array.address
        adopt = getattr(sys.modules.get(self.module), "from_dlpack", None)
        return (array if adopt is None else adopt(array)), address


class BufferKind:
    """The buffer protocol: memoryview, array.array, bytearray, bytes, ctypes arrays.

    A one-dimensional buffer has no other way to say its shape, so it stands for the contiguous
    array where its element type and count fit; bytes stand for any array of their size. f16 and
    bf16 outputs, which memoryview has no format for, are given as their bits in format `H`.
    """

    __slots__ = ()

    def address(self, port: Port, value: Any, hold: list[Any]) -> int:
        view = self._view(port, value)
        if view.c_contiguous and port.strides is None:
            return buffer_address(view) if port.nbytes else 0
        itemsize = DTYPES[port.dtype].itemsize_bytes
        if view.shape == port.shape:
            strides = view.strides or ()
        else:  # it stands for the contiguous array
            strides = contiguous_strides(port.shape, itemsize)
        if port.is_laid(strides, itemsize):
            return buffer_address(view) if port.nbytes else 0
        copied = port.copied(buffer_address(view), strides, itemsize)
        hold.append(copied)
        return copied.address

    def _view(self, port: Port, value: Any) -> memoryview:
        view = buffer_of(port, value)
        if view.suboffsets:
            raise port.unreadable("a buffer of addresses (suboffsets)", "an array in one block")
        dtype = _buffer_dtype(view, port)
        shape = tuple(view.shape or ())
        if _is_flat(view, dtype, port):
            if view.nbytes == port.nbytes:
                return view  # without dims of its own: it stands for the contiguous array
            if dtype != port.dtype:
                expected = f"{port.nbytes} bytes for {port.dtype}{list(port.shape)}"
                raise port.unreadable(f"{view.nbytes} bytes", expected)
        port.check(dtype, shape)
        return view

    def output(self, port: Port, value: Any) -> int:
        view = self._view(port, value)
        if not view.c_contiguous:
            raise port.refuse_memory("not contiguous")
        if view.readonly:
            raise port.refuse_memory("read-only")
        return buffer_address(view) if port.nbytes else 0

    def make(self, port: Port) -> tuple[Any, int]:
        letter: Any = "H" if port.dtype == "f16" else DTYPES[port.dtype].buffer
        block = bytearray(port.nbytes)
        if not port.nbytes:
            return memoryview(block).cast(letter), 0
        address = writable_address(block)
        return memoryview(block).cast("B").cast(letter, list(port.shape)), address


def _is_flat(view: memoryview, dtype: str, port: Port) -> bool:
    """Whether a buffer may stand for the port's contiguous array, if it has as many bytes."""
    return view.ndim == 1 and view.c_contiguous and dtype in ("u8", port.dtype)


def _buffer_dtype(view: memoryview, port: Port) -> str:
    """The dtype name of a buffer's elements; 16-bit unsigned numbers are bits where bits fit."""
    letter = view.format.lstrip("@=<")
    if letter == "H" and port.dtype in ("bf16", "f16"):
        return port.dtype
    if letter == "c":
        return "u8"
    letter = {"l": "q" if view.itemsize == 8 else "i"}.get(letter, letter)
    return BY_BUFFER.get(letter, f"buffer format `{view.format}`")


TORCH_DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "bool": "bool",
}
BY_TORCH = {name: dtype for dtype, name in TORCH_DTYPES.items()}
BY_NUMPY = {row.numpy: row.name for row in DTYPES.values() if row.name != "bf16"}
BY_BUFFER = {row.buffer: row.name for row in DTYPES.values() if row.name != "bf16"}

HOST_NAMES = tuple(map(DEVICES.__getitem__, HOST_DEVICES))

TORCH = TorchKind()
NUMPY = NumpyKind()
BUFFER = BufferKind()
Kind = TorchKind | NumpyKind | CapsuleKind | BufferKind
KINDS: dict[type, Kind] = {}


def address_of_output(kind: Kind, port: Port, value: Any, session: Any) -> int:
    """The address that a run writes to for an output of the caller's in host memory; one that is
    contiguous where the port has another order is written by the session after it."""
    if port.order is None:
        return kind.output(port, value)
    if kind is not BUFFER:
        try:
            return kind.output(port, value)
        except OutputUnusable as refused:
            first = refused
        try:
            address = kind.output(port.contiguous, value)
        except OutputUnusable:
            raise first from None
        return session.write_later(port, address)  # type: ignore[no-any-return]
    return session.write_later(port, kind.output(port, value))  # type: ignore[no-any-return]


def kind_of(port: Port, value: Any) -> Kind:
    """The kind of an argument by its type; raises `InputUnreadable` for what is not an array."""
    kind = KINDS.get(type(value))
    if kind is None:
        kind = KINDS[type(value)] = _classify(port, value)
    return kind


def _classify(port: Port, value: Any) -> Kind:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        # A subclass may mean something else by its methods; its capsule holds plain memory.
        plain = type(value) in (torch.Tensor, torch.nn.Parameter)
        return TORCH if plain else CapsuleKind("torch")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return NUMPY
    if _has(port, value, "__dlpack__") and _has(port, value, "__dlpack_device__"):
        return CapsuleKind(type(value).__module__.split(".")[0])
    buffer_of(port, value).release()
    return BUFFER


def buffer_of(port: Port, value: Any) -> memoryview:
    """A view of an argument's buffer; raises `InputUnreadable`."""
    try:
        return memoryview(value)
    except TypeError:
        raise port.no_array(value) from None
    except (BufferError, RuntimeError, ValueError) as error:  # such as of one that is closed
        raise port.no_answer(value, "buffer", error) from error


def _has(port: Port, value: Any, name: str) -> bool:
    try:
        return hasattr(value, name)
    except Exception as error:  # an attribute of the argument's own
        raise port.no_answer(value, f"`{name}`", error) from error


def shape_of(port: Port, value: Any) -> tuple[int, ...]:
    """The shape of an argument; raises `InputUnreadable` for what is not an array or tells none.

    A buffer without dims of its own has the port's shape where that is fixed and has its bytes.
    """
    try:
        shape = getattr(value, "shape", None)
        if shape is not None and type(value) is not memoryview:
            return tuple(map(index, shape))
    except Exception as error:  # an attribute of the argument's own
        raise port.no_answer(value, "shape", error) from error
    if type(kind_of(port, value)) is CapsuleKind:  # DLPack alone tells a shape too late
        raise port.no_array(value)
    view = buffer_of(port, value)
    has_bytes = port.is_fixed and view.nbytes == port.nbytes
    if has_bytes and _is_flat(view, _buffer_dtype(view, port), port):
        return port.shape
    return tuple(view.shape or ())
