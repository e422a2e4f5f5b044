"""Calls of programs on a device, over a fake CUDA driver: arrays, outputs, streams, lifetimes."""

from __future__ import annotations

import array
import gc
import os
import struct
import threading

import device_bundle
import pytest
from device_bundle import SHAPE, WEIGHT, DeviceBlock, Interface, Lender
from fake_cuda import FakeCuda, install

from aotc.runtime import device_session, load
from aotc.runtime.device_array import DeviceArray
from aotc.runtime.device_errors import InputMisaligned, InputStrided, StreamUnreadable
from aotc.runtime.dlpack import borrow
from aotc.runtime.drivers.cuda_errors import CudaError, DeviceForked, DeviceLost, StreamForeign
from aotc.runtime.errors import (
    InputCount,
    InputDevice,
    InputDtype,
    InputMissing,
    InputNotContiguous,
    InputShape,
    InputUnknown,
    InputUnreadable,
    OutputCount,
    OutputUnusable,
    ProgramClosed,
)
from aotc.runtime.verify import verify

NUMBERS = struct.pack("<24f", *range(24))
OTHERS = struct.pack("<24f", *range(100, 124))


@pytest.fixture
def program(tmp_path, cuda):
    opened = load(device_bundle.write(tmp_path / "bundle"))
    yield opened
    opened.close()


def numbers(of: DeviceArray, cuda) -> bytes:
    """The bytes of an array of ours once all work is done."""
    cuda.settle()
    nbytes = 4
    for extent in of.shape:
        nbytes *= extent
    return bytes(cuda.memory(of.address, nbytes))


def test_host_arrays_are_copied_both_ways(program):
    for data in (NUMBERS, OTHERS):
        y, w = program(data)
        assert (bytes(y), y.shape, bytes(w)) == (data, SHAPE, WEIGHT)


def test_host_arrays_of_other_layouts(program):
    numpy = pytest.importorskip("numpy")
    base = numpy.frombuffer(NUMBERS, "f4").reshape(SHAPE)
    for given in (base.T.copy().T, numpy.repeat(base, 2, axis=1)[:, ::2], base[::-1, ::-1]):
        assert not given.flags.c_contiguous
        y, _ = program(given)
        assert type(y) is numpy.ndarray
        assert (y == given).all()


def test_outputs_are_new_memory(program, cuda):
    first, _ = program(NUMBERS)
    x = Lender(DeviceBlock(NUMBERS))
    second, _ = program(x)
    third, _ = program(Lender(DeviceBlock(OTHERS)))
    assert second.address != third.address
    assert (numbers(second, cuda), numbers(third, cuda)) == (NUMBERS, OTHERS)
    assert bytes(first) == NUMBERS


def test_dlpack_on_the_device(program, cuda):
    given = Lender(DeviceBlock(NUMBERS))
    y, w = program(given)
    assert type(y) is type(w) is DeviceArray
    assert numbers(y, cuda) == NUMBERS
    assert given.streams == [1]  # the legacy default stream by its name there
    assert given.lent == 1  # kept until the work is known to be done
    program.session()
    program.close()
    assert given.lent == 0


def test_many_loans_are_given_back(program):
    given = [Lender(DeviceBlock(NUMBERS)) for _ in range(3)]
    for call in range(900):
        program(given[call % 3])
    assert sum(each.lent for each in given) < 300


def test_large_loans_are_given_back_without_waiting_for_the_last_call(program, cuda, monkeypatch):
    """Only the calls of the older half are waited for; the newer ones may still run."""
    monkeypatch.setattr(device_session, "LENT_BYTES_LIMIT", 96)
    given = [Lender(DeviceBlock(NUMBERS)) for _ in range(12)]
    outs = [DeviceBlock(bytes(96)) for _ in given]
    weight = Interface(DeviceBlock(bytes(24)), shape=(6,))
    for lender, out in zip(given, outs, strict=True):
        program(lender, out=(Interface(out), weight))
    assert sum(each.lent for each in given) < 6
    assert [out.read() == NUMBERS for out in outs[:6]] == [True] * 6
    assert outs[-1].read() == bytes(96)
    assert cuda.calls["cuCtxSynchronize"] == 0


def test_dlpack_with_a_stream(program, cuda):
    block = DeviceBlock(NUMBERS)
    stream = block.device.stream()
    given = Lender(block)
    y, _ = program(given, stream=stream.handle)
    assert given.streams == [stream.handle]
    assert y.stream == stream.handle
    stream.synchronize()
    assert bytes(cuda.memory(y.address, 96)) == NUMBERS


