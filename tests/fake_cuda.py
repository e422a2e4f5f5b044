"""A double of libcuda.so.1 at the ctypes border: everything is kept in books, memory is real.

    fake = FakeCuda()                       # or the fixture `fake_cuda`, which installs it
    fake.kernels["copy"] = lambda memory, grid, values: ...
    fake.fail("cuMemAlloc_v2", 2, nth=3)
    assert fake.live() == {}                # after everything was closed

Every function is called through a C callback with the argument types of `libcuda.FUNCTIONS`, so
that what Python passes is converted as for the real library. Work on streams is put off until
somebody waits for it, the worst order that the device may choose: what was not ordered, or is read
before it was waited for, is stale. A kernel is a Python function of (memory, grid, values) by its
symbol, or nothing but a row in `launches`. A sticky error stays with its device.

What no real driver would forgive is written to `hazards`, and what the double itself gets wrong
raises in `check`, which the fixture calls.
"""

import ctypes
import itertools
import threading
from collections import Counter
from dataclasses import dataclass

from fake_books import GUARD, GUARD_BYTES, Block, Stream
from fake_functions import INVALID_HANDLE, INVALID_VALUE, Fault
from fake_graphs import GraphFunctions

from aotc.runtime.drivers.cuda import libcuda
from aotc.runtime.drivers.cuda.errors import STICKY

INVALID_CONTEXT, ILLEGAL_ADDRESS = 201, 700
FRESH_BYTE = 0xA5  # what memory holds before anybody wrote it


@dataclass
class FakeDevice:
    """A device: its primary context's number of owners, and the sticky error that ended it."""

    ordinal: int
    context: int
    retained: int = 0
    sticky: int = 0


