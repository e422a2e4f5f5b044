"""A small program for the fake driver: three launches, two weights, one input, one output."""

import ctypes

from fake_cubin import text_image

from aotc.runtime.bundle.plan import Buffer, Image, Kernel, Launch, LaunchPlan

COUNT = 16  # bytes of every array


def add(memory, grid, values):
    """to = a + b, byte by byte."""
    to, a, b = (memory(address, COUNT) for address in values[:3])
    to[:] = bytes((x + y) % 256 for x, y in zip(a, b, strict=True))


def count(memory, grid, values):
    """A counter that must be zero before, and is left zero; then to = a."""
    counter, to, a = (memory(address, COUNT) for address in values[:3])
    assert bytes(counter) == bytes(COUNT), "the counter is not zero"
    to[:] = a


KERNELS = {"add": add, "count": count}


def small_plan(scratch_bytes=0, weights=("w", "v"), shared_bytes=0, is_programmatic=False):
    """output = (input + w) + v, through two buffers of the arena and a zeroed counter."""
    image = text_image({"add": 5, "count": 5})
    row = Image(0, len(image), 128, shared_bytes, scratch_bytes, is_programmatic)
    plan = LaunchPlan(
        arena_bytes=1024,
        scratch_bytes=0,
        buffers=(Buffer("c", 0, COUNT), Buffer("x", 256, COUNT), Buffer("y", 512, COUNT)),
        kernels=(Kernel("add", "add", row), Kernel("count", "count", row)),
        steps=(
            Launch(0, (4, 2, 1), (("arena", 256), ("input", 0), ("weight", weights[0]))),
            Launch(1, (1, 1, 1), (("arena", 0), ("arena", 512), ("arena", 256))),
            Launch(0, (1, 1, 1), (("output", 0), ("arena", 512), ("weight", weights[1]))),
        ),
        zeroed_bytes=256,
    )
    return image, plan


class Host:
    """Host memory with an address that stays."""

    def __init__(self, data):
        self.buffer = ctypes.create_string_buffer(bytes(data), len(data))
        self.address = ctypes.addressof(self.buffer)
        self.nbytes = len(data)

    @property
    def bytes(self):
        return self.buffer.raw


def ran(session, data):
    """The output of one run on host memory."""
    given, found = Host(data), Host(bytes(COUNT))
    session.copy_in(0, given.address)
    session.stage(1)
    session.run(session.stream)
    session.copy_out(1, found.address)
    session.synchronize()
    return found.bytes
