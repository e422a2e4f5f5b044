"""What programs on a device refuse, over a fake CUDA driver: arrays, streams, lost devices."""

from __future__ import annotations

import array
import os

import device_bundle
import pytest
from device_bundle import NUMBERS, OTHERS, SHAPE, DeviceBlock, Interface, Lender, numbers
from fake_cuda import FakeCuda, install

from aotc.runtime import load
from aotc.runtime.drivers.cuda.errors import DeviceForked, DeviceLost, StreamForeign
from aotc.runtime.errors import (
    InputCount,
    InputDevice,
    InputDtype,
    InputMisaligned,
    InputMissing,
    InputShape,
    InputStrided,
    InputUnknown,
    InputUnreadable,
    OutputCount,
    OutputUnusable,
    StreamUnreadable,
)


def refusals():
    """Name → (argument, error, text)."""
    block = DeviceBlock(NUMBERS + bytes(4))
    odd = DeviceBlock(NUMBERS, offset=4)
    f64 = DeviceBlock(bytes(192))
    transposed = {"shape": SHAPE, "strides": (1, 4)}
    return {
        "dlpack dtype": (Lender(f64, "f64"), InputDtype, "f64, expected f32"),
        "dlpack shape": (Lender(block, shape=(6, 4)), InputShape, r"\[6, 4\]"),
        "dlpack strides": (Lender(block, **transposed), InputStrided, "not contiguous"),
        "dlpack alignment": (Lender(odd), InputMisaligned, "multiple of 16"),
        "dlpack other device": (Lender(block, device=(2, 1)), InputDevice, "cuda:1, .*cuda:0"),
        "dlpack rocm": (Lender(block, device=(10, 0)), InputDevice, "rocm:0, expected cuda:0"),
        "interface dtype": (Interface(block, "<f8"), InputDtype, "f64, expected f32"),
        "interface big-endian": (Interface(block, ">f4"), InputDtype, ">f4"),
        "interface shape": (Interface(block, shape=(4, 5)), InputShape, r"\[4, 5\]"),
        "interface strides": (Interface(block, strides=(4, 16)), InputStrided, "not contiguous"),
        "interface alignment": (Interface(odd), InputMisaligned, "multiple of 16"),
        "interface mask": (Interface(block, mask=block), InputUnreadable, "masked"),
        "interface half": (Interface(block, data=None), InputUnreadable, "cannot be read"),
        "interface host": (Interface(block, data=(64, False)), InputDevice, "the host"),
        "host dtype": (array.array("i", range(24)), InputDtype, "i32"),
        "host size": (NUMBERS[:-1], InputUnreadable, "95 bytes"),
        "list": ([1.0], InputUnreadable, "`list`"),
        "nothing": (None, InputUnreadable, "`NoneType`"),
    }


