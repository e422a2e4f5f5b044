"""Arrays in and out of a program on a device: on the device as they are, from the host by copies.

The kinds here stand for those of `arrays/exchange.py`, which do the host's part of the work. Every
kind gives

- `address(port, value, session)`: the device address of aligned memory with the elements of
  `value`, contiguous or in the port's order: its own, or that of a copy which the session keeps;
- `output(port, value, session)`: the same for an output of the caller, which the program writes;
- `answer(value)`: the kind of the outputs where `value` is the first input;
- `make(port, session)`: a fresh array for an output and its device address;
- `finish`: None, or a function that turns a made array into the caller's own kind after the run.

All raise the `InputError` family with the argument's name, what was found and what was expected.
"""

from __future__ import annotations

import sys

from ...arrays.dlpack import (
    CUDA_DEVICE,
    CUDA_MANAGED_DEVICE,
    DEVICES,
    HOST_DEVICES,
    borrow,
    contiguous_strides,
)
from ...arrays.dtypes import DTYPES
from ...arrays.exchange import (
    BUFFER,
    BY_NUMPY,
    NUMPY,
    TORCH,
    CapsuleKind,
    address_of_output,
    is_laid,
)
from ...arrays.exchange import kind_of as host_kind_of
from ...arrays.port import WITHOUT_GAPS
from ...errors import InputDevice, InputGradient, InputMisaligned, InputStrided
from .device_array import DeviceArray, device_name
from .streams import LEGACY, LEGACY_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from ...arrays.dlpack import Borrowed
    from ...arrays.exchange import Kind
    from ...arrays.port import Port
    from .device_array import DeviceMemory

    class Caller(Protocol):
        """What the kinds of arrays ask of a session; see `DeviceSession`."""

        has_own_stream: bool
        hold: list[Any]
        memory: DeviceMemory

        @property
        def stream(self) -> int: ...
        def torch_stream(self) -> Any: ...
        def follow(self, stream: int) -> None: ...
        def hold_borrowed(self, array: Any, nbytes: int) -> None: ...
        def keep(self, copy: Any) -> None: ...
        def stage_in(self, port: Port, host_address: int) -> int: ...
        def stage_out(self, port: Port, host_address: int) -> int: ...
        def write_later(self, port: Port, address: int) -> int: ...


ALIGNMENT_BYTES = 16  # kernels read vectors of this size
CUDA_DEVICES = (CUDA_DEVICE, CUDA_MANAGED_DEVICE)


class Staged:
    """Arrays in host memory, by their host kind: copied in before the run and out after it."""

    __slots__ = ("_host",)
    finish = None

    def __init__(self, host: Kind) -> None:
        self._host = host

    def address(self, port: Port, value: Any, session: Caller) -> int:
        return session.stage_in(port, self._host.address(port, value, session.hold))

    def output(self, port: Port, value: Any, session: Caller) -> int:
        return session.stage_out(port, address_of_output(self._host, port, value, session))

    def answer(self, value: Any) -> Staged:
        return self

    def make(self, port: Port, session: Caller) -> tuple[Any, int]:
        value, host_address = self._host.make(port)
        if port.order is not None and self._host is BUFFER:
            host_address = session.write_later(port, host_address)
        return value, session.stage_out(port, host_address)


def is_plain(port: Port, value: Any) -> bool:
    """Whether a torch tensor is what kernels read as it lies."""
    return (
        value.dtype is port.torch_dtype
        and value.shape == port.shape
        and value.get_device() == port.ordinal
        and (value.is_contiguous() if port.strides is None else value.stride() == port.strides)
        and not value.requires_grad
        and not value.is_neg()
        and not value.data_ptr() % ALIGNMENT_BYTES
    )


class TorchKind:
    """torch tensors: on the program's device by their methods, on the CPU by staging."""

    __slots__ = ()
    finish = None

    def address(self, port: Port, value: Any, session: Caller) -> int:
        if is_plain(port, value):
            return value.data_ptr()  # type: ignore[no-any-return]
        if value.is_cpu:
            return STAGED_TORCH.address(port, value, session)
        torch = sys.modules["torch"]
        self._check(port, value, torch)
        if value.requires_grad:
            if torch.is_grad_enabled():
                raise InputGradient(name=port.name)
            value = value.detach()
        if value.is_neg() or not is_laid(port, value) or value.data_ptr() % ALIGNMENT_BYTES:
            with session.torch_stream():
                value = value.resolve_neg()
                if port.order is not None:
                    value = value.permute(port.order)
                value = value.contiguous()
                if value.data_ptr() % ALIGNMENT_BYTES:
                    value = value.clone()
            session.keep(value)
        return value.data_ptr()  # type: ignore[no-any-return]

    def _check(self, port: Port, value: Any, torch: Any) -> None:
        device = value.device
        if not value.is_cuda or device.index != port.ordinal:
            raise wrong_device(port, device)
        TORCH.check_type(port, value, torch)

    def output(self, port: Port, value: Any, session: Caller) -> int:
        if is_plain(port, value):
            return value.data_ptr()  # type: ignore[no-any-return]
        if value.is_cpu:
            return STAGED_TORCH.output(port, value, session)
        self._check(port, value, sys.modules["torch"])
        if not is_laid(port, value):
            raise port.refuse_layout()
        if value.is_neg():
            raise port.refuse_memory("negated by a mark of torch's")
        if value.requires_grad:
            raise port.refuse_memory("a tensor that requires a gradient")
        return aligned(port, value.data_ptr())

    def answer(self, value: Any) -> DeviceKind:
        return STAGED_TORCH if value.get_device() < 0 else self

    def make(self, port: Port, session: Caller) -> tuple[Any, int]:
        if port.device_template is None:
            port.device_template = TORCH.template(port, device_name(port.ordinal))
        if session.has_own_stream:
            with session.torch_stream():
                value = sys.modules["torch"].empty_like(port.device_template)
        else:
            value = sys.modules["torch"].empty_like(port.device_template)
        return value, value.data_ptr()


