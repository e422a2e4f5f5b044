"""Measuring on a device: cold weights, results checked, nothing left, a lost device survived."""

import math

import pytest

from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Param, Scratch, TensorMap
from aotc.aot.measure.program import Buffer, Program
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.cuda import measure as cuda
from aotc.aot.targets.cuda.measure import LAUNCHES_LIMIT, Bench, layout
from aotc.aot.targets.families import find_target
from aotc.aot.tasks.task import Devices, Here
from aotc.aot.tune.job import Job, Operand, Option
from aotc.aot.tune.measuring import Measurer
from aotc.runtime.drivers.cuda.errors import DeviceLost

from .fake_device import L2_BYTES, FakeDevice

TARGET = find_target("cuda:sm_90")
SIZE = 4096
WEIGHT, READ, STORED = (Buffer("fp32", SIZE, role) for role in ("weight", "read", "stored"))


def program(code, **fields):
    return Program("kernel", code, (2, 1, 1), 128, 0, **{"scratch_bytes": 0, **fields})


def copying(device, addresses):
    """Store what was read."""
    (source, start), (to, at) = device.place(addresses[0]), device.place(addresses[1])
    to[at : at + SIZE] = source[start : start + SIZE]


def wrong(device, addresses):
    copying(device, addresses)
    device.fill(addresses[1] + SIZE - 4, 0, 4)


def measured(kernels, *programs, buffers=(READ, STORED)):
    device = FakeDevice(kernels)
    with Bench(device, buffers, 5.0) as bench:
        found = bench.measure(programs)
    assert device.memory_of == {}
    return device, found


def test_the_time_is_that_of_one_launch():
    _, found = measured({b"a": (copying, 7.0), b"b": (copying, 5.0)}, program(b"a"), program(b"b"))
    assert [time_us for time_us, _ in found] == pytest.approx([7.0, 5.0])


def test_who_gives_other_numbers_is_refused():
    kernels = {b"a": (copying, 7.0), b"b": (wrong, 1.0), b"c": (copying, 6.0)}
    _, found = measured(kernels, *map(program, kernels))
    assert [reason for _, reason in found] == ["", "gives other numbers", ""]
    assert found[1][0] == math.inf


def test_what_is_not_written_is_noticed():
    kernels = {b"a": (copying, 7.0), b"b": (lambda device, addresses: None, 1.0)}
    _, found = measured(kernels, *map(program, kernels))
    assert found[1][1] == "gives other numbers"


def test_an_image_that_does_not_load_costs_only_itself():
    _, found = measured({b"a": (copying, 7.0)}, program(b"?"), program(b"a"))
    assert found[0][0] == math.inf
    assert "refuses the kernels" in found[0][1]
    assert found[1][0] == pytest.approx(7.0)


def test_a_lost_device_is_raised_and_memory_freed():
    device = FakeDevice({b"a": (None, 1.0)})
    with pytest.raises(DeviceLost), Bench(device, (READ, STORED), 5.0) as bench:
        bench.measure([program(b"a")])
    assert device.memory_of == {}


def test_scratch_follows_the_parameters_zeroed_where_asked():
    seen = {}

    def looking(device, addresses):
        copying(device, addresses)
        seen["count"] = len(addresses)
        block, start = device.place(addresses[3])
        seen["counters"] = bytes(block[start : start + 64])
        assert device.place(addresses[4])[0] is not None
        block[start] = 0

    own = program(b"a", scratch=((512, False), (64, True)), scratch_bytes=384)
    measured({b"a": (looking, 3.0)}, own)
    assert seen == {"count": 2 + 2 + 2, "counters": bytes(64)}


