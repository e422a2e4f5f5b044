"""Memory of closed sessions serves the next ones."""

import gc
import random

import pytest
from fake_cuda import FakeCuda, install
from fake_program import COUNT, Host, small_plan

from aotc.runtime.drivers.cuda.device import Device
from aotc.runtime.drivers.cuda.driver import Executable
from aotc.runtime.drivers.cuda.errors import CudaError, DeviceMemoryFull, PinnedMemoryFull
from aotc.runtime.drivers.cuda.pool import (
    KEPT_SHARE,
    LEAST_BYTES,
    ON_DEVICE,
    ON_HOST,
    OVERSIZE,
    PINNED_LIMIT_BYTES,
    SMALL_BYTES,
)

MIB = 1 << 20


@pytest.fixture
def fake(monkeypatch):
    return install(monkeypatch, FakeCuda(total_bytes=1 << 30))


@pytest.fixture
def device(fake):
    found = Device()
    yield found
    found.close()
    assert fake.live() == {}


def test_a_session_takes_what_the_one_before_has_given_back(fake, weights):
    image, plan = small_plan()
    executable = Executable(image, plan, weights, (COUNT,), (COUNT,))
    given = Host(bytes(range(COUNT)))
    live = []
    for _ in range(3):
        session = executable.session()
        session.copy_in(0, given.address)
        session.stage(1)
        session.run(session.stream)
        session.synchronize()
        session.close()
        live.append(fake.live())
    assert live[0] == live[1] == live[2]
    assert executable.gpu.pool.kept_bytes[ON_DEVICE] > 0
    executable.close()
    assert fake.live() == {}


def test_two_open_sessions_share_no_memory(device):
    first, second = (device.pool.allocate(100, "a test") for _ in range(2))
    assert abs(first - second) >= 100
    device.pool.free(first)
    assert device.pool.allocate(100, "a test") == first
    assert device.pool.allocate(100, "a test") not in (first, second)


def test_a_block_is_not_kept_twice(device):
    address = device.pool.allocate(100, "a test")
    device.pool.free(address)
    device.pool.free(address)
    assert device.pool.kept_bytes[ON_DEVICE] == LEAST_BYTES
    found = [device.pool.allocate(100, "a test") for _ in range(2)]
    assert found[0] == address != found[1]


def test_much_too_large_a_block_is_left(device):
    address = device.pool.allocate(2 * OVERSIZE * SMALL_BYTES, "a test")
    device.pool.free(address)
    assert device.pool.allocate(SMALL_BYTES, "a test") != address


def test_sizes_that_grow_in_small_steps_are_allocated_seldom(device, fake):
    seen = set()
    for step in range(1, 65):
        address = device.pool.allocate(step * MIB, "a test")
        seen.add(address)
        device.pool.free(address)
    assert len(seen) <= 8
    assert device.allocated_bytes <= 2 * 64 * MIB


def test_no_more_than_a_share_of_the_device_is_kept(device, fake):
    limit = (1 << 30) // KEPT_SHARE
    found = [device.pool.allocate(32 * MIB, "a test") for _ in range(8)]
    for address in found:
        device.pool.free(address)
    assert limit - 32 * MIB < device.pool.kept_bytes[ON_DEVICE] <= limit
    assert device.allocated_bytes == device.pool.kept_bytes[ON_DEVICE]


def test_what_is_kept_goes_where_the_device_has_no_more(device):
    kept = device.pool.allocate(100 * MIB, "a test")
    device.pool.free(kept)
    rest = device.allocate(1000 * MIB)
    assert device.pool.kept_bytes[ON_DEVICE] == 0
    device.free(rest)


def test_what_does_not_fit_names_what_was_asked_for(device):
    device.allocate((1 << 30) - 900)
    with pytest.raises(DeviceMemoryFull) as caught:
        device.pool.allocate(1000, "a test")
    assert caught.value.needed == 1000


def test_pinned_memory_of_another_use_is_not_taken(device):
    plain = device.pool.pinned(100, "a test")
    device.pool.free_pinned(plain)
    assert device.pool.pinned(100, "a test", is_mapped=True).address != plain.address
    assert device.pool.pinned(100, "a test").address == plain.address


