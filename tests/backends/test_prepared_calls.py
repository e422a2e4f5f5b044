"""Calls after the first: few looks at each array, and none is taken that must not be."""

from __future__ import annotations

import subprocess
import sys

import numpy
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from aotc import runtime
from aotc.runtime.arrays import numpy_fields, torch_guard
from aotc.runtime.backends import backend as backends
from aotc.runtime.backends import errors, prepared
from aotc.runtime.drivers.cuda.errors import StreamForeign
from aotc.runtime.errors import (
    InputDevice,
    InputDtype,
    InputGradient,
    InputStrided,
    InputUnreadable,
    OutputUnusable,
)


@pytest.fixture
def backend(example):
    return runtime.get_backend(example("custom_add"))


@pytest.fixture
def add(backend, monkeypatch):
    """The function after two calls on six numbers of either kind."""
    a, x = numpy.ones(6, "f4"), torch.ones(6)
    for _ in range(2):
        backend.add(a, a, 6, out=numpy.empty(6, "f4"))
        backend.add(x, x.clone(), 6, out=torch.empty(6))
    return backend.add


@pytest.fixture
def never_slow(monkeypatch):
    """No array is looked at in the slow way."""

    def refuse(*_):
        raise AssertionError("an array was looked at anew")

    monkeypatch.setattr(backends, "view_of", refuse)


@pytest.fixture(params=["guard", "no guard", "no fields"])
def way(request, monkeypatch):
    """With all that this torch and this numpy have, and without."""
    if request.param == "no guard":
        monkeypatch.setattr(torch_guard, "_is_trusted", [False])
    if request.param == "no fields":
        monkeypatch.setattr(prepared, "numpy_fields", lambda: numpy_fields.NONE)