def test_weights_rotate_over_more_than_the_cache_and_small_reads_stay():
    big = Buffer("fp32", L2_BYTES // 2, "weight")
    device = FakeDevice({b"a": (lambda device, addresses: None, 2.0)})
    with Bench(device, (big, READ, STORED), 5.0) as bench:
        bench.measure([program(b"a")])
        weights = {addresses[0] for _, addresses in device.launched}
        reads = {addresses[1] for _, addresses in device.launched}
    assert len(weights) * big.nbytes > 2 * L2_BYTES
    assert len(reads) == 1


@pytest.mark.parametrize(
    ("buffers", "expected_us", "launches", "copies"),
    [
        ((WEIGHT, READ, STORED), 5.0, 20, [1, 1, 1]),
        ((Buffer("bf16", 50 << 20, "weight"), READ), 20.0, 20, [3, 1]),
        ((Buffer("bf16", 1 << 20, "weight"), READ), 5.0, 101, [101, 1]),
        ((Buffer("bf16", 64 << 20, "read"), Buffer("bf16", 64 << 20, "stored")), 40.0, 20, [2, 2]),
        ((Buffer("bf16", 1 << 20, "read"), STORED), 5000.0, 4, [1, 1]),
        ((Buffer("bf16", 3 << 30, "read"), Buffer("bf16", 3 << 30, "stored")), 2e3, 4, [1, 1]),
    ],
)
def test_layout(buffers, expected_us, launches, copies):
    assert layout(buffers, 50 << 20, expected_us) == (launches, copies)
    assert launches <= LAUNCHES_LIMIT


# The measuring process.

PARAMS = (Param("x", "*fp32"), Param("y", "*fp32"))
MAP = TensorMap("x_rows", 0, "fp32", 0, (32, 32), (32, 1), (32, 32))
CANDIDATES = tuple(
    Candidate(
        (("BLOCK", 1 << at),), (2, 1, 1), scratch=(Scratch("s", "*i32", 64, True),), maps=maps
    )
    for at, maps in enumerate(((), (MAP,), (MAP, MAP)))
)
SPEC = KernelSpec("copy", (Form("", "", "copy"),), PARAMS, CANDIDATES, 8192, 0)
JOB = Job(SPEC, (Operand(SIZE), Operand(SIZE, "stored")))


class FakeExecutor(Here):
    """Measures here; the device is new after one was lost."""

    def __init__(self, kernels):
        self.kernels, self.restarts, self.device = kernels, 0, FakeDevice(kernels)

    def measure(self, data):
        assert type(data) is bytes
        try:
            return cuda.measure(data)
        except DeviceLost:
            self.restarts += 1
            self.device = FakeDevice(self.kernels)
            raise


def options(*codes, spilled=()):
    return [
        Option(candidate, KernelBinary("copy", code, 0, 128, spill_bytes=(code in spilled) * 999))
        for candidate, code in zip(CANDIDATES, codes, strict=True)
    ]


@pytest.fixture
def measurer(monkeypatch):
    def make(kernels):
        executor = FakeExecutor(kernels)
        monkeypatch.setattr(cuda, "device_of", lambda ordinal: executor.device)
        monkeypatch.setattr("aotc.aot.tasks.task.resolve", lambda name: executor.measure)
        return Measurer(TARGET, {}, Devices("", executor)), executor

    return make


def times(own, made, said=lambda job, text: None):
    ((_, _, times_us),) = own.measure_each(iter([(JOB, made)]), said)
    return times_us


def test_times_come_back_in_the_order_of_the_options(measurer):
    own, workers = measurer({b"a": (copying, 9.0), b"b": (copying, 5.0), b"c": (copying, 7.0)})
    said = []
    made = options(b"a", b"b", b"c")
    assert times(own, made, lambda job, text: said.append(text)) == pytest.approx([9, 5, 7])
    assert "BLOCK=2" in said[-1]
    counts = {len(values) for _, values in workers.device.launched}
    assert counts == {2 + 1 + 2, 2 + 1 + 5 + 2, 2 + 1 + 10 + 2}  # a map, its shape and strides
    assert workers.restarts == 0


def test_who_breaks_the_device_is_found_and_the_others_are_measured(measurer):
    own, workers = measurer({b"a": (copying, 9.0), b"b": (None, 5.0), b"c": (copying, 7.0)})
    times_us = times(own, options(b"a", b"b", b"c"))
    assert times_us == pytest.approx([9.0, math.inf, 7.0])
    assert workers.restarts == 2


def test_who_spills_is_not_tried_unless_all_do(measurer):
    kernels = {b"a": (copying, 9.0), b"b": (copying, 5.0), b"c": (copying, 7.0)}
    own, _ = measurer(kernels)
    some = options(b"a", b"b", b"c", spilled=(b"b",))
    assert times(own, some) == pytest.approx([9.0, math.inf, 7.0])
    every = options(b"a", b"b", b"c", spilled=tuple(kernels))
    assert times(own, every) == pytest.approx([9.0, 5.0, 7.0])