def test_no_pinned_memory(device, fake):
    kept = device.pool.pinned(100, "a test")
    device.pool.free_pinned(kept)
    fake.fail("cuMemHostAlloc", 2)
    assert device.pool.pinned(10 * MIB, "a test")  # what was kept went first
    fake.fail("cuMemHostAlloc", 2)
    with pytest.raises(PinnedMemoryFull):
        device.pool.pinned(20 * MIB, "a test")


def test_views_keep_their_memory(device):
    address = device.pool.allocate(100, "a test")
    other = Device()
    device.hand_over(address, other)
    device.pool.free(address)
    assert device.pool.allocate(100, "a test") != address
    other.close()


@pytest.mark.parametrize("seed", range(20))
def test_blocks_in_use_never_overlap(device, seed):
    draw = random.Random(seed)
    used: dict[int, int] = {}
    for _ in range(200):
        if used and draw.random() < 0.5:
            address = draw.choice(sorted(used))
            del used[address]
            device.pool.free(address)
        else:
            nbytes = draw.choice((1, 8, 300, 5000, MIB, MIB + 1, 3 * MIB))
            address = device.pool.allocate(nbytes, "a test")
            assert all(address + nbytes <= each or each + size <= address
                       for each, size in used.items())  # fmt: skip
            used[address] = nbytes
    assert device.allocated_bytes >= sum(used.values()) + device.pool.kept_bytes[ON_DEVICE]


def test_what_other_pools_of_the_device_keep_goes_too(device):
    other = Device()
    other.pool.free(other.pool.allocate(100 * MIB, "a test"))
    rest = device.allocate(1000 * MIB)
    assert other.pool.kept_bytes[ON_DEVICE] == 0
    device.free(rest)
    other.close()


def test_all_pools_of_a_device_keep_a_share_together(device):
    others = [Device() for _ in range(4)]
    for each in others:
        each.pool.free(each.pool.allocate(60 * MIB, "a test"))
    assert sum(each.pool.kept_bytes[ON_DEVICE] for each in others) <= (1 << 30) // KEPT_SHARE
    for each in others:
        each.close()


def test_pinned_memory_has_a_limit_of_its_own(device):
    size = PINNED_LIMIT_BYTES // 2
    for each in [device.pool.pinned(size, "a test") for _ in range(3)]:
        device.pool.free_pinned(each)
    assert device.pool.kept_bytes[ON_HOST] == PINNED_LIMIT_BYTES


def test_a_large_pinned_block_takes_no_large_device_block(fake, weights):
    """The copy of a host buffer has the buffer's size, whatever the pinned block has."""
    image, plan = small_plan()
    executable = Executable(image, plan, weights, (COUNT,), (COUNT,))
    executable.gpu.pool.free_pinned(executable.gpu.pool.pinned(OVERSIZE * LEAST_BYTES, "a test"))
    before = executable.gpu.allocated_bytes
    session = executable.session()
    opened = executable.gpu.allocated_bytes
    session.copy_in(0, Host(bytes(range(COUNT))).address)
    assert executable.gpu.allocated_bytes - opened == LEAST_BYTES
    session.close()
    executable.close()
    assert before < opened


class Abandoned:
    """In a circle of references, gives memory back when the garbage collector finds it."""

    def __init__(self, device):
        self.device, self.address = device, device.pool.allocate(100, "a test")
        self.own = self

    def __del__(self):
        self.device.pool.free(self.address)


def test_the_garbage_collector_may_give_memory_back_meanwhile(device):
    before = gc.get_threshold()
    gc.set_threshold(1)  # at every second object
    try:
        for _ in range(200):
            Abandoned(device)
            device.pool.free(device.pool.allocate(100, "a test"))
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert device.allocated_bytes == device.pool.kept_bytes[ON_DEVICE]


def test_memory_that_may_be_in_use_is_not_given_back(fake, weights):
    """A wait that fails, as while somebody captures a graph, leaves it to the code."""
    image, plan = small_plan()
    executable = Executable(image, plan, weights, (COUNT,), (COUNT,))
    session = executable.session()
    fake.fail("cuCtxSynchronize", 900)
    with pytest.raises(CudaError):
        session.close()
    assert executable.gpu.pool.kept_bytes[ON_DEVICE] == 0
    executable.close()
    assert fake.live() == {}
