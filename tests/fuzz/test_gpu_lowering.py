"""Programs whose sizes vary are scheduled and lowered for a GPU, which this needs none of."""

from __future__ import annotations

import pytest

from aotc.aot.capture.capture import capture
from aotc.aot.capture.spec import load_spec
from aotc.aot.errors import AotcError
from aotc.aot.lower import lower
from aotc.aot.rewrites.rewrite import rewrite_each
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from fuzz.generate import Choice
from fuzz.rows.table import FAMILIES
from fuzz.trial import Task

pytestmark = [pytest.mark.torch, pytest.mark.triton]
FIRST = 202611269000000
MORE = [pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 30)]


@pytest.mark.parametrize("seed", [0, *MORE])
@pytest.mark.parametrize("family", FAMILIES)
def test_programs_of_sizes_that_vary_are_lowered(family, seed, tmp_path):
    """`reductions 202611269000000` was refused: one row of any length before a product."""
    path = tmp_path / "program.py"
    task = Task(family, FIRST + seed, Choice(is_dynamic=True, has_gradients=False))
    path.write_text(task.program().source())
    try:
        captured = capture(load_spec(str(path)))
    except AotcError as refused:
        pytest.skip(f"refused: {refused}")
    graph, _ = rewrite_each(captured.graph, {"cuda": GPUS[90]})["cuda"]
    lower(schedule(graph, GPUS[90]), GPUS[90])
