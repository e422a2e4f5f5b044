"""Candidates are tried in the whole call: what a kernel costs there, and not by itself, decides."""

from dataclasses import replace

import pytest

from aotc.aot.compile import _said
from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Param
from aotc.aot.measure.call import CallMeasurement, Kernel, Launch
from aotc.aot.measure.program import Buffer, Program
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.cuda.measure_call import CallBench
from aotc.aot.targets.families import find_target
from aotc.aot.tasks.errors import DeviceDiffers
from aotc.aot.tasks.task import Devices, Executor, Outcome
from aotc.aot.traits import FOLLOWED_EARLY
from aotc.aot.tune import tune as choose
from aotc.aot.tune import whole_call
from aotc.aot.tune.compiling import Counts, Resources
from aotc.aot.tune.job import Job, Operand, Option
from aotc.aot.tune.measuring import Measurer
from aotc.aot.tune.record import Choice, Line
from aotc.aot.tune.tune import CallTime, Policy, Timed, Tuned, Tuning
from aotc.aot.tune.whole_call import Call, CallLaunch, tune_calls
from aotc.cache import Store

from .fake_device import FakeDevice

TARGET = find_target("cuda:sm_90")
SIZE = 4096


def program(code):
    return Program("kernel", code, (1, 1, 1), 32, 0, 0, is_programmatic=True)


def measured(kernels, rows, launches, groups=()):
    """What is found for these codes of each kernel, on a device where each takes so long."""
    device = FakeDevice(kernels)
    task = CallMeasurement(
        "aotc.call-measurement/1",
        "",
        (Buffer("fp32", SIZE, "weight"), Buffer("i8", 2 * SIZE, "stored")),
        tuple(
            Kernel(f"kernel {at}", (groups or range(len(rows)))[at], tuple(map(program, row)))
            for at, row in enumerate(rows)
        ),
        tuple(Launch(kernel, ((0, 0), (1, offset))) for kernel, offset in launches),
    )
    with CallBench(device, CallMeasurement.from_bytes(task.to_bytes())) as bench:
        found = bench.measure()
    assert device.memory_of == {}
    return device, found


def takes(time_us):
    return lambda device, addresses: None, time_us


def test_each_kernel_gets_what_is_fastest_in_the_call():
    kernels = {b"a": takes(7.0), b"b": takes(5.0), b"c": takes(2.0), b"d": takes(3.0)}
    device, (first_us, last_us, chosen) = measured(
        kernels, [(b"a", b"b"), (b"c", b"d")], [(0, 0), (1, SIZE), (0, SIZE)]
    )
    assert chosen == [1, 0]
    assert (first_us, last_us) == pytest.approx((16.0, 12.0))
    weights, arena = device.launched[0][1][:2]
    assert [row[:2] for _, row in device.launched[1:3]] == [
        [weights, arena + SIZE],
        [weights, arena + SIZE],
    ]


def test_one_that_depends_on_the_kernel_before_it_is_found():
    """A candidate that is slow by itself, and fast behind another one."""
    last = []

    def behind(device, addresses):
        device.clock_us += 0.0 if last and last[-1] == "a" else 9.0

    def before(device, addresses):
        last.append("a")

    kernels = {b"a": (before, 4.0), b"b": takes(5.0), b"c": (behind, 1.0)}
    _, (first_us, last_us, chosen) = measured(kernels, [(b"a",), (b"b", b"c")], [(0, 0), (1, 0)])
    assert chosen == [0, 1]
    assert (first_us, last_us) == pytest.approx((9.0, 5.0))


def test_kernels_that_are_alike_take_one_choice():
    """Each would gain too little by itself."""
    kernels = {b"a": takes(1000.0), b"b": takes(998.0)}
    rows = [(b"a", b"b")] * 2
    launches = [(0, 0), (1, 0)]
    assert measured(kernels, rows, launches)[1][2] == [0, 0]
    kernels[b"b"] = takes(996.0)
    assert measured(kernels, rows, launches, (0, 0))[1][2] == [1]


def test_a_gain_within_the_noise_changes_nothing():
    kernels = {b"a": takes(1000.0), b"b": takes(999.0)}
    _, (first_us, last_us, chosen) = measured(kernels, [(b"a", b"b")], [(0, 0)])
    assert chosen == [0]
    assert first_us == last_us == pytest.approx(1000.0)


# What is asked, and what becomes of the answer.

BLOCKS = (16, 32, 64)


def spec(name):
    candidates = tuple(Candidate((("BLOCK", block),), (1, 1, 1)) for block in BLOCKS)
    form = Form("", f"# source of {name}", "kernel")
    return KernelSpec(name, (form,), (Param("x", "*fp32"),), candidates, 1024, 0)


