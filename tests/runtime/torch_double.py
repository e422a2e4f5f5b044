"""A double of the few names of torch that the runtime uses, with tensors on the fake device.

`calls` notes what a stream matters for: each row has torch's current stream at the time.
"""

from __future__ import annotations

import types

from device_bundle import DeviceBlock

ITEM_BYTES = 4
calls: list[tuple] = []
current = [0]  # the stack of torch's current streams


class Device:
    def __init__(self, kind: str, index: int | None) -> None:
        self.type = kind
        self.index = index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


class Tensor:
    """float32 on a device; strides in elements."""

    dtype = "float32"
    layout = "strided"
    is_cpu = property(lambda self: self.device.type == "cpu")
    is_cuda = property(lambda self: self.device.type == "cuda")

    def __init__(self, block, shape, strides=None, device=0, **flags) -> None:
        self.block = block
        self.shape = tuple(shape)
        self.strides = strides or contiguous(shape)
        self.device = Device("cuda", device) if device is not None else Device("meta", None)
        self.requires_grad = flags.get("requires_grad", False)
        self.negative = flags.get("negative", False)
        self.recorded: list[int] = []

    def get_device(self):
        return -1 if self.device.index is None else self.device.index

    def is_contiguous(self):
        return self.strides == contiguous(self.shape)

    def is_neg(self):
        return self.negative

    def data_ptr(self):
        return self.block.address

    def detach(self):
        return Tensor(self.block, self.shape, self.strides)

    def resolve_neg(self):
        return self.clone() if self.negative else self

    def contiguous(self):
        return self if self.is_contiguous() else self.clone()

    def clone(self):
        calls.append(("clone", current[-1]))
        data = self.block.read()
        return Tensor(DeviceBlock(data), self.shape)

    def expand(self, shape):
        return Tensor(self.block, shape)

    def record_stream(self, stream):
        self.recorded.append(stream.handle)


def contiguous(shape):
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def empty(shape, dtype=None, device=None):
    calls.append(("empty", current[-1]))
    count = 1
    for extent in shape:
        count *= extent
    return Tensor(DeviceBlock(bytes(ITEM_BYTES * count)), shape)


class ExternalStream:
    def __init__(self, handle, device=None) -> None:
        self.handle = handle


class StreamContext:
    def __init__(self, stream) -> None:
        self.handle = current[-1] if stream is None else stream.handle

    def __enter__(self):
        current.append(self.handle)

    def __exit__(self, *_):
        current.pop()


def module(is_grad_enabled=True) -> types.ModuleType:
    """The module to put in place of torch."""
    torch = types.ModuleType("torch")
    torch.Tensor, torch.nn = Tensor, types.SimpleNamespace(Parameter=type("P", (Tensor,), {}))
    torch.float32, torch.strided = "float32", "strided"
    torch.is_grad_enabled = lambda: is_grad_enabled
    torch.empty, torch.empty_like = empty, lambda like: empty(like.shape)
    torch.cuda = types.SimpleNamespace(
        is_initialized=lambda: True, stream=StreamContext, ExternalStream=ExternalStream
    )
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda ordinal: current[-1])
    return torch