def test_cuda_array_interface(program, cuda):
    y, _ = program(Interface(DeviceBlock(NUMBERS)))
    assert type(y) is DeviceArray
    assert numbers(y, cuda) == NUMBERS
    strides = (24, 4)
    y, _ = program(Interface(DeviceBlock(OTHERS), strides=strides, version=2))
    assert numbers(y, cuda) == OTHERS


def test_cuda_array_interface_waits_for_its_stream(program, cuda):
    """The array is filled by work on a stream of its own that nobody has waited for."""
    block, late = DeviceBlock(bytes(96)), DeviceBlock(NUMBERS)
    stream = block.device.stream()
    with block.device.current():
        block.device.call("cuMemcpyDtoDAsync_v2", block.address, late.address, 96, stream.handle)
    y, _ = program(Interface(block, stream=stream.handle))
    assert numbers(y, cuda) == NUMBERS


def test_our_own_arrays_from_program_to_program(program, cuda, tmp_path):
    with load(device_bundle.write(tmp_path / "other")) as other:
        y, _ = program(Lender(DeviceBlock(NUMBERS)))
        keep = DeviceBlock(b"x")
        again, _ = other(y, stream=keep.device.stream().handle)
        assert numbers(again, cuda) == NUMBERS
        out = (DeviceArray("f32", SHAPE, program.memory, 0), bytearray(24))
        assert program(again, out=out) is out
        assert (numbers(out[0], cuda), bytes(out[1])) == (NUMBERS, WEIGHT)
        borrow(y, 1)
        with pytest.raises(InputUnreadable, match="handed over before"):
            program(y)


def test_exported_arrays(program, cuda):
    y, w = program(Lender(DeviceBlock(NUMBERS)))
    assert y.__dlpack_device__() == (2, 0)
    row = y.__cuda_array_interface__
    assert row == {
        "shape": SHAPE,
        "typestr": "<f4",
        "data": (y.address, False),
        "strides": None,
        "version": 3,
        "stream": 1,
    }
    memory = cuda.live()["memory"]
    with pytest.raises(BufferError, match="stream 0"):
        y.__dlpack__(stream=0)
    with pytest.raises(BufferError, match="as it is"):
        y.__dlpack__(copy=True)
    lent = borrow(y, 1)
    assert (lent.address, lent.shape, lent.device) == (row["data"][0], SHAPE, "cuda")
    with pytest.raises(BufferError, match="handed over"):
        y.__dlpack__()
    del y
    assert cuda.live()["memory"] == memory  # it belongs to the loan now
    del lent
    assert cuda.live()["memory"] == memory - 1
    w.__dlpack__()  # nobody takes this capsule
    gc.collect()
    assert cuda.live()["memory"] == memory - 2


def test_bf16_leaves_by_dlpack_only(tmp_path, cuda):
    with load(device_bundle.write(tmp_path / "bf16", dtype="bf16")) as program:
        y, _ = program(Lender(DeviceBlock(NUMBERS[:48]), "bf16"))
        assert not hasattr(y, "__cuda_array_interface__")
        assert borrow(y, -1).dtype == "bf16"


def test_consumers_of_our_arrays_wait_for_the_work(program, cuda):
    given = Lender(DeviceBlock(NUMBERS))
    consumer = given.block.device.stream()
    y, _ = program(given)
    lent = borrow(y, consumer.handle)
    copy = DeviceBlock(bytes(96))
    with copy.device.current():
        copy.device.call("cuMemcpyDtoDAsync_v2", copy.address, lent.address, 96, consumer.handle)
    consumer.synchronize()
    assert copy.read() == NUMBERS


def test_outputs_outlive_their_program(tmp_path, cuda):
    program = load(device_bundle.write(tmp_path / "bundle"))
    y, w = program(Lender(DeviceBlock(NUMBERS)))
    program.close()
    del program
    gc.collect()
    assert numbers(y, cuda) == NUMBERS
    del y, w
    gc.collect()
    assert cuda.live() == {}


def test_out_on_the_device_and_the_host(program, cuda):
    block, host = DeviceBlock(bytes(96)), bytearray(24)
    for out in ((Lender(block), host), (Interface(block), host)):
        for data in (NUMBERS, OTHERS):
            assert program(Lender(DeviceBlock(data)), out=out) is out
            assert (block.read(), bytes(host)) == (data, WEIGHT)