class FakeCuda(GraphFunctions):
    """See the module. total_bytes: memory of each device; driver_version: 13000 is CUDA 13.0."""

    def __init__(self, capability=(9, 0), devices=1, total_bytes=1 << 30, driver_version=13000):
        self.capability = capability
        self.total_bytes = total_bytes
        self.driver_version = driver_version
        self.devices = [FakeDevice(each, 0xC0 + each) for each in range(devices)]
        self.calls = Counter()
        self.trace = []  # names in the order of the calls
        self.kernels = {}
        self.launches = []
        self.early = 0  # launches of no graph that may begin before the one before them has ended
        self.hazards = []
        self.wrong = []  # exceptions of the double itself
        self.blocks = {}  # address → Block
        self.modules, self.functions, self.limits = {}, {}, {}
        self.streams, self.events = {}, {}
        self.graphs, self.executions = {}, {}
        self.loose = set()  # nodes of graphs that wait for nothing yet
        self.faults = {}
        self.peers, self.unreachable = set(), set()  # pairs of devices: enabled, impossible
        self._numbers = itertools.count(0x1000, 16)
        self._lock = threading.RLock()
        self._threads = {}
        self._callbacks = {}
        self._texts = {}
        self._legacy = [Stream(0, each.context) for each in self.devices]

    # The border.

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)
        if name not in self._callbacks:
            body = getattr(type(self), "_" + name)
            pointers = (ctypes.c_char_p,)
            arguments = [
                ctypes.c_void_p if each in pointers or hasattr(each, "contents") else each
                for each in {**libcuda.FUNCTIONS, **libcuda.OPTIONAL}[name]
            ]
            prototype = ctypes.CFUNCTYPE(ctypes.c_int, *arguments)
            self._callbacks[name] = prototype(self._guarded(name, body))
        return self._callbacks[name]

    def _guarded(self, name, body):
        def call(*arguments):
            try:
                with self._lock:
                    self.calls[name] += 1
                    self.trace.append(name)
                    number = self.faults.pop((name, self.calls[name]), 0)
                    if number:
                        if number in STICKY:
                            self._poison(number)
                        return number
                    return body(self, *arguments) or 0
            except Fault as fault:
                return fault.number
            except BaseException as error:
                self.wrong.append(error)
                return 999

        return call

    def fail(self, name, number, nth=1):
        """Have the nth call of a function from now on give a result and do nothing."""
        self.faults[name, self.calls[name] + nth] = number

    def _poison(self, number):
        """End every context in use: its work is gone, its things can still be given back."""
        for device in self.devices:
            if device.retained and not device.sticky:
                device.sticky = number
        for stream in [*self._legacy, *self.streams.values()]:
            stream.work.clear()
        for block in self.blocks.values():
            block.copies = 0

    # What tests look at.

    def live(self):
        """How many things of each kind exist, without those of which there are none."""
        pinned = sum(block.is_pinned for block in self.blocks.values())
        found = {
            "contexts": sum(device.retained for device in self.devices),
            "memory": len(self.blocks) - pinned,
            "pinned": pinned,
            "modules": len(self.modules),
            "streams": len(self.streams),
            "events": len(self.events),
            "graphs": len(self.graphs),
            "executions": len(self.executions),
        }
        return {kind: count for kind, count in found.items() if count}

    @property
    def used_bytes(self):
        """Device memory in use."""
        return sum(each.nbytes for each in self.blocks.values() if not each.is_pinned)

    def memory(self, address, nbytes):
        """A writable view of memory that kernels reach; an illegal address ends the device."""
        block = self._block(address, nbytes)
        if block is None or (block.is_pinned and not block.is_mapped):
            self._poison(ILLEGAL_ADDRESS)
            raise Fault(ILLEGAL_ADDRESS)
        return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")

    def settle(self):
        """Do all work that was put off."""
        for stream in [*self._legacy, *self.streams.values()]:
            self._finish(stream)

    def check(self):
        """Raise what went wrong in the double, then what no driver forgives."""
        if self.wrong:
            raise self.wrong[0]
        broken = [hex(each.address) for each in self.blocks.values() if not each.guard_is_whole()]
        assert not broken, f"written past the end of {broken}"
        assert not self.hazards, self.hazards
        assert not self.loose, "a node of a graph waits for nothing"
        left = {ident: stack for ident, stack in self._threads.items() if len(stack) > 1}
        assert not left, f"contexts left on threads' stacks: {left}"

    # Memory.

    def _block(self, address, nbytes):
        for block in self.blocks.values():
            if block.address <= address and address + nbytes <= block.address + block.nbytes:
                return block
        return None

    def _new_block(self, nbytes, is_pinned):
        room = (ctypes.c_ubyte * (nbytes + GUARD_BYTES + 256))()
        address = -(-ctypes.addressof(room) // 256) * 256
        ctypes.memset(address, FRESH_BYTE, nbytes)
        ctypes.memmove(address + nbytes, GUARD, GUARD_BYTES)
        ordinal = self._context().ordinal
        self.blocks[address] = Block(address, nbytes, room, is_pinned, ordinal=ordinal)
        return address

    def _drop_block(self, address, is_pinned):
        block = self.blocks.get(address)
        if block is None or block.is_pinned != is_pinned:
            raise Fault(INVALID_VALUE)
        if block.copies:
            self.hazards.append(f"pinned memory at {address:#x} freed under a copy")
        self.settle()
        if not block.guard_is_whole():
            self.hazards.append(f"written past the end of {block.nbytes} bytes")
        del self.blocks[address]

    def _device_range(self, address, nbytes):
        block = self._block(address, nbytes)
        if block is None or block.is_pinned:
            raise Fault(INVALID_VALUE)

    # Threads, contexts, streams.

    def _stack(self):
        return self._threads.setdefault(threading.get_ident(), [0])

    def _context(self):
        """The device of this thread's current context, in good health."""
        device = self._device_of(self._stack()[-1])
        if device is None or not device.retained:
            raise Fault(INVALID_CONTEXT)
        if device.sticky:
            raise Fault(device.sticky)
        return device

    def _device_of(self, context):
        return next((each for each in self.devices if each.context == context), None)

    def _stream(self, handle):
        device = self._context()
        if not handle or handle in (1, 2):
            return self._legacy[device.ordinal]
        if handle not in self.streams:
            raise Fault(INVALID_HANDLE)
        return self.streams[handle]

    def _add(self, stream, piece):
        stream.work.append(piece)
        stream.added += 1

    def _finish(self, stream, position=None):
        """Do a stream's work up to a position (all of it by default)."""
        while stream.work and (position is None or stream.done < position):
            piece = stream.work.pop(0)
            stream.done += 1
            try:
                piece()
            except Fault:
                break
        device = self._device_of(stream.context)
        if device.sticky:
            stream.work.clear()

    def _after(self, event_stream, position):
        return lambda: self._finish(event_stream, position)

    def _wait(self, stream):
        self._finish(stream)
        self._context()  # raises what the work did to it


def install(monkeypatch, fake):
    """Have the runtime find this double in place of libcuda, until the end of the test."""
    monkeypatch.setattr(libcuda, "open_library", lambda: fake)
    monkeypatch.setattr(libcuda, "_process", {})
    return fake