class DeviceCapsuleKind:
    """Anything else with `__dlpack__`, on the device or the host; outputs are `DeviceArray`s, or
    what the library's `from_dlpack` makes of them."""

    __slots__ = ("_staged", "finish")

    def __init__(self, module: str) -> None:
        self._staged = Staged(CapsuleKind(module))
        self.finish: Callable[[DeviceArray], Any] | None = adopter(module)

    def address(self, port: Port, value: Any, session: Caller) -> int:
        if self._device(port, value) in HOST_DEVICES:
            return self._staged.address(port, value, session)
        borrowed = self._borrow(port, value, session)
        if not _is_laid(port, borrowed):
            borrowed = self._borrow(port, _laid(port, value), session)
        return aligned(port, borrowed.address)

    def _device(self, port: Port, value: Any) -> int:
        """DLPack's number of the kind of device; raises `InputDevice` for what is elsewhere."""
        try:
            kind, ordinal = value.__dlpack_device__()
        except Exception as error:  # what a producer raises is its own choice
            raise port.no_capsule(error) from error
        if kind in HOST_DEVICES or (kind in CUDA_DEVICES and ordinal == port.ordinal):
            return int(kind)
        name = DEVICES.get(int(kind), f"dlpack device {kind}")
        raise wrong_device(port, f"{name}:{ordinal}")

    def _borrow(self, port: Port, value: Any, session: Caller) -> Borrowed:
        try:
            borrowed = borrow(value, session.stream or LEGACY_NAME)
        except Exception as error:
            raise port.no_capsule(error) from error
        session.hold_borrowed(borrowed, port.nbytes)
        port.check(borrowed.dtype, borrowed.shape)
        return borrowed

    def output(self, port: Port, value: Any, session: Caller) -> int:
        if self._device(port, value) in HOST_DEVICES:
            return self._staged.output(port, value, session)
        borrowed = self._borrow(port, value, session)
        if borrowed.read_only:
            raise port.refuse_memory("read-only")
        if not _is_laid(port, borrowed):
            raise port.refuse_layout()
        return aligned(port, borrowed.address)

    def answer(self, value: Any) -> DeviceKind:
        on_host = value.__dlpack_device__()[0] in HOST_DEVICES
        return self._staged if on_host else self

    def make(self, port: Port, session: Caller) -> tuple[Any, int]:
        return make_array(port, session)


class OnDevice:
    """A kind that is never on the host, and whose outputs are `DeviceArray`s."""

    __slots__ = ()
    finish = None

    def answer(self, value: Any) -> DeviceKind:
        return self  # type: ignore[return-value]

    def make(self, port: Port, session: Caller) -> tuple[Any, int]:
        return make_array(port, session)


class InterfaceKind(OnDevice):
    """Arrays that have `__cuda_array_interface__` only, and our own `DeviceArray`s."""

    __slots__ = ()

    def address(self, port: Port, value: Any, session: Caller) -> int:
        return self._read(port, value, session, is_written=False)

    def output(self, port: Port, value: Any, session: Caller) -> int:
        return self._read(port, value, session, is_written=True)

    def _read(self, port: Port, value: Any, session: Caller, is_written: bool) -> int:
        try:
            row = value.__cuda_array_interface__
            address, is_read_only = row["data"]
            shape, typestr, strides = tuple(row["shape"]), row["typestr"], row.get("strides")
            stream, mask = row.get("stream"), row.get("mask")
        except Exception as error:
            found = f"an array whose `__cuda_array_interface__` cannot be read ({error})"
            raise port.unreadable(found, f"{port.dtype}{port.shape}") from error
        is_bf16 = typestr in ("<V2", "|V2") and port.dtype == "bf16"
        port.check("bf16" if is_bf16 else BY_NUMPY.get(typestr, typestr), shape)
        if mask is not None:
            raise port.unreadable("a masked array", "a plain one")
        itemsize = DTYPES[port.dtype].itemsize_bytes
        if strides is None:
            strides = contiguous_strides(shape, itemsize)
        if not port.is_laid(tuple(strides), itemsize):
            raise strided(port)
        if is_written and is_read_only:
            raise port.refuse_memory("read-only")
        if port.nbytes:
            found_ordinal = session.memory.ordinal_of(address)
            if found_ordinal != port.ordinal:
                where = "the host" if found_ordinal is None else device_name(found_ordinal)
                raise wrong_device(port, where)
        session.hold_borrowed(value, port.nbytes)
        if stream is not None:
            session.follow(LEGACY if stream == LEGACY_NAME else int(stream))
        return aligned(port, address or 0)