def test_mixed_host_and_device(program, cuda):
    """A host array after a device array of the same place, and back, read their own numbers."""
    on_device = Lender(DeviceBlock(NUMBERS))
    for _ in range(3):
        y, _ = program(on_device)
        assert numbers(y, cuda) == NUMBERS
        assert bytes(program(OTHERS)[0]) == OTHERS


def test_a_call_that_fails_leaves_no_addresses_behind(program, cuda):
    given, out = Lender(DeviceBlock(NUMBERS)), (Lender(DeviceBlock(bytes(96))), bytearray(24))
    program(given, out=out)
    with pytest.raises(OutputCount):
        program(OTHERS, out=(bytearray(96),))
    program(given, out=out)
    cuda.settle()
    assert out[0].block.read() == NUMBERS


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


def test_streams_of_load_session_and_call(tmp_path, cuda):
    keep = [DeviceBlock(b"x") for _ in range(3)]
    handles = [each.device.stream().handle for each in keep]
    given = Lender(DeviceBlock(NUMBERS))
    with load(device_bundle.write(tmp_path / "bundle"), stream=handles[0]) as program:
        session = program.session(stream=handles[1])
        calls = [program(given), session(given), session(given, stream=handles[2])]
        assert [y.stream for y, _ in calls] == handles
        assert all(numbers(y, cuda) == NUMBERS for y, _ in calls)


def test_a_session_that_moves_from_stream_to_stream(program, cuda):
    """Each call waits for the one before it, whatever the order in which streams are settled."""
    keep = DeviceBlock(b"x")
    handles = [keep.device.stream().handle for _ in range(3)]
    blocks = [DeviceBlock(struct.pack("<24f", *[call] * 24)) for call in range(9)]
    outs = [DeviceBlock(bytes(96)) for _ in blocks]
    for call, (block, out) in enumerate(zip(blocks, outs, strict=True)):
        program(Lender(block), out=(Lender(out), Lender(DeviceBlock(bytes(24)), shape=(6,))),
                stream=handles[call % 3])  # fmt: skip
    for stream in reversed(cuda.streams.values()):
        cuda._finish(stream)
    cuda.settle()
    assert [out.read() for out in outs] == [block.read() for block in blocks]


def test_bound_calls_on_the_device(program, cuda):
    block, out = DeviceBlock(bytes(96)), DeviceBlock(bytes(96))
    weight = DeviceBlock(bytes(24))
    bound = program.bind(Lender(block), out=(Lender(out), Lender(weight, shape=(6,))))
    for data in (NUMBERS, OTHERS):
        cuda.settle()
        cuda.memory(block.address, 96)[:] = data
        assert bound() is bound.outputs
        cuda.settle()
        assert (out.read(), weight.read()) == (data, WEIGHT)
    bound_patches = cuda.calls["cuGraphExecKernelNodeSetParams_v2"]
    for _ in range(5):
        bound()
    assert cuda.calls["cuGraphExecKernelNodeSetParams_v2"] == bound_patches


def test_bound_calls_on_host_arrays(program):
    given, out = bytearray(NUMBERS), (bytearray(96), bytearray(24))
    bound = program.bind(given, out=out)
    for data in (NUMBERS, OTHERS):
        given[:] = data
        bound()
        assert (bytes(out[0]), bytes(out[1])) == (data, WEIGHT)
    fresh = program.bind(given)
    assert bytes(fresh()[0]) == OTHERS
    numpy = pytest.importorskip("numpy")
    with pytest.raises(InputNotContiguous):
        program.bind(numpy.zeros((6, 4), "f4").T)


def test_empty_arrays(tmp_path, cuda):
    with load(device_bundle.write(tmp_path / "empty", shape=(0, 3))) as program:
        y, w = program(b"")
        assert (bytes(y), bytes(w)) == (b"", WEIGHT)
        y, w = program(Interface(DeviceBlock(b"x"), shape=(0, 3), data=(0, False)))
        assert numbers(w, cuda) == WEIGHT


def test_closing(program):
    session, bound = program.session(), program.bind(NUMBERS)
    program.close()
    calls = [(program, [NUMBERS]), (session, [NUMBERS]), (bound, []), (program.session, [])]
    for call, arguments in calls:
        with pytest.raises(ProgramClosed):
            call(*arguments)
    session.close()
    session.close()