NAMES = (
    "dlpack dtype", "dlpack shape", "dlpack strides", "dlpack alignment", "dlpack other device",
    "dlpack rocm", "interface dtype", "interface big-endian", "interface shape",
    "interface strides", "interface alignment", "interface mask", "interface half",
    "interface host", "host dtype", "host size", "list", "nothing",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_refusals_name_the_input(program, cuda, name):
    value, kind, text = refusals()[name]
    for _ in range(2):
        with pytest.raises(kind, match=text) as caught:
            program(value)
        assert "`x`" in str(caught.value)
        assert caught.value.exit_code == 2
    assert bytes(program(NUMBERS)[0]) == NUMBERS


def test_every_refusal_is_tested(cuda):
    assert set(refusals()) == set(NAMES)


def test_out_refusals(program):
    block = DeviceBlock(NUMBERS)
    given, odd = Lender(block), DeviceBlock(bytes(96), offset=8)
    read_only = Interface(DeviceBlock(bytes(96)))
    read_only.__cuda_array_interface__["data"] = (read_only.block.address, True)
    cases = [
        (Lender(odd), InputMisaligned, "output `y` starts at"),
        (Lender(DeviceBlock(bytes(96)), flags=1), OutputUnusable, "read-only"),
        (Lender(DeviceBlock(bytes(96)), strides=(1, 4)), OutputUnusable, "not contiguous"),
        (read_only, OutputUnusable, "read-only"),
        (given, OutputUnusable, "in the memory of input `x`"),
        (Interface(block), OutputUnusable, "in the memory of input `x`"),
        (bytes(96), OutputUnusable, "read-only"),
    ]
    for first, kind, text in cases:
        with pytest.raises(kind, match=text):
            program(given, out=(first, bytearray(24)))
    with pytest.raises(OutputCount):
        program(given, out=bytearray(96))


def test_counts_and_names(program):
    with pytest.raises(InputCount):
        program(NUMBERS, NUMBERS)
    with pytest.raises(InputMissing):
        program()
    with pytest.raises(InputUnknown):
        program(NUMBERS, z=NUMBERS)
    assert bytes(program(x=NUMBERS)[0]) == NUMBERS


class TorchStream:
    """As torch shows one."""

    def __init__(self, handle, device_index=0):
        self.cuda_stream = handle
        self.device_index = device_index


class ProtocolStream:
    """As the Python bindings of CUDA show one."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def test_streams_of_every_kind(program, cuda):
    keep = DeviceBlock(b"x")
    stream = keep.device.stream().handle
    for given in (stream, TorchStream(stream), ProtocolStream(stream), 0, 1, 2):
        y, _ = program(Lender(DeviceBlock(NUMBERS)), stream=given)
        assert numbers(y, cuda) == NUMBERS
    for wrong in ("side", 1.5, -1, object()):
        with pytest.raises(StreamUnreadable, match="expected a CUDA stream"):
            program(NUMBERS, stream=wrong)
    with pytest.raises(StreamForeign, match="belongs to device 1"):
        program(NUMBERS, stream=TorchStream(stream, 1))


def test_a_stream_of_another_context(tmp_path, monkeypatch):
    fake = install(monkeypatch, FakeCuda(devices=2))
    fake.kernels["copy"] = device_bundle.copy
    with load(device_bundle.write(tmp_path / "bundle")) as program:
        foreign = DeviceBlock(b"x", ordinal=1)
        stream = foreign.device.stream()
        with pytest.raises(StreamForeign, match="another context"):
            program(NUMBERS, stream=stream.handle)
        assert bytes(program(NUMBERS)[0]) == NUMBERS
    fake.check()


def test_arrays_of_another_device(tmp_path, monkeypatch):
    """One process uses both: each has its context, and neither program takes the other's array."""
    fake = install(monkeypatch, FakeCuda(devices=2))
    fake.kernels["copy"] = device_bundle.copy
    path = device_bundle.write(tmp_path / "bundle")
    with load(path, "cuda:0") as first, load(path, "cuda:1") as second:
        here, there = DeviceBlock(NUMBERS), DeviceBlock(OTHERS, ordinal=1)
        for kind in (Lender, Interface):
            with pytest.raises(InputDevice, match="`x` is on device cuda:1, expected cuda:0"):
                first(kind(there))
            with pytest.raises(InputDevice, match="`x` is on device cuda:0, expected cuda:1"):
                second(kind(here))
            results = first(kind(here))[0], second(kind(there))[0]
            assert [y.ordinal for y in results] == [0, 1]
            assert [numbers(y, fake) for y in results] == [NUMBERS, OTHERS]
        with pytest.raises(InputDevice, match="output `y` is on device cuda:1"):
            first(NUMBERS, out=(Interface(there), bytearray(24)))
    del here, there, results
    assert fake.live() == {}
    fake.check()


def test_a_forked_child_gets_an_error(program):
    program(NUMBERS)
    child = os.fork()
    if child == 0:
        try:
            program(NUMBERS)
        except DeviceForked:
            os._exit(3)
        finally:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert bytes(program(NUMBERS)[0]) == NUMBERS


def test_a_lost_device_is_said_at_every_call(program, cuda):
    cuda.fail("cuGraphLaunch", 700)
    for _ in range(3):
        with pytest.raises(DeviceLost, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            program(NUMBERS)


def test_no_memory_for_outputs(tmp_path, monkeypatch):
    fake = install(monkeypatch, FakeCuda(total_bytes=2048))
    fake.kernels["copy"] = device_bundle.copy
    with load(device_bundle.write(tmp_path / "bundle")) as program:
        given, kept = Lender(DeviceBlock(NUMBERS)), []
        with pytest.raises(Exception, match="no device memory for an output") as caught:
            kept.extend(program(given) for _ in range(100))
        assert caught.value.code == "device-memory-full"
        kept.clear()
        assert numbers(program(given)[0], fake) == NUMBERS
    fake.check()
