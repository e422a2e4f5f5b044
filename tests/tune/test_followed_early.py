"""Which kernels let the next one's programs come early: those before kernels that load something
before they wait, and the small ones among small ones."""

from types import SimpleNamespace

import pytest

from aotc.aot.compile import FOLLOWED_EARLY_BYTES, jobs_of
from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Param
from aotc.aot.targets.families import find_target
from aotc.aot.tune.compiling import task_of

SMALL, LARGE = FOLLOWED_EARLY_BYTES, FOLLOWED_EARLY_BYTES + 1


def spec(name, nbytes, waits=False):
    candidate = Candidate((("BLOCK", 16),), (1, 1, 1))
    form = Form("", f"# {name}", "kernel", waits)
    return KernelSpec(name, (form,), (Param("x", "*fp32"),), (candidate,), nbytes, 0)


def variant(*specs):
    launch = SimpleNamespace(operands=(), stored=0)
    return SimpleNamespace(
        specs=specs, assignment=SimpleNamespace(launches=[launch for _ in specs])
    )


A, B, C = spec("a", SMALL), spec("b", SMALL), spec("c", LARGE)
AHEAD = spec("d", LARGE, waits=True)


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        ([(A, B)], "ab"),
        ([(A, C)], ""),
        ([(C, A)], "a"),
        ([(A, B, C)], "a"),
        ([(A, B, A, C)], "b"),
        ([(A, B), (B, C)], "a"),
        ([(C, C)], ""),
        ([(A,)], "a"),
    ],
)
def test_small_kernels_among_small_ones(variants, expected):
    jobs = jobs_of([variant(*each) for each in variants])
    assert {job.spec.name for job in jobs if job.is_followed_early} == set(expected)


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        ([(C, AHEAD, C)], "c"),
        ([(A, AHEAD, AHEAD)], "ad"),
        ([(AHEAD, A, AHEAD, AHEAD, C)], "a"),  # as often by others: no
        ([(AHEAD, AHEAD, AHEAD, C)], "d"),  # mostly
        ([(A, AHEAD), (A, B)], "ab"),
    ],
)
def test_kernels_before_those_that_load_before_they_wait(variants, expected):
    jobs = jobs_of([variant(*each) for each in variants])
    assert {job.spec.name for job in jobs if job.is_followed_early} == set(expected)


def test_it_decides_the_machine_code_of_gpus_alone():
    pytest.importorskip("triton")
    plain, early = (jobs_of([variant(A, other)])[0] for other in (C, B))
    for name, is_other in (("cuda:sm_90", True), ("cpu-x86-64-v3", False)):
        target = find_target(name)
        keys = {task_of(job, A.candidates[0], target).key.digest for job in (plain, early)}
        assert (len(keys) == 2) == is_other