def test_close_frees_everything_though_errors_are_kept(tmp_path, cuda):
    """The tracebacks of caught errors hold the frames of the calls that raised them."""
    program, kept = load(device_bundle.write(tmp_path / "bundle")), []
    for given in (NUMBERS[:-1], [1.0]):
        with pytest.raises(InputUnreadable) as caught:
            program(given)
        kept.append(caught.value)
    cuda.fail("cuGraphLaunch", 1)
    with pytest.raises(CudaError) as caught:
        program(NUMBERS)
    kept.append(caught.value)
    assert bytes(program(NUMBERS)[0]) == NUMBERS
    on_device = program(Interface(DeviceBlock(NUMBERS)))
    gc.disable()
    try:
        program.close()
        del on_device
        assert cuda.live() == {}
    finally:
        gc.enable()
    assert len(kept) == 3


def test_sessions_and_bound_calls_keep_the_weights_until_they_are_closed(tmp_path, cuda):
    program = load(device_bundle.write(tmp_path / "bundle"))
    session, bound = program.session(), program.bind(NUMBERS)
    program.close()
    for owner, left in ((session, 1), (bound, 0)):
        assert cuda.live()["contexts"] == 1
        with owner:
            pass
        owner.close()
        assert cuda.live().get("contexts", 0) == left
    assert cuda.live() == {}
    with pytest.raises(ProgramClosed):
        bound()
    assert bytes(bound.outputs[0]) == bytes(96)


def test_verify_leaves_nothing_behind(tmp_path, cuda, monkeypatch):
    path = device_bundle.write(tmp_path / "bundle")
    gc.disable()
    try:
        for is_separate in ("0", "1"):
            monkeypatch.setenv("AOTC_SEPARATE_BUFFERS", is_separate)
            assert all(each.status == "ok" for each in verify(path))
            assert cuda.live() == {}
    finally:
        gc.enable()


def test_close_while_work_is_pending(tmp_path, cuda):
    program = load(device_bundle.write(tmp_path / "bundle"))
    block, out = DeviceBlock(NUMBERS), DeviceBlock(bytes(96))
    program(Lender(block), out=(Lender(out), Lender(DeviceBlock(bytes(24)), shape=(6,))))
    assert out.read() == bytes(96)  # the fake puts work off
    program.close()
    del program
    gc.collect()
    assert out.read() == NUMBERS
    del block, out
    gc.collect()
    assert cuda.live() == {}


def test_close_while_others_call(tmp_path, cuda):
    path = device_bundle.write(tmp_path / "bundle")
    for _ in range(5):
        program = load(path)
        stopped: list[bool] = []

        def work(program=program, stopped=stopped) -> None:
            try:
                while bytes(program(NUMBERS)[0]) == NUMBERS:
                    pass
            except ProgramClosed:
                stopped.append(True)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        program.close()
        for thread in threads:
            thread.join()
        assert stopped == [True] * 3


def test_threads_share_a_program(program):
    wrong: list[int] = []

    def work(seed: int) -> None:
        caller = program.session() if seed % 2 else program
        for call in range(40):
            data = struct.pack("<24f", *range(seed * 100 + call, seed * 100 + call + 24))
            if bytes(caller(data)[0]) != data:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_program_has_one_session_for_all_threads(program, cuda):
    """Memory is taken at load: no call of a thread allocates an arena."""
    program(NUMBERS)
    before = cuda.live()["memory"]
    threads = [threading.Thread(target=lambda: program(NUMBERS)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cuda.live()["memory"] == before


def test_a_call_inside_a_call(program):
    """A producer that calls the program itself gets a session of its own, and no deadlock."""

    class Caller(Lender):
        def __dlpack__(self, **named):
            self.inner = bytes(program(OTHERS)[0])
            return super().__dlpack__(**named)

    given, out = Caller(DeviceBlock(NUMBERS)), bytearray(96)
    program(given, out=(out, bytearray(24)))
    assert (given.inner, bytes(out)) == (OTHERS, NUMBERS)


def test_a_forked_child_is_told(program):
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


def test_verify_compares_on_the_device(tmp_path, cuda):
    path = device_bundle.write(tmp_path / "bundle")
    findings = {each.subject: each.status for each in verify(path) if each.layer != "integrity"}
    assert findings == {"this machine": "ok", "y": "ok", "w": "ok"}


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
