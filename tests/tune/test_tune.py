"""Which candidate a kernel gets: from a record, by measuring, or the cost model's choice.

Compiling is faked; the record, the cache of measured lines and the budget are real.
"""

import math

import pytest

from aotc.aot.errors import KernelTooLarge, TuningDeviceMissing, TuningRecordMiss
from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Param
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.families import find_target
from aotc.aot.targets.toolchain import KernelTextRefused
from aotc.aot.tasks.task import Executor
from aotc.aot.tune import tune as choose
from aotc.aot.tune.compiling import Counts, Resources
from aotc.aot.tune.job import Job, Operand
from aotc.aot.tune.record import (
    RECORDS,
    Choice,
    Line,
    parse_record,
    print_record,
    shipped_record,
)
from aotc.aot.tune.tune import Policy, RefusedFormWarning, tune, with_lines
from aotc.cache import Store

TARGET = find_target("cuda:sm_90")
DEVICE = "nvidia-h200"
BLOCKS = (16, 32, 64)
# Microseconds of each kernel's candidates: the cost model's choice is never the fastest.
TIMES_US = {"first": (9.0, 4.0, 7.0), "second": (5.0, 6.0, 3.0), "third": (8.0, 2.0, 2.5)}


def spec(name, blocks=BLOCKS):
    candidates = tuple(Candidate((("BLOCK", block),), (1, 1, 1)) for block in blocks)
    form = Form("", f"# source of {name}", "kernel")
    return KernelSpec(name, (form,), (Param("x", "*fp32"),), candidates, 1024, 0)


def jobs():
    """The first has the most launches, the last the fewest."""
    return [Job(spec(name), (Operand(1024),), 10 - at) for at, name in enumerate(TIMES_US)]


class FakeMeasurer:
    """Times as in TIMES_US; after `limit` kernels the user has enough."""

    is_apart = True

    def __init__(self, limit=math.inf):
        self.measured, self.limit = [], limit

    def measure_each(self, work, report):
        for job, options in work:
            if len(self.measured) >= self.limit:
                raise KeyboardInterrupt
            self.measured.append(job.spec.name)
            blocks = [dict(option.candidate.config)["BLOCK"] for option in options]
            yield job, options, [TIMES_US[job.spec.name][BLOCKS.index(each)] for each in blocks]


TOO_LARGE: set[str] = set()  # kernels of which only the last candidate fits
NO_PROGRAM: set[str] = set()  # kernels of which only the last candidate is a program
WIDE = (1, 2, 4, 8)
SPILLED: dict[str, tuple[int, ...]] = {}  # bytes that the candidates of a kernel spill; 0 of others


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """The tasks that were compiled."""
    found = []

    def compile_each(tasks, resources, may_compile=lambda task: True):
        found.extend(tasks)
        made = {}
        for number, task in enumerate(tasks):
            is_last = task.candidate == task.spec.candidates[-1]
            is_refused = task.spec.name in TOO_LARGE | NO_PROGRAM and not is_last
            rows = dict(zip(task.spec.candidates, SPILLED.get(task.spec.name, ()), strict=False))
            spilled = rows.get(task.candidate, 0)
            binary = KernelBinary("k", b"", spill_bytes=spilled)
            made[task] = error(task.spec.name) if is_refused else binary
            resources.report(number + 1, len(tasks), task.spec.name)
        return made

    def error(name):
        if name in NO_PROGRAM:
            return KernelTextRefused(step="compiling", name=name, reason="v1 is not defined")
        return KernelTooLarge(kernel="k", found=2, unit="bytes of shared memory", expected=1)

    monkeypatch.setattr(choose, "compile_each", compile_each)
    return found


class FakeExecutor(Executor):
    count = 2


def run(folder, measurer=None, mode="quick", report=None, given=None, **policy):
    row = Policy(TARGET, DEVICE, mode, **policy)
    quiet = lambda done, total, name: None  # noqa: E731
    progress = report or quiet
    resources = Resources(FakeExecutor(), Store(folder), Counts(), progress)
    return tune(given or jobs(), row, resources, measurer)


def blocks(tuning):
    """Kernel → the block that it got."""
    names = {job.spec.digest: job.spec.name for job in jobs()}
    return {
        names[digest]: dict(tuned.candidate.config)["BLOCK"]
        for digest, tuned in tuning.kernels.items()
    }


PICKS = dict.fromkeys(TIMES_US, BLOCKS[0])
FASTEST = {"first": 32, "second": 64, "third": 32}


def test_off_takes_the_models_picks_and_compiles_nothing_else(tmp_path, compiled):
    tuning = run(tmp_path, mode="off")
    assert blocks(tuning) == PICKS
    assert (tuning.measured, len(compiled), tuning.lines) == (0, 3, ())


