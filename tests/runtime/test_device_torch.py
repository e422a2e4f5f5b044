"""torch tensors on a fake device: streams, copies, what torch's allocator learns, refusals."""

from __future__ import annotations

import struct
import sys

import device_bundle
import pytest
import torch_double
from device_bundle import SHAPE, WEIGHT, DeviceBlock
from torch_double import Tensor

from aotc.runtime import load
from aotc.runtime.drivers.cuda import streams
from aotc.runtime.errors import (
    InputDevice,
    InputDtype,
    InputGradient,
    InputMisaligned,
    InputNotContiguous,
    InputShape,
    InputUnreadable,
    OutputUnusable,
)

NUMBERS = struct.pack("<24f", *range(24))


@pytest.fixture
def torch(monkeypatch):
    """The double in place of torch, on its default stream, nothing noted yet."""
    double = torch_double.module()
    monkeypatch.setitem(sys.modules, "torch", double)
    monkeypatch.setattr(streams, "_torch_current", [])
    monkeypatch.setattr(torch_double, "current", [0])
    torch_double.calls.clear()
    return double


@pytest.fixture
def program(tmp_path, cuda, torch):
    with load(device_bundle.write(tmp_path / "bundle")) as opened:
        yield opened


@pytest.fixture
def side(cuda):
    """A stream of torch's that is not the default one; its handle."""
    keep = DeviceBlock(b"x")
    yield keep.device.stream().handle
    del keep  # and with it the stream


def tensor(data: bytes = NUMBERS, offset: int = 0, **named) -> Tensor:
    return Tensor(DeviceBlock(data, offset=offset), SHAPE, **named)


def read(found: Tensor, cuda) -> bytes:
    cuda.settle()
    return found.block.read()


def launched_on(cuda) -> list[int]:
    """The streams that hold work which was put off."""
    return [handle for handle, each in cuda.streams.items() if each.work]


def test_outputs_are_tensors_on_the_device(program, cuda):
    y, w = program(tensor())
    assert (type(y), y.shape, w.shape) == (Tensor, SHAPE, (6,))
    assert (read(y, cuda), read(w, cuda)) == (NUMBERS, WEIGHT)


def test_calls_follow_the_current_stream_of_torch(program, cuda, side):
    x, kept = tensor(), []  # freeing memory would wait for the work
    for call in (lambda: program(x), program.bind(x)):
        torch_double.current.append(side)
        kept.append(call())
        assert launched_on(cuda) == [side]
        torch_double.current.pop()
        cuda.settle()
        kept.append(call())
        assert launched_on(cuda) == []  # the default stream has no handle of its own


def test_a_named_stream_is_recorded_by_the_allocator(program, cuda, side, torch):
    x, out = tensor(), (tensor(), Tensor(DeviceBlock(WEIGHT), (6,)))
    first = program(x)
    cuda.settle()
    y, w = program(x, stream=side)
    assert launched_on(cuda) == [side]
    assert x.recorded == y.recorded == w.recorded == [side]
    # fresh outputs belong to the stream that writes them
    assert torch_double.calls[-2:] == [("empty", side), ("empty", side)]
    program(x, out=out, stream=side)
    assert out[0].recorded == [side]
    cuda.settle()
    program(x, out=out)
    assert first[0].recorded == []
    assert out[0].recorded == [side]
    assert launched_on(cuda) == []


def test_copies_are_made_on_the_stream_of_the_call(program, cuda, side):
    for given in (tensor(strides=(1, 4)), tensor(offset=4), tensor(negative=True)):
        torch_double.calls.clear()
        y, _ = program(given)
        assert ("clone", 0) in torch_double.calls
        assert read(y, cuda) == NUMBERS
        program(given, stream=side)
        assert ("clone", side) in torch_double.calls
        cuda.settle()


def test_bind_refuses_copies(program):
    for given in (tensor(strides=(1, 4)), tensor(offset=4), tensor(negative=True)):
        with pytest.raises(InputNotContiguous, match="bind"):
            program.bind(given)


def test_gradients(program, torch, cuda):
    given = tensor(requires_grad=True)
    with pytest.raises(InputGradient, match="`x`"):
        program(given)
    torch.is_grad_enabled = lambda: False
    assert read(program(given)[0], cuda) == NUMBERS


def test_refusals(program):
    odd = tensor()
    odd.dtype = "float64"
    sparse = tensor(strides=(0, 0))
    sparse.layout = "sparse_coo"
    cases = [
        (tensor(device=1), InputDevice, "is on device cuda:1, expected cuda:0"),
        (tensor(device=None), InputDevice, "is on device meta, expected cuda:0"),
        (odd, InputDtype, "f64, expected f32"),
        (sparse, InputUnreadable, "sparse_coo"),
        (Tensor(DeviceBlock(NUMBERS), (6, 4)), InputShape, r"\[6, 4\]"),
    ]
    for value, kind, text in cases:
        for _ in range(2):
            with pytest.raises(kind, match=text):
                program(value)


def test_out_refusals(program):
    given, w = tensor(), Tensor(DeviceBlock(WEIGHT), (6,))
    cases = [
        (tensor(offset=8), InputMisaligned, "output `y`"),
        (tensor(strides=(1, 4)), OutputUnusable, "not contiguous"),
        (tensor(requires_grad=True), OutputUnusable, "gradient"),
        (tensor(device=1), InputDevice, "output `y` is on device cuda:1"),
        (given, OutputUnusable, "in the memory of input `x`"),
    ]
    for value, kind, text in cases:
        with pytest.raises(kind, match=text):
            program(given, out=(value, w))


def test_mixed_with_host_arrays(program, cuda):
    out = (bytearray(96), bytearray(24))
    program(tensor(), out=out)
    assert (bytes(out[0]), bytes(out[1])) == (NUMBERS, WEIGHT)
    y, w = tensor(bytes(96)), Tensor(DeviceBlock(bytes(24)), (6,))
    program(NUMBERS, out=(y, w))
    assert (read(y, cuda), read(w, cuda)) == (NUMBERS, WEIGHT)
