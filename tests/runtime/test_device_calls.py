"""Calls of programs on a device, over a fake CUDA driver: arrays, outputs, streams, bound calls."""

from __future__ import annotations

import gc
import struct

import device_bundle
import pytest
from device_bundle import NUMBERS, OTHERS, SHAPE, WEIGHT, DeviceBlock, Interface, Lender, numbers

from aotc.runtime import load
from aotc.runtime.arrays.dlpack import borrow
from aotc.runtime.drivers.cuda.device_array import DeviceArray
from aotc.runtime.errors import InputNotContiguous, InputUnreadable, OutputCount
from aotc.runtime.verify import verify


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
    assert given.borrowed == 1  # kept until the work is known to be done
    program.session()
    program.close()
    assert given.borrowed == 0


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
    borrowed = borrow(y, 1)
    assert (borrowed.address, borrowed.shape, borrowed.device) == (row["data"][0], SHAPE, "cuda")
    with pytest.raises(BufferError, match="handed over"):
        y.__dlpack__()
    del y
    assert cuda.live()["memory"] == memory  # it belongs to the borrower now
    del borrowed
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
    borrowed = borrow(y, consumer.handle)
    copy = DeviceBlock(bytes(96))
    with copy.device.current():
        copy.device.call(
            "cuMemcpyDtoDAsync_v2", copy.address, borrowed.address, 96, consumer.handle
        )
    consumer.synchronize()
    assert copy.read() == NUMBERS


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


def test_bound_calls_among_other_calls_of_their_session(program, cuda):
    block, given = DeviceBlock(NUMBERS), bytearray(NUMBERS)
    with program.session() as session:
        on_device, on_host = session.bind(Lender(block)), session.bind(given)
        for _ in range(2):
            for other in (Lender(DeviceBlock(OTHERS)), bytearray(OTHERS)):
                session(other)
                y, w = on_device()
                assert (numbers(y, cuda), numbers(w, cuda)) == (NUMBERS, WEIGHT)
                session(other)
                y, w = on_host()
                assert (bytes(y), bytes(w)) == (NUMBERS, WEIGHT)


def test_empty_arrays(tmp_path, cuda):
    with load(device_bundle.write(tmp_path / "empty", shape=(0, 3))) as program:
        y, w = program(b"")
        assert (bytes(y), bytes(w)) == (b"", WEIGHT)
        y, w = program(Interface(DeviceBlock(b"x"), shape=(0, 3), data=(0, False)))
        assert numbers(w, cuda) == WEIGHT


def test_verify_compares_on_the_device(tmp_path, cuda):
    path = device_bundle.write(tmp_path / "bundle")
    findings = {each.subject: each.status for each in verify(path) if each.layer != "integrity"}
    assert findings == {"this machine": "ok", "y": "ok", "w": "ok"}
