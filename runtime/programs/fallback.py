"""Ops that torch runs for a bundle: found when it is loaded, called between launches, counted.

torch is imported here and only for bundles whose manifest names such ops.
"""

from __future__ import annotations

import _thread
import ctypes
from functools import partial

from ..arrays.dlpack import HOST
from ..arrays.exchange import TORCH_DTYPES
from ..errors import FallbackFailed, FallbackResult, FallbackUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from ..bundle.torch_calls import CallTensor, TorchCall

DEFAULT_STREAMS = (0, 1)  # CUstream handles of the legacy default stream
OWN_LIBRARIES = ("aten", "prims")  # those that come with torch
INSTALL_TORCH = "install torch here: `pip install torch`"


class Fallback:
    """The ops of one loaded bundle by name. torch: the module; changed: place and name of each
    argument that an op changes; `calls` counts each op's calls."""

    __slots__ = ("_counts", "_hosts", "_lock", "changed", "ops", "torch")

    def __init__(self, names: Iterable[str], path: str) -> None:
        """Find every op; `path` is the bundle's.

        Raises `FallbackUnavailable` with all that are missing.
        """
        names = tuple(names)
        self.torch = _torch(names, path)
        self.ops: dict[str, Any] = {}
        missing = []
        for name in names:
            op = _found(self.torch, name)
            if op is None:
                missing.append(name)
            else:
                self.ops[name] = op
        if missing:
            raise _unknown(path, missing, self.torch.__version__)
        self.changed = {name: _changed(op) for name, op in self.ops.items()}
        self._counts = dict.fromkeys(names, 0)
        self._lock = _thread.allocate_lock()
        self._hosts: dict[tuple[str, int], Host | OnDevice] = {HOST: Host(self.torch)}

    def step(
        self,
        call: TorchCall,
        fixed_address: Callable[[str, int | str], int | None],
        device: tuple[str, int] = HOST,
    ) -> Step:
        """A call of a plan on the memory of one session, on the host or on a device.

        `fixed_address` gives the address of memory that stays, and None for memory of one call.
        """
        host = self._hosts.get(device)
        if host is None:
            host = self._hosts[device] = OnDevice(self.torch, *device)
        return Step(self, host, call, fixed_address)

    def calls(self) -> dict[str, int]:
        """How often each op was called since the bundle was loaded."""
        with self._lock:
            return dict(self._counts)

    def count(self, name: str) -> None:
        """Count one call."""
        with self._lock:
            self._counts[name] += 1


class Host:
    """Where torch's ops run for programs in host memory."""

    __slots__ = ("_torch",)
    device = HOST[0]

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def bytes_at(self, address: int, nbytes: int) -> Any:
        """A tensor of bytes on memory that must outlive it; no copy."""
        memory = (ctypes.c_char * nbytes).from_address(address)
        return self._torch.frombuffer(memory, dtype=self._torch.uint8)

    def running(self, stream: int) -> Contexts:
        """The contexts in which an op runs as a call's launches do."""
        return Contexts(without_modes(self._torch, self.device))


class OnDevice:
    """Where torch's ops run for programs on a device; stands in the place of `Host`."""

    __slots__ = ("_family", "_ordinal", "_streams", "_torch", "device")

    def __init__(self, torch: Any, family: str, ordinal: int) -> None:
        self._torch = torch
        self._family = family
        self._ordinal = ordinal
        self._streams: dict[int, Any] = {}  # CUstream handle → torch's object
        self.device = f"{family}:{ordinal}"

    def bytes_at(self, address: int, nbytes: int) -> Any:
        """A tensor of bytes on memory of the device, which must outlive it; no copy."""
        return self._torch.as_tensor(_Span(address, nbytes), device=self.device)

    def running(self, stream: int) -> Contexts:
        """The contexts in which an op is added to a stream, given by its CUstream handle."""
        known, library = self._streams.get(stream), getattr(self._torch, self._family)
        if known is None:
            if stream in DEFAULT_STREAMS:
                known = library.default_stream(self._ordinal)
            else:
                known = library.ExternalStream(stream, device=self.device)
            self._streams = {stream: known}  # a handle may be another stream's later
        return Contexts([library.stream(known), *without_modes(self._torch, self._family)])


