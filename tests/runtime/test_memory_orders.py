"""Orders of memory of inputs and outputs: in the manifest, and on a fake device."""

from __future__ import annotations

import struct

import device_bundle
import pytest
from device_bundle import NUMBERS, SHAPE, WEIGHT, DeviceBlock, Interface, Lender, numbers

from aotc.runtime import load
from aotc.runtime.arrays.dlpack import borrow
from aotc.runtime.bundle.manifest import ORDER, Manifest, MemoryOrder
from aotc.runtime.drivers.cuda.device_array import DeviceArray
from aotc.runtime.errors import BundleMalformed, InputNotContiguous, InputStrided, OutputUnusable
from aotc.runtime.verify import verify

ROWS, COLUMNS = SHAPE
# What memory holds where the columns of NUMBERS lie one after the other.
BY_COLUMNS = struct.pack("<24f", *(6 * row + column for column in range(6) for row in range(4)))
STRIDES = (1, ROWS)


@pytest.fixture
def program(tmp_path, cuda):
    """`device_bundle`, its `x` and `y` with columns one after the other in memory."""
    bundle = device_bundle.write(tmp_path / "bundle", order=(1, 0))
    with load(bundle) as opened:
        assert str(opened.inputs[0]) == "f32[4, 6] in memory order [1, 0]"
        yield opened


def test_host_arrays_give_their_own_kind(program):
    numpy = pytest.importorskip("numpy")
    whole = numpy.frombuffer(NUMBERS, "f4").reshape(SHAPE)
    for given in (whole, numpy.asfortranarray(whole), whole.repeat(2, 1)[:, ::2]):
        y, w = program(given)
        assert (y == whole).all()
        assert y.flags.f_contiguous
        assert w.tobytes() == WEIGHT
    for data in (NUMBERS, memoryview(NUMBERS).cast("f", SHAPE), memoryview(whole.T.copy().T)):
        y, _ = program(data)
        assert (bytes(y), y.shape, y.c_contiguous) == (NUMBERS, SHAPE, True)


def test_outputs_in_host_memory(program):
    numpy = pytest.importorskip("numpy")
    for y in (bytearray(96), numpy.empty(SHAPE, "f4"), numpy.empty(SHAPE, "f4", order="F")):
        program(NUMBERS, out=(y, bytearray(24)))
        found = y if type(y) is bytearray else y.tobytes()
        assert found == NUMBERS
    y, x = bytearray(96), numpy.zeros(SHAPE, "f4", order="F")
    bound = program.bind(x, out=(y, bytearray(24)))
    x[:] = numpy.frombuffer(NUMBERS, "f4").reshape(SHAPE)
    bound()
    assert y == NUMBERS
    with pytest.raises(InputNotContiguous):
        program.bind(NUMBERS)
    read_only = numpy.asfortranarray(x)
    read_only.flags.writeable = False
    with pytest.raises(OutputUnusable, match="read-only"):
        program(NUMBERS, out=(read_only, bytearray(24)))


def test_arrays_on_the_device(program, cuda):
    for given in (
        Lender(DeviceBlock(BY_COLUMNS), strides=STRIDES),
        Interface(DeviceBlock(BY_COLUMNS), strides=(4, 16)),
    ):
        y, _ = program(given)
        assert type(y) is DeviceArray
        assert (y.shape, y.strides) == (SHAPE, STRIDES)
        assert numbers(y, cuda) == BY_COLUMNS
        assert y.__cuda_array_interface__["strides"] == (4, 16)
        again, _ = program(y)  # as another program's output
        assert numbers(again, cuda) == BY_COLUMNS
        assert borrow(again).strides == (4, 16)
    for given in (Lender(DeviceBlock(NUMBERS)), Interface(DeviceBlock(NUMBERS))):
        with pytest.raises(InputStrided, match=r"in another order, expected .*\[1, 0\]"):
            program(given)
    for y in (Lender(DeviceBlock(bytes(96))), Lender(DeviceBlock(bytes(96)), strides=(2, 8))):
        with pytest.raises(OutputUnusable, match=r"in another order, expected .*\[1, 0\]"):
            program(NUMBERS, out=(y, bytearray(24)))
    block = DeviceBlock(bytes(96))
    program(NUMBERS, out=(Lender(block, strides=STRIDES), bytearray(24)))
    assert block.read() == BY_COLUMNS


def test_golden_numbers_are_contiguous(tmp_path, cuda):
    bundle = device_bundle.write(tmp_path / "bundle", order=(1, 0))
    assert all(finding.status == "ok" for finding in verify(bundle))


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (MemoryOrder(1, "input", 0, (1, 0)), "orders[0].place"),
        (MemoryOrder(0, "input", 1, (1, 0)), "orders[0].place"),
        (MemoryOrder(0, "output", 1, (1, 0)), "orders[0].axes"),
        (MemoryOrder(0, "input", 0, (0, 1)), "orders[0].axes"),
        (MemoryOrder(0, "input", 0, (1, 1)), "orders[0].axes"),
        (MemoryOrder(0, "input", 0, (1, 2, 0)), "orders[0].axes"),
    ],
)
def test_orders_of_nothing_are_refused(tmp_path, cuda, row, field):
    bundle = device_bundle.write(tmp_path / "bundle", order=(1, 0))
    found = Manifest.from_bytes((bundle / "manifest.msgpack").read_bytes())
    assert found.features == (ORDER,)
    assert found.entries[0].inputs[0].order == (1, 0)
    with pytest.raises(BundleMalformed) as caught:
        found.replace(orders=(row,)).to_bytes()
    assert caught.value.field == field


def test_one_order_an_array(tmp_path, cuda):
    bundle = device_bundle.write(tmp_path / "bundle", order=(1, 0))
    found = Manifest.from_bytes((bundle / "manifest.msgpack").read_bytes())
    with pytest.raises(BundleMalformed, match="each once"):
        found.replace(orders=found.orders * 2).to_bytes()
    assert Manifest.from_bytes(found.to_bytes()) == found
