"""A CUDA device in plain Python: memory is bytearrays, a kernel is a function, time is counted.

It has the names of `runtime/drivers/cuda/device.py` that the tuner and the profiler use.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager

from aotc.runtime.drivers.cuda.errors import DeviceLost, ImageRefused

L2_BYTES = 1 << 20


class FakeDevice:
    """`kernels` maps the bytes of a cubin to (function on (memory, addresses), microseconds)."""

    def __init__(self, kernels, registers=32):
        self.kernels = kernels
        self.registers = registers
        self.lost = None
        self.name = "NVIDIA Fake"
        self.memory_of = {}  # address → bytearray
        self.clock_us = 0.0
        self.launched = []  # (symbol, addresses) of every launch
        self.closed = []
        self.is_current = False
        self._next = 1 << 20

    # Memory.

    def allocate(self, nbytes, purpose=""):
        address = self._next
        self._next += -(-max(nbytes, 1) // 256) * 256 + 256
        self.memory_of[address] = bytearray(nbytes)
        return address

    def free(self, address):
        del self.memory_of[address]

    def place(self, address):
        for base, block in self.memory_of.items():
            if base <= address < base + len(block):
                return block, address - base
        raise AssertionError(f"{address} is nobody's memory")

    def fill(self, address, value, nbytes, stream=0):
        block, offset = self.place(address)
        block[offset : offset + nbytes] = bytes([value]) * nbytes

    def copy_to_device(self, address, host_address, nbytes):
        block, offset = self.place(address)
        block[offset : offset + nbytes] = ctypes.string_at(host_address, nbytes)
        assert len(block) >= offset + nbytes

    def copy_to_host(self, host_address, address, nbytes):
        block, offset = self.place(address)
        ctypes.memmove(host_address, bytes(block[offset : offset + nbytes]), nbytes)

    @contextmanager
    def current(self):
        self.is_current = True
        yield
        self.is_current = False

    def call(self, name, *arguments):
        assert name == "cuTensorMapEncodeTiled", name
        assert self.is_current

    def attribute(self, name):
        return {"l2_bytes": L2_BYTES, "multiprocessors": 4}[name]

    def synchronize(self):
        pass

    # Code.

    def load(self, image):
        if bytes(image) not in self.kernels:
            where = {"ordinal": 0, "device": self.name, "capability": "90"}
            raise ImageRefused(**error_fields("cuModuleLoadData", 200), **where)
        return Handle(self, bytes(image))

    def function(self, module, symbol, shared_bytes=0):
        return Function(self, module.image, symbol, shared_bytes)

    def launch(self, function, grid, threads, arguments, stream=0):
        self.run(function, list(arguments.slots))

    def run(self, function, addresses):
        body, time_us = self.kernels[function.image]
        if body is None:
            self.lost = DeviceLost(**error_fields("cuCtxSynchronize", 700))
            raise self.lost
        self.launched.append((function.symbol, addresses))
        body(self, addresses)
        self.clock_us += time_us

    def graph(self):
        return Graph(self)

    # Streams and events.

    def stream(self):
        return Handle(self, b"")

    def event(self, is_timed=True):
        return Event(self)

    def elapsed_ms(self, begin, end):
        return (end.at_us - begin.at_us) / 1e3

    def close(self):
        self.closed.append(self)


class Handle:
    def __init__(self, device, image):
        self.device, self.image, self.handle = device, image, 7

    def close(self):
        self.device.closed.append(self)

    def synchronize(self):
        pass


class Function:
    def __init__(self, device, image, symbol, shared_bytes):
        self.image, self.symbol, self.shared_bytes = image, symbol, shared_bytes
        self.registers, self.local_bytes = device.registers, 0


class Event:
    def __init__(self, device):
        self.device, self.at_us = device, 0.0

    def record(self, stream=0):
        self.at_us = self.device.clock_us

    def close(self):
        self.device.closed.append(self)


class Graph:
    def __init__(self, device):
        self.device, self.nodes, self.ready = device, [], False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def kernel(self, function, grid, threads, arguments, is_programmatic=False):
        assert not self.ready
        self.nodes.append(("kernel", function, list(arguments.slots)))
        return len(self.nodes) - 1

    def record(self, event):
        self.nodes.append(("record", event, None))

    def fill(self, address, value, nbytes):
        self.nodes.append(("fill", address, (value, nbytes)))

    def instantiate(self):
        self.ready = True

    def launch(self, stream=0):
        assert self.ready
        for kind, thing, value in self.nodes:
            if kind == "kernel":
                self.device.run(thing, value)
            elif kind == "record":
                thing.record()
            else:
                self.device.fill(thing, *value)

    def close(self):
        self.device.closed.append(self)


def error_fields(function, number):
    """The fields that every error of the driver has."""
    return {"function": function, "name": "CUDA_ERROR", "number": number, "description": "no"}
