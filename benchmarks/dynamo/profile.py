"""Where the time of a model's graphs goes: `python -m benchmarks.dynamo.profile MODEL`.

Prints each launch of the forward and the backward program of `backend="aotc"`, the slowest first,
and with `--inductor` what torch's profiler shows of Inductor's. Products and rows are known by the
kernels' names.
"""

from __future__ import annotations

import argparse
import gc
import random
import struct
from collections.abc import Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from aotc.aot.dynamo.calling import Call
from aotc.aot.profile import cpu
from aotc.aot.profile.subject import Subject, subject_of
from benchmarks.dynamo.models import MODELS
from benchmarks.report import table

REPETITIONS, WARM_CALLS, PROFILED_CALLS, SHOWN = 40, 5, 20, 30


def main() -> None:
    """Profile one model by our back end and by Inductor."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dynamo.profile", description=__doc__
    )
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--threads", type=int, default=0, help="0: what the machine allows")
    parser.add_argument("--inductor", action="store_true", help="Inductor's kernels as well")
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    for subject in _subjects(asked.model, asked.threads):
        print(_launches(subject), end="\n\n")
    if asked.inductor:
        print(_inductor(asked.model))


def _called(name: str, **options: Any) -> Any:
    """A function that calls a compiled model forward and backward, warm."""
    torch.manual_seed(0)
    module, x = MODELS[name].build(), MODELS[name].example()
    compiled = torch.compile(module, **options)

    def call() -> None:
        compiled(x).sum().backward()
        module.zero_grad()

    for _ in range(WARM_CALLS):
        call()
    return call


def _subjects(name: str, threads: int) -> list[Subject]:
    """The programs of a model's graphs, forward first."""
    call = _called(name, backend="aotc", options={"threads": threads})
    programs = [each._program for each in gc.get_objects() if type(each) is Call]
    del call
    return [subject_of(program) for program in programs if program is not None]


def _launches(subject: Subject) -> str:
    inputs = {spec.name: _bytes(spec) for spec in subject.inputs}
    times_us, call_us = cpu.measure(subject, inputs, REPETITIONS)
    steps = zip(times_us, subject.plan.steps, strict=True)
    rows = [
        [f"{time_us:.1f}", subject.plan.kernels[step.kernel].name, str(step.grid)]
        for time_us, step in sorted(steps, key=lambda pair: -pair[0])
    ]
    total = f"{len(rows)} launches, {sum(times_us):.0f} us; a call takes {call_us:.0f} us"
    return f"{table(['us', 'kernel', 'grid'], rows[:SHOWN])}\n{total}"


def _bytes(spec: Any) -> bytes:
    """Small numbers of an input's type; zeros for what may be indices."""
    if spec.dtype != "f32":
        return bytes(spec.nbytes)
    draw = random.Random(0)
    block = struct.pack("<1024f", *(draw.gauss(0, 1) for _ in range(1024)))
    return (block * (spec.nbytes // len(block) + 1))[: spec.nbytes]


def _inductor(name: str) -> str:
    call = _called(name, backend="inductor")
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(PROFILED_CALLS):
            call()
    return _sorted(found.key_averages())


def _sorted(rows: Sequence[Any]) -> str:
    chosen = sorted(rows, key=lambda row: -row.self_cpu_time_total)[:SHOWN]
    lines = [
        [
            f"{row.self_cpu_time_total / PROFILED_CALLS:.1f}",
            str(row.count / PROFILED_CALLS),
            row.key,
        ]
        for row in chosen
    ]
    return table(["us a call", "times", "what"], lines)


if __name__ == "__main__":
    main()
