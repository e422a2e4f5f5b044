"""Tensor maps of launches through the fake driver: aimed once, or at each call's own memory."""

import ctypes
import struct

import pytest
from fake_cuda import FakeCuda, install
from fake_program import Host

from aotc.runtime.bundle.plan import Buffer, Image, Kernel, Launch, LaunchPlan, Map, Plan
from aotc.runtime.drivers.cuda.device import Device
from aotc.runtime.drivers.cuda.driver import Executable
from aotc.runtime.drivers.cuda.errors import CudaError
from aotc.runtime.drivers.cuda.handles import TensorMap

ENCODE = "cuTensorMapEncodeTiled"
ROWS, COLUMNS = 4, 16  # of bf16
NBYTES = ROWS * COLUMNS * 2
IMAGE = (
    b"FAKE sm_90\ncopy 8 8 128 4 4 8 8 8 8\n\0"  # to, from, map, its shape and strides, Triton's
)
ROW = Map(1, "bf16", 0, (ROWS, COLUMNS), (COLUMNS, 1), (2, 16), 32)


def copy(memory, grid, values):
    """All that the map is of goes to the first argument."""
    to, _, described, *sizes = values[:-2]
    address, rank, columns, rows, stride_bytes, *box = struct.unpack_from(
        "<7Q", described.to_bytes(128, "little")
    )
    assert (rank, rows, columns, stride_bytes, box) == (2, ROWS, COLUMNS, 2 * COLUMNS, [16, 2])
    assert sizes == [ROWS, COLUMNS, COLUMNS, 1]
    memory(to, NBYTES)[:] = memory(address, NBYTES)


@pytest.fixture
def executable(fake_cuda):
    """input → arena → output, each by a map of what it reads."""
    fake_cuda.kernels["copy"] = copy
    plan = LaunchPlan(
        256,
        0,
        (Buffer("between", 0, NBYTES),),
        (Kernel("copy", "copy", Image(0, len(IMAGE), 128, 0, 0)),),
        (
            Launch(0, (1, 1, 1), (("arena", 0), ("input", 0)), (ROW,)),
            Launch(0, (1, 1, 1), (("output", 0), ("arena", 0)), (ROW,)),
        ),
    )
    made = Executable(
        IMAGE, Plan.from_msgpack(Plan.of(plan).to_msgpack()).at(), {}, (NBYTES,), (NBYTES,)
    )
    yield made
    made.close()
    fake_cuda.check()


def on_device(device, data):
    address, host = device.allocate(NBYTES), Host(data)
    device.copy_to_device(address, host.address, NBYTES)
    return address


def test_maps_follow_the_memory_of_each_call(executable):
    device, session = executable.gpu, executable.session()
    for seed in (1, 100):
        data = bytes((seed + at) % 256 for at in range(NBYTES))
        source, to, back = on_device(device, data), device.allocate(NBYTES), Host(bytes(NBYTES))
        session.addresses[0], session.addresses[1] = source, to
        session.run()
        device.synchronize()
        device.copy_to_host(back.address, to, NBYTES)
        assert back.bytes == data
    graph, events = session.timeline()
    graph.launch()
    device.synchronize()
    for each in (graph, *events):
        each.close()
    session.close()


def test_a_map_of_unaligned_memory_is_refused(fake_cuda):
    device = Device()
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        TensorMap(device, ROW).aim(8)
    device.close()


def test_a_map_begins_at_its_first_element(fake_cuda):
    device = Device()
    row = Map(0, "f32", 8, (ROWS, 4), (COLUMNS, 1), (ROWS, 4), 0)
    found = TensorMap(device, row)
    found.aim(256)
    (address,) = struct.unpack("<Q", ctypes.string_at(found.address, 8))
    assert address == 256 + 8 * 4
    device.close()


class CheckedMaps(FakeCuda):
    """A driver whose maps have a sum over the address behind it."""

    def _cuTensorMapEncodeTiled(self, to, kind, rank, address, *rest):
        super()._cuTensorMapEncodeTiled(to, kind, rank, address, *rest)
        ctypes.c_uint64.from_address(to + 120).value = address // 16 % 251


@pytest.mark.parametrize(("kind", "by_driver"), [(FakeCuda, 2), (CheckedMaps, 6)])
def test_maps_of_further_addresses_are_as_the_driver_writes_them(monkeypatch, kind, by_driver):
    fake = kind()
    install(monkeypatch, fake)
    device = Device()
    found = TensorMap(device, ROW)
    maps = []
    for address in (4096, 256, 1 << 40, 16, 256, 512):
        found.aim(address)
        maps.append((address, ctypes.string_at(found.address, 128)))
    assert fake.calls[ENCODE] == by_driver
    for address, data in maps:
        fresh = TensorMap(device, ROW)
        fresh.aim(address)
        assert ctypes.string_at(fresh.address, 128) == data
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        found.aim(8)
    found.aim(4096)
    assert ctypes.string_at(found.address, 128) == maps[0][1]
    device.close()


def test_a_map_of_another_shape_is_the_drivers(fake_cuda):
    device = Device()
    found = TensorMap(device, ROW)
    for address in (256, 512, 1024):
        found.aim(address)
    found.describe((2, COLUMNS), (COLUMNS, 1))
    found.aim(2048)
    address, rank, _, rows = struct.unpack_from("<4Q", ctypes.string_at(found.address, 128))
    assert (address, rank, rows) == (2048, 2, 2)
    assert fake_cuda.calls[ENCODE] == 3
    device.close()