class _Span:
    """Bytes of a device's memory, as CUDA's array interface shows them."""

    __slots__ = ("__cuda_array_interface__",)

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "strides": None,
            "typestr": "|u1",
            "version": 2,
        }


def without_modes(torch: Any, family: str) -> list[Any]:
    """Contexts that keep the caller's gradients and autocast from an op."""
    contexts = [torch.no_grad()]
    if torch.is_autocast_enabled(family):
        contexts.append(torch.autocast(family, enabled=False))
    return contexts


class Contexts:
    """Several contexts as one: entered in order, left in the opposite one."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts

    def __enter__(self) -> None:
        for part in self._parts:
            part.__enter__()

    def __exit__(self, *error: object) -> None:
        for part in reversed(self._parts):
            part.__exit__(*error)


class Step:
    """One call of a plan on the memory of one session."""

    __slots__ = (
        "_arguments", "_call", "_changed", "_fallback", "_host", "_keywords", "_moving", "_op",
        "_operands", "_results", "_types",
    )  # fmt: skip

    def __init__(
        self,
        fallback: Fallback,
        host: Any,
        call: TorchCall,
        fixed_address: Callable[[str, int | str], int | None],
    ) -> None:
        """See `Fallback.step`."""
        self._fallback = fallback
        self._host = host
        self._call = call
        self._op = fallback.ops[call.op]
        self._changed = fallback.changed[call.op]
        self._operands: list[Any] = []
        self._results: list[Any] = []
        # Tensors on memory of one call: where they are kept, and their last address.
        self._moving: list[tuple[list[Any], int, CallTensor, list[int]]] = []
        for tensors, specs in ((self._operands, call.operands), (self._results, call.results)):
            for spec in specs:
                address = None if spec is None else fixed_address(*spec.memory)
                if spec is not None and address is None:
                    self._moving.append((tensors, len(tensors), spec, [-1]))
                    tensors.append(None)
                else:
                    tensors.append(spec and self._tensor(address, spec))
        self._types = [
            None if spec is None else (self._dtype(spec), spec.shape) for spec in call.results
        ]
        self._read_arguments()

    def _dtype(self, spec: CallTensor) -> Any:
        return getattr(self._fallback.torch, TORCH_DTYPES[spec.dtype])

    def _tensor(self, address: Any, spec: CallTensor) -> Any:
        dtype, device = self._dtype(spec), self._host.device
        if not spec.nbytes:
            return self._fallback.torch.empty(spec.shape, dtype=dtype, device=device)
        return self._host.bytes_at(address, spec.nbytes).view(dtype).view(spec.shape)

    def _read_arguments(self) -> None:
        read = partial(_value, self._fallback.torch, self._host.device, self._operands)
        rows = self._call.arguments
        self._arguments = [read((kind, value)) for name, kind, value in rows if not name]
        self._keywords = {name: read((kind, value)) for name, kind, value in rows if name}

    def _move(self, address_of: Callable[[str, int], int]) -> None:
        """Bring tensors to the memory of this call; callers that keep theirs pay for this once."""
        has_moved = False
        for tensors, index, spec, last in self._moving:
            address = address_of(spec.memory[0], int(spec.memory[1]))
            if address != last[0]:
                tensors[index], last[0], has_moved = self._tensor(address, spec), address, True
        if has_moved:
            self._read_arguments()

    def __call__(self, address_of: Callable[[str, int], int], stream: int = 0) -> None:
        """Run the op; `address_of` gives the addresses of this call's inputs and outputs, `stream`
        is that of the call on a device."""
        op = self._call.op
        self._move(address_of)
        self._fallback.count(op)
        with self._host.running(stream):
            try:
                values = self._values()
            except Exception as error:
                detail = (str(error).strip().splitlines() or [""])[0]
                raise FallbackFailed(op=op, kind=type(error).__name__, detail=detail) from error
            self._check(values)
            for value, result in zip(values, self._results, strict=True):
                if result is not None:
                    result.copy_(value)

    def _values(self) -> Sequence[Any]:
        """The op's results, then the arguments that it changes, which are copies: operands are
        memory that others read."""
        if not self._changed:
            found = self._op(*self._arguments, **self._keywords)
            return found if isinstance(found, (tuple, list)) else (found,)
        arguments, keywords, copies = [*self._arguments], {**self._keywords}, []
        for place, name in self._changed:
            given: Any = keywords if name in keywords else arguments
            key: Any = name if name in keywords else place
            if given[key] is not None:
                given[key] = given[key].clone()
                copies.append(given[key])
        found = self._op(*arguments, **keywords)
        return (*(found if isinstance(found, (tuple, list)) else (found,)), *copies)

    def _check(self, values: Sequence[Any]) -> None:
        """Results are what they were when the bundle was built; raises `FallbackResult`."""
        op, tensor = self._call.op, self._fallback.torch.Tensor
        if len(values) != len(self._types):
            found, expected = f"one of {len(values)}", f"one of {len(self._types)}"
            raise FallbackResult(op=op, index=0, found=found, expected=expected)
        for index, (value, known) in enumerate(zip(values, self._types, strict=True)):
            if known is None:
                continue
            if not isinstance(value, tensor):
                found = f"of type `{type(value).__name__}`"
            elif (value.dtype, tuple(value.shape)) != known:
                found = _type_text(value.dtype, value.shape)
            else:
                continue
            expected = _type_text(*known)
            raise FallbackResult(op=op, index=index, found=found, expected=expected)


def _changed(op: Any) -> list[tuple[int, str]]:
    """Place and name of each argument that the op changes."""
    arguments = op._schema.arguments
    return [
        (place, each.name)
        for place, each in enumerate(arguments)
        if each.alias_info is not None and each.alias_info.is_write
    ]


def _type_text(dtype: Any, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


def _value(torch: Any, device: str, operands: Sequence[Any], row: Sequence[Any]) -> Any:
    """An argument as the op takes it."""
    kind, value = row
    if kind == "tensor":
        return operands[value]
    if kind == "list":
        return [_value(torch, device, operands, item) for item in value]
    return torch.device(device) if kind == "device" else VALUES[kind](torch, value)


VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda torch, value: None,
    "bool": lambda torch, value: bool(value),
    "int": lambda torch, value: value,
    "float": lambda torch, value: float.fromhex(value),
    "text": lambda torch, value: value,
    "dtype": lambda torch, value: getattr(torch, TORCH_DTYPES[value]),
    "layout": lambda torch, value: getattr(torch, value),
    "memory_format": lambda torch, value: getattr(torch, value),
}


def _torch(names: Sequence[str], path: str) -> Any:
    try:
        import torch
    except ImportError:
        raise _unavailable(path, names, "absent", INSTALL_TORCH) from None
    return torch


def _found(torch: Any, name: str) -> Any:
    """The overload of that name in torch's registry, or None."""
    library, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, library), base), overload or "default")
    except (AttributeError, RuntimeError):
        return None


def _unknown(path: str, missing: Sequence[str], version: str) -> FallbackUnavailable:
    """The error for ops that this torch does not know."""
    libraries = sorted({name.partition("::")[0] for name in missing} - set(OWN_LIBRARIES))
    names = ", ".join(f"`torch.ops.{each}`" for each in libraries)
    advice = f"import what registers {names} before `load` (`--import` of the command line)"
    if not libraries:
        advice = "install the torch that built the bundle, `provenance.json` names it"
    return _unavailable(path, missing, f"{version} without them", advice)


def _unavailable(path: str, ops: Sequence[str], found: str, advice: str) -> FallbackUnavailable:
    expected = "one that knows " + ", ".join(f"`{name}`" for name in ops)
    rest = {"found": found, "expected": expected, "advice": advice}
    return FallbackUnavailable(path=path, field="torch", ops=tuple(ops), **rest)