def test_the_fastest_is_taken_and_recorded_with_its_runner_up(tmp_path):
    tuning = run(tmp_path, FakeMeasurer())
    assert blocks(tuning) == FASTEST
    line = next(line for line in tuning.lines if line.spec_digest == spec("third").digest)
    assert (line.time_us, line.runner_up_us) == (2.0, 2.5)
    assert line.runner_up == Choice((("BLOCK", 64),))


def test_without_a_device_nothing_is_guessed(tmp_path):
    with pytest.raises(TuningDeviceMissing, match="3 kernels"):
        run(tmp_path)


def test_an_interrupted_tuning_goes_on_where_it_stopped(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, FakeMeasurer(limit=2))
    measurer = FakeMeasurer()
    tuning = run(tmp_path, measurer)
    assert measurer.measured == ["third"]
    assert blocks(tuning) == FASTEST
    assert len(tuning.lines) == 3


def test_a_spent_budget_leaves_the_lightest_kernels_to_the_models_pick(tmp_path):
    measurer = FakeMeasurer()
    tuning = run(tmp_path, measurer, budget_seconds=0.0)
    assert measurer.measured == ["first"]
    assert blocks(tuning) == {**PICKS, "first": FASTEST["first"]}
    assert (tuning.measured, tuning.skipped) == (1, 2)
    run(tmp_path, measurer, budget_seconds=0.0)
    assert measurer.measured == ["first", "second"]


def test_a_record_takes_the_place_of_measuring(tmp_path, compiled):
    lines = run(tmp_path / "a", FakeMeasurer()).lines
    record = parse_record(print_record(with_lines({}, lines)), "a file")
    compiled.clear()
    tuning = run(tmp_path / "b", record=record, frozen=True)
    assert blocks(tuning) == FASTEST
    assert len(compiled) == 3
    assert tuning.lines == lines


def test_frozen_refuses_a_kernel_without_a_line(tmp_path):
    lines = run(tmp_path / "a", FakeMeasurer()).lines
    record = with_lines({}, [line for line in lines if line.spec_digest != spec("second").digest])
    with pytest.raises(TuningRecordMiss, match=r"^1 kernels .*: second"):
        run(tmp_path / "b", record=record, frozen=True)


def test_frozen_takes_the_choices_of_an_earlier_tuning_from_the_cache(tmp_path):
    run(tmp_path, FakeMeasurer())
    assert blocks(run(tmp_path, frozen=True)) == FASTEST
    with pytest.raises(
        TuningRecordMiss, match="3 kernels have no line in the tuning record or the"
    ):
        run(tmp_path / "other", frozen=True)


def test_frozen_without_tuning_or_record_takes_the_models_choice(tmp_path):
    assert blocks(run(tmp_path, mode="off", frozen=True)) == PICKS


def test_frozen_wants_every_choice_in_a_record_that_is_given(tmp_path):
    with pytest.raises(TuningRecordMiss, match="3 kernels"):
        run(tmp_path, mode="off", frozen=True, has_record=True)


def stale(lines):
    """The same lines; that of the first kernel names a candidate that is no more, and fast."""
    digest = spec("first").digest
    gone = Choice((("BLOCK", 7),))
    return [Line(*line.key, gone, 0.1) if line.spec_digest == digest else line for line in lines]


def test_a_line_that_names_no_candidate_is_a_miss(tmp_path):
    lines = run(tmp_path / "a", FakeMeasurer()).lines
    record = with_lines({}, stale(lines))
    with pytest.raises(TuningRecordMiss, match=r"^1 kernels .*: first"):
        run(tmp_path / "b", record=record, frozen=True)


def test_measuring_replaces_a_line_that_names_no_candidate(tmp_path):
    lines = run(tmp_path / "a", FakeMeasurer()).lines
    record = with_lines({}, stale(lines))
    measurer = FakeMeasurer()
    tuning = run(tmp_path / "b", measurer, record=record)
    assert measurer.measured == ["first"]
    assert with_lines(record, tuning.lines) == with_lines({}, lines)


def test_lines_of_another_device_serve_where_this_one_has_none(tmp_path):
    lines = run(tmp_path / "a", FakeMeasurer()).lines
    record = {
        (digest, target, "nvidia-h100"): Line(digest, target, "nvidia-h100", line.choice, 1.0)
        for line in lines
        for digest, target, _ in [line.key]
    }
    assert blocks(run(tmp_path / "b", record=record, frozen=True)) == FASTEST


@pytest.mark.parametrize("is_apart", [True, False])
def test_progress_moves_while_candidates_are_compiled(tmp_path, is_apart):
    measurer, seen = FakeMeasurer(), []
    measurer.is_apart = is_apart
    run(tmp_path, measurer, report=lambda done, total, text: seen.append((done, total, text)))
    compiled = [(done, total) for done, total, text in seen if "candidates compiled" in text]
    total = len(TIMES_US) * len(BLOCKS)
    assert compiled[:3] == [(1, total), (2, total), (3, total)]
    if not is_apart:
        assert compiled == [(done, total) for done in range(1, total + 1)]