class Asked(Executor):
    """Answers with a value, or an error, and keeps what it was asked."""

    def __init__(self, value=None, error=None):
        self.value, self.error, self.tasks = value, error, []

    def map(self, requests, progress=None):
        self.tasks += [CallMeasurement.from_bytes(*each.arguments) for each in requests]
        return [Outcome(each, self.value, self.error, 0.0) for each in requests]


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """The code of a task is named by its config."""

    def compile_each(tasks, resources, may_compile=lambda task: True):
        return {task: KernelBinary(str(task.config), b"code") for task in tasks}

    monkeypatch.setattr(whole_call, "compile_each", compile_each)


def tuned(folder, executor, times_us=(4.0, 5.0, 40.0), **options):
    """A tuning of two kernels in one call, each fastest with the first block by itself."""
    jobs = [Job(spec(name), (Operand(SIZE),)) for name in ("first", "second")]
    timed = {}
    for job in jobs:
        rows = zip(job.spec.candidates, times_us, strict=True)
        timed[job.spec.digest] = tuple(
            Timed(Option(each, KernelBinary(str(each.config), b"code")), time_us)
            for each, time_us in rows
        )
    kernels = {
        digest: Tuned(rows[0].option.candidate, rows[0].option.binary)
        for digest, rows in timed.items()
    }
    before = Tuning(kernels, (), len(jobs), timed=timed)
    call = Call(
        "the call",
        (Buffer("fp32", SIZE, "read"),),
        tuple(CallLaunch(job.spec.digest, ((0, 0),)) for job in jobs),
    )
    resources = Resources(executor, Store(folder), Counts())
    policy = Policy(TARGET, "nvidia-fake", "quick")
    measurer = Measurer(TARGET, {}, Devices("nvidia-fake", executor))
    parts = (jobs, before, policy, resources, measurer)
    return jobs, before, tune_calls([call], *parts, **options)


def test_those_near_the_fastest_are_tried_and_the_other_order_of_launches(tmp_path):
    executor = Asked((10.0, 9.0, [0, 0]))
    tuned(tmp_path, executor)
    (task,) = executor.tasks
    symbols = [program.symbol for program in task.kernels[0].programs]
    early = (("BLOCK", 16), (FOLLOWED_EARLY, 1))
    assert symbols == [*(str((("BLOCK", block),)) for block in (16, 32)), str(early)]


def test_a_choice_is_a_line_that_a_later_build_reads(tmp_path):
    jobs, before, after = tuned(tmp_path, Asked((10.0, 9.0, [1, 2])))
    first, second = (after.kernels[job.spec.digest].candidate for job in jobs)
    assert first.config == (("BLOCK", 32),)
    assert second.config == (("BLOCK", 16), (FOLLOWED_EARLY, 1))
    lines = {line.spec_digest: line for line in after.lines}
    for job, candidate in zip(jobs, (first, second), strict=True):
        line = lines[job.spec.digest]
        assert line.choice == Choice.of(candidate)
        assert line.runner_up == Choice.of(before.kernels[job.spec.digest].candidate)
        assert choose._chosen(job.spec, Line(*line.key, Choice.parse(str(line.choice)), 1.0)) == (
            candidate
        )
    (time,) = after.calls
    assert (time.first_us, time.last_us, time.changed) == (10.0, 9.0, 2)


def test_what_cannot_be_measured_stays_and_is_said(tmp_path):
    _, before, after = tuned(tmp_path, Asked(error=DeviceDiffers(expected="a", found="b")))
    (time,) = after.calls
    assert after == replace(before, calls=(time,))
    assert f"a whole call was not measured: {time.reason}" in _said(after.calls)


def test_the_stage_s_line_says_what_changed():
    times = (CallTime(10.0, 9.0, 2), CallTime(5.0, 5.0), CallTime(4.0, 3.0, 1))
    assert _said(times) == ", 3 changed in the whole call: 10.0 → 9.0 µs, 4.0 → 3.0 µs"
    assert _said(times[1:2]) == ""


def test_a_spent_budget_measures_no_call(tmp_path):
    executor = Asked((10.0, 9.0, [1, 1]))
    _, before, after = tuned(tmp_path, executor, is_over=lambda: True)
    assert after == before
    assert executor.tasks == []


def test_files_of_tasks_are_of_single_kernels(tmp_path):
    executor = Asked((10.0, 9.0, [1, 1]))
    executor.runs_functions = False
    _, before, after = tuned(tmp_path, executor)
    assert after == before
    assert executor.tasks == []