FIXED = numpy.ones(6, "f4")
FIXED.flags.writeable = False
TAKEN = {
    "numpy": lambda: (numpy.ones(6, "f4"), numpy.ones(6, "f4"), numpy.empty(6, "f4")),
    "torch": lambda: (torch.ones(6), torch.ones(6), torch.empty(6)),
    "one twice": lambda: (*[torch.ones(6)] * 2, torch.empty(6)),
    "mixed": lambda: (numpy.ones(6, "f4"), torch.ones(6), numpy.empty(6, "f4")),
    "mixed, torch first": lambda: (numpy.ones(6, "f4"), torch.ones(6), torch.empty(6)),
    "read-only inputs": lambda: (FIXED, FIXED, numpy.empty(6, "f4")),
    "parameters": lambda: (
        torch.nn.Parameter(torch.ones(6), requires_grad=False), torch.ones(6), torch.empty(6)
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", TAKEN)
def test_taken_without_another_look(add, way, never_slow, kind):
    a, b, out = TAKEN[kind]()
    for _ in range(3):
        out[:] = 0
        add(a, b, 6, out=out)
        assert (out == 2).all()


class Named(torch.Tensor):
    """A subclass, which may mean anything by its methods."""


REFUSED = {
    "dtype": (lambda x: x.int(), InputDtype),
    "gaps": (lambda x: torch.ones(12)[::2], InputStrided),
    "gradient": (lambda x: x.requires_grad_(), InputGradient),
    "device": (lambda x: x.to("meta"), InputDevice),
    "sparse": (lambda x: x.to_sparse(), InputUnreadable),
    "lazy negative": (lambda x: torch._neg_view(x), InputUnreadable),
    "no memory": (lambda x: torch._efficientzerotensor(6), InputUnreadable),
    "fewer": (lambda x: torch.ones(5), errors.FunctionFailed),
    "numpy's dtype": (lambda x: numpy.ones(6, ">f4"), InputDtype),
    "numpy's gaps": (lambda x: numpy.ones(12, "f4")[::2], InputStrided),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_refused_after_good_calls(add, way, case, place):
    change, kind = REFUSED[case]
    given = [torch.ones(6), torch.ones(6), torch.ones(6)]
    given[place] = change(given[place])
    with pytest.raises(kind):
        add(given[0], given[1], 6, out=given[2])
    out = torch.empty(6)
    add(torch.ones(6), torch.ones(6), 6, out=out)
    assert (out == 2).all()


def test_gradients_are_no_matter_where_none_are_taken(add, way):
    with torch.no_grad():
        out = torch.empty(6)
        for _ in range(2):
            add(torch.ones(6, requires_grad=True), torch.ones(6), 6, out=out)
            assert (out == 2).all()
    with pytest.raises(InputGradient):
        add(torch.ones(6, requires_grad=True), torch.ones(6), 6, out=out)


def test_read_only_outputs(add, way):
    with pytest.raises(OutputUnusable, match="is read-only"):
        add(FIXED, FIXED, 6, out=FIXED)
    assert (FIXED == 1).all()


def test_subclasses_go_by_dlpack(add, way):
    out = torch.empty(6)
    add(torch.ones(6).as_subclass(Named), numpy.ones(6, "f4").view(numpy.ndarray), 6, out=out)
    assert (out == 2).all()


def test_transposed_of_one_shape(backend, way):
    square = torch.arange(9.0).reshape(3, 3)
    out = torch.empty(3, 3)
    for _ in range(2):
        backend.add(square, square.clone(), 9, out=out)
    with pytest.raises(InputStrided):
        backend.add(square.t(), square, 9, out=out)


def test_fields_are_the_arrays_own():
    kind, data, flags = numpy_fields.numpy_fields()
    assert kind is numpy.ndarray
    rows = numpy.arange(60, dtype="i2").reshape(3, 4, 5)
    for array in (rows, rows.T, rows[1], rows[:, 1], rows[:, :, ::2], rows[:0], FIXED, FIXED[2:3]):
        at = id(array) >> 3
        assert data[at] == array.ctypes.data
        assert bool(flags[at] & numpy_fields.CONTIGUOUS) == array.flags.c_contiguous
        assert bool(flags[at] & numpy_fields.WRITABLE) == array.flags.writeable
    with pytest.raises(TypeError):
        data[0] = 1  # nothing is ever written through it


def test_fields_that_are_not_as_expected_are_not_used(monkeypatch):
    monkeypatch.setattr(numpy_fields, "_found", [])
    monkeypatch.setattr(numpy_fields, "FLAGS_OFFSET", 40)
    assert numpy_fields.numpy_fields() == numpy_fields.NONE


def test_a_torch_without_a_guard_that_answers(monkeypatch):
    tensors = torch.ones(2), torch.ones(2)
    assert torch_guard.guard_of(tensors)(*tensors)
    for guard in (None, lambda *tensors, **sizes: None):
        monkeypatch.setattr(torch_guard, "_is_trusted", [])
        monkeypatch.setattr(torch._C._dynamo.guards, "TensorGuards", guard)
        assert torch_guard.guard_of(tensors) is None


@pytest.mark.parametrize(
    "mode",
    [
        torch.inference_mode,
        torch.no_grad,
        lambda: torch.device("meta"),
        lambda: torch.autocast("cpu"),
        FakeTensorMode,
    ],
)
def test_the_guard_is_tried_out_alike_in_every_mode(monkeypatch, mode):
    monkeypatch.setattr(torch_guard, "_is_trusted", [])
    tensors = torch.ones(2), torch.ones(2)
    with mode():
        torch_guard.guard_of(tensors)
    assert torch_guard.guard_of(tensors)(*tensors)


def test_the_guard_is_tried_out_inside_a_mode_that_watches_each_op(monkeypatch):
    monkeypatch.setattr(torch_guard, "_is_trusted", [])
    tensors = torch.ones(2), torch.ones(2)

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            torch_guard.guard_of(tensors)
            return op(*args, **(kwargs or {}))

    with Watched():
        torch.ones(3)
    assert torch_guard.guard_of(tensors)(*tensors)


def test_neither_numpy_nor_torch_is_imported(example):
    code = (
        "import sys\nfrom array import array\nfrom aotc import runtime\n"
        f"add = runtime.get_backend({str(example('custom_add'))!r}).add\n"
        "out = array('d', bytes(16))\n"
        "for _ in range(2): add(array('d', [1, 2]), array('d', [3, 4]), 2, out=out)\n"
        "assert list(out) == [4, 6] and not {'numpy', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_function_stands_as_a_method(backend):
    assert backend.add is backend.add
    assert "custom_add::add" in repr(backend.add)
    assert backend["add"].pointer == backend.get_function_ptr("add")
    with pytest.raises(errors.FunctionUnknown):
        backend.subtract  # noqa: B018


@pytest.fixture
def on_device(compile_library, monkeypatch):
    """A function of a device, and the looks at arrays; torch's tensors here stand for a device's.

    `current` is torch's stream by the device's number.
    """
    place = runtime.get_backend(compile_library("streams.c", "streams")).place
    looks, current, view_of = [], {0: 7, 1: 8}, backends.view_of

    def seen(slot, label, value, stream):
        view = view_of(slot, label, value, stream)
        view.device = ("cuda", value.ordinal) if hasattr(value, "ordinal") else ("cuda", 0)
        looks.append(label)
        return view

    monkeypatch.setattr(backends, "view_of", seen)
    monkeypatch.setattr(backends.streams, "current", current.get)
    return place, looks, current


def test_tensors_of_a_device_are_taken_by_one_look(on_device):
    place, looks, current = on_device
    out = torch.zeros(1, dtype=torch.int64)
    for _ in range(3):
        place(out=out)
        assert out.item() == 7
    place(out=out, stream=9)
    assert out.item() == 9
    assert len(looks) == 2  # one a stream
    for stream, expected in ((9, 9), (None, 7), (9, 9)):
        place(out=out, stream=stream)
        assert out.item() == expected
    current[0] = 12
    place(out=out)
    assert out.item() == 12
    assert len(looks) == 3


def test_streams_of_another_device(on_device):
    class Stream:
        cuda_stream, device_index = 5, 1

    class Elsewhere(torch.Tensor):
        ordinal = 1

    place, _, _ = on_device
    out = torch.zeros(1, dtype=torch.int64)
    place(out=out)
    there = torch.zeros(1, dtype=torch.int64).as_subclass(Elsewhere)
    place(out=there, stream=Stream())
    assert there.tolist() == [5]
    with pytest.raises(StreamForeign):
        place(out=out, stream=Stream())


def test_host_memory_is_not_taken_for_a_devices(on_device):
    place, looks, _ = on_device
    for _ in range(2):
        place(out=torch.zeros(1, dtype=torch.int64))
    place(out=numpy.zeros(1, "i8"))
    assert len(looks) == 2  # numpy's array was looked at
