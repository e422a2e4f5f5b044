"""Attention of few rows compiles without spills, also for wide heads that few warps share."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from aotc.aot.lower import lower
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.compile import compile_kernel
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parents[2] / "lower"))
from attention_cases import Case, graph_of

CASES = {
    "head 128": Case(2, 8, 2, 1, 5000, 128, 128, "bf16"),
    "head 256": Case(1, 6, 2, 3, 999, 256, 256, "bf16"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_pick_does_not_spill(name):
    (spec,) = lower(schedule(graph_of(CASES[name]), GPUS[90]), GPUS[90])
    pick = spec.candidates[0]
    assert pick.form == "split"
    form = spec.form(pick)
    params = [(row.name, row.type) for row in spec.params_of(pick)]
    made = compile_kernel(form.source, form.function, params, pick.config, "sm_90")
    assert made.spill_bytes == 0, pick