class OwnKind(OnDevice):
    """Our own `DeviceArray`s, as other programs without a library give them."""

    __slots__ = ()

    def address(self, port: Port, value: DeviceArray, session: Caller) -> int:
        try:
            ordinal = value.ordinal
        except BufferError as error:
            raise port.no_capsule(error) from error
        if ordinal != port.ordinal:
            raise wrong_device(port, device_name(ordinal))
        port.check(value.dtype, value.shape)
        if not port.is_laid(value.strides or contiguous_strides(value.shape, 1), 1):
            raise strided(port)
        session.follow(value.stream)
        session.hold_borrowed(value, port.nbytes)
        return value.address

    def output(self, port: Port, value: DeviceArray, session: Caller) -> int:
        address = self.address(port, value, session)
        value.stream = session.stream
        return address


def make_array(port: Port, session: Caller) -> tuple[DeviceArray, int]:
    """A fresh `DeviceArray` and its address."""
    array = DeviceArray(port.dtype, port.shape, session.memory, session.stream, port.strides)
    return array, array.address


def aligned(port: Port, address: int) -> int:
    """The address; raises `InputMisaligned` where kernels could not read it."""
    if address % ALIGNMENT_BYTES and port.nbytes:
        raise InputMisaligned(
            role=port.role, name=port.name, found=hex(address), expected=ALIGNMENT_BYTES
        )
    return address


def wrong_device(port: Port, found: object) -> InputDevice:
    """The error for an array that is on another device."""
    expected = device_name(port.ordinal)
    return InputDevice(role=port.role, name=port.name, found=found, expected=expected)


def adopter(module: str) -> Callable[[DeviceArray], Any] | None:
    """The function of a library that takes a DLPack producer over; None where it has none."""
    names = ADOPTERS.get(module, (module,))
    found = (getattr(sys.modules.get(name), "from_dlpack", None) for name in names)
    return next((each for each in found if each is not None), None)


def strided(port: Port) -> InputStrided:
    """The error for an array that does not lie as the program reads or writes it."""
    found, expected = "not contiguous", WITHOUT_GAPS
    if port.order is not None:
        found = "in another order"
        expected = f"elements without gaps, the dims in the order {list(port.order)}"
    return InputStrided(role=port.role, name=port.name, found=found, expected=expected)


def _is_laid(port: Port, borrowed: Borrowed) -> bool:
    return port.is_laid(borrowed.strides, DTYPES[borrowed.dtype].itemsize_bytes)


def _laid(port: Port, value: Any) -> Any:
    """A copy that lies as the program reads it, by the array's own library; raises `InputStrided`
    where it has no way."""
    library = sys.modules.get(type(value).__module__.split(".")[0])
    copy = getattr(library, "ascontiguousarray", None)
    if copy is None:
        raise strided(port)
    if port.order is None:
        return copy(value)
    back = [port.order.index(axis) for axis in range(len(port.order))]
    return copy(value.transpose(port.order)).transpose(back)


# Libraries whose arrays' module is not the one that has `from_dlpack`.
ADOPTERS = {"jaxlib": ("jax.dlpack",), "jax": ("jax.dlpack",)}

TORCH_ON_DEVICE = TorchKind()
STAGED_TORCH = Staged(TORCH)
STAGED_NUMPY = Staged(NUMPY)
STAGED_BUFFER = Staged(BUFFER)
INTERFACE = InterfaceKind()
DeviceKind = Staged | TorchKind | DeviceCapsuleKind | InterfaceKind | OwnKind
DEVICE_KINDS: dict[type, DeviceKind] = {DeviceArray: OwnKind()}
STAGED: dict[Kind, DeviceKind] = {
    TORCH: TORCH_ON_DEVICE,
    NUMPY: STAGED_NUMPY,
    BUFFER: STAGED_BUFFER,
}


def device_kind_of(port: Port, value: Any) -> DeviceKind:
    """The kind of an argument by its type; raises `InputUnreadable` for what is not an array."""
    kind = DEVICE_KINDS.get(type(value))
    if kind is None:
        kind = DEVICE_KINDS[type(value)] = _classify(port, value)
    return kind


def _classify(port: Port, value: Any) -> DeviceKind:
    if hasattr(value, "__cuda_array_interface__") and not hasattr(value, "__dlpack__"):
        return INTERFACE
    host = host_kind_of(port, value)
    if isinstance(host, CapsuleKind):
        return DeviceCapsuleKind(host.module)
    return STAGED[host]
