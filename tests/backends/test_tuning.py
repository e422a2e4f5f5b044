"""A native function among the candidates of a device's kernel: called, compared, refused."""

from __future__ import annotations

import ctypes
import hashlib
import math
import struct

import pytest

from aotc.aot.ir.native import NativeCall
from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Param, Scratch
from aotc.aot.native.library import tie
from aotc.aot.native.lowering import FORM, TRITON_FORM
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.cuda import measure as cuda
from aotc.aot.targets.families import find_target
from aotc.aot.tasks.task import Devices, Here
from aotc.aot.tune.job import Job, Operand, Option
from aotc.aot.tune.measuring import Measurer
from aotc.runtime.backends.library import open_file
from aotc.runtime.bundle.native_plan import SYMBOL
from tests.tune.fake_device import FakeDevice

COUNT = 1024
NBYTES = 4 * COUNT


class HostDevice(FakeDevice):
    """A fake device whose memory is this process's own, so that a library may write to it."""

    ordinal = 0

    def allocate(self, nbytes, purpose=""):
        block = bytearray(max(nbytes, 1))
        address = ctypes.addressof(ctypes.c_char.from_buffer(block))
        self.memory_of[address] = block
        return address


def doubled(device, addresses):
    """The Triton kernel: out = 2 · x."""
    (source, start), (to, at) = device.place(addresses[0]), device.place(addresses[1])
    x = struct.unpack_from(f"<{COUNT}f", source, start)
    struct.pack_into(f"<{COUNT}f", to, at, *(2 * each for each in x))


@pytest.fixture
def measured(compile_library, monkeypatch):
    """Microseconds of (function, kernel) where the function multiplies by a factor."""
    path = compile_library("on_device.c", "on_device")
    tie(open_file(str(path)))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()

    def measure(factor, order=(FORM, TRITON_FORM)):
        device = HostDevice({b"kernel": (doubled, 5.0)})
        monkeypatch.setattr(cuda, "device_of", lambda ordinal: device)
        tensors = ((1, "f32", (COUNT,), True), (0, "f32", (COUNT,), False))
        scalars = (("real", float(factor).hex()),)
        call = NativeCall("on_device", "scaled", "0.0.1", sha256, tensors, scalars, NBYTES)
        options = {
            FORM: Option(
                Candidate((), (1, 1, 1), FORM, (Scratch("workspace", "*i8", NBYTES),)),
                KernelBinary(SYMBOL, b"", 0),
            ),
            TRITON_FORM: Option(
                Candidate((), (1, 1, 1), TRITON_FORM), KernelBinary("kernel", b"kernel", 0, 128)
            ),
        }
        forms = (Form(FORM, str(call), SYMBOL), Form(TRITON_FORM, "", "kernel"))
        params = (Param("x", "*fp32"), Param("out", "*fp32"))
        chosen = [options[each] for each in order]
        spec = KernelSpec("scaled", forms, params, [each.candidate for each in chosen], 0, 0)
        job = Job(spec, (Operand(NBYTES), Operand(NBYTES, "stored")))
        measurer = Measurer(find_target("cuda:sm_90"), {}, Devices("", Here()))
        ((*_, times_us),) = measurer.measure_each(iter([(job, chosen)]), lambda job, text: None)
        assert device.memory_of == {}
        return dict(zip(order, times_us, strict=True))

    return measure


@pytest.mark.parametrize("order", [(FORM, TRITON_FORM), (TRITON_FORM, FORM)])
def test_both_are_measured(measured, order):
    times_us = measured(2.0, order)
    assert times_us[TRITON_FORM] == pytest.approx(5.0)
    assert times_us[FORM] < math.inf


def test_a_function_with_other_numbers_is_refused(measured):
    times_us = measured(3.0, (TRITON_FORM, FORM))
    assert times_us[FORM] == math.inf
    assert times_us[TRITON_FORM] == pytest.approx(5.0)


def test_a_function_that_fails_is_refused(measured):
    times_us = measured(-1.0)
    assert times_us[FORM] == math.inf
    assert times_us[TRITON_FORM] == pytest.approx(5.0)