@pytest.mark.parametrize(
    ("spilled", "place"),
    [
        ((5000, 900, 64, 0), 2),  # the first that spills little
        ((256, 0, 0, 0), 0),  # this is little
        ((5000, 900, 800, 700), 3),  # the least of many
        ((700, 900, 800, 5000), 0),
    ],
)
def test_a_pick_with_too_few_registers_gives_way(tmp_path, monkeypatch, spilled, place):
    monkeypatch.setitem(SPILLED, "wide", spilled)
    job = Job(spec("wide", WIDE), (Operand(1024),), 1)
    for policy in ({}, {"frozen": True}):
        (tuned,) = run(tmp_path, mode="off", given=[job], **policy).kernels.values()
        assert dict(tuned.candidate.config)["BLOCK"] == WIDE[place]


@pytest.mark.parametrize("mode", ["off", "quick"])
def test_the_last_candidate_stands_in_where_no_other_fits(tmp_path, mode, monkeypatch):
    monkeypatch.setitem(globals(), "TOO_LARGE", {"long"})
    many = tuple(range(1, 40))
    job = Job(spec("long", many), (Operand(1024),), 1)
    measurer = None if mode == "off" else FakeMeasurer()
    tuning = run(tmp_path, measurer, mode=mode, given=[job])
    (tuned,) = tuning.kernels.values()
    assert dict(tuned.candidate.config)["BLOCK"] == many[-1]


@pytest.mark.parametrize("mode", ["off", "quick"])
def test_a_form_that_is_no_program_is_reported(tmp_path, mode, monkeypatch):
    """Another form takes its place: nothing else would show that it is there for nothing."""
    monkeypatch.setitem(globals(), "NO_PROGRAM", {"long"})
    job = Job(spec("long", tuple(range(1, 40))), (Operand(1024),), 1)
    measurer = None if mode == "off" else FakeMeasurer()
    with pytest.warns(RefusedFormWarning, match="`long` failed: v1 is not defined"):
        run(tmp_path, measurer, mode=mode, given=[job])


def shipped(folder):
    """What the package would have of all three kernels, made elsewhere."""
    return with_lines({}, run(folder, FakeMeasurer()).lines)


def test_where_nothing_is_measured_the_packages_record_decides(tmp_path, compiled):
    record = shipped(tmp_path / "a")
    compiled.clear()
    for frozen in (False, True):
        tuning = run(tmp_path / "b", mode="off", shipped=record, frozen=frozen)
        assert blocks(tuning) == FASTEST
        assert (tuning.measured, tuning.shipped) == (0, 3)
        assert tuning.lines == ()  # they are not the user's
    assert len(compiled) == 6


def test_the_users_record_goes_before_that_of_the_package(tmp_path):
    record = shipped(tmp_path / "a")
    first = spec("first").digest
    own = Line(first, TARGET.name, DEVICE, Choice((("BLOCK", 64),)), 9.0)
    tuning = run(tmp_path / "b", mode="off", shipped=record, record={own.key: own})
    assert blocks(tuning) == {**FASTEST, "first": 64}
    assert (tuning.lines, tuning.shipped) == ((own,), 2)


def test_tuning_measures_what_the_package_has(tmp_path):
    measurer = FakeMeasurer()
    run(tmp_path / "b", measurer, shipped=shipped(tmp_path / "a"))
    assert len(measurer.measured) == 3


def test_a_record_of_the_user_must_have_what_frozen_asks_for(tmp_path):
    record = shipped(tmp_path / "a")
    with pytest.raises(TuningRecordMiss, match="3 kernels"):
        run(tmp_path / "b", mode="off", frozen=True, has_record=True, shipped=record)


def test_a_line_of_the_package_that_names_no_candidate_is_passed_over(tmp_path):
    record = with_lines({}, stale(shipped(tmp_path / "a").values()))
    tuning = run(tmp_path / "b", mode="off", shipped=record)
    assert blocks(tuning) == {**FASTEST, "first": BLOCKS[0]}


def test_a_choice_of_the_package_that_does_not_compile_gives_way(tmp_path, monkeypatch):
    """As with another version of Triton: it is a preference, where the user's line is a demand."""
    record = shipped(tmp_path / "a")
    monkeypatch.setitem(globals(), "TOO_LARGE", {"first"})
    tuning = run(tmp_path / "b", mode="off", shipped=record)
    assert blocks(tuning) == {**FASTEST, "first": BLOCKS[-1]}
    with pytest.raises(KernelTooLarge):
        run(tmp_path / "c", mode="off", record=record)


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.txt")), ids=lambda path: path.stem)
def test_records_of_the_package_are_of_a_target_of_ours(path):
    lines = shipped_record(path.stem)
    assert lines
    assert {line.target for line in lines.values()} == {path.stem}
    assert print_record(lines) == path.read_text()


def test_a_target_without_a_record_has_no_lines():
    assert shipped_record("cuda-sm_61") == {}
