"""Programs are scheduled and lowered for a GPU, which this needs none of."""

from __future__ import annotations

import pytest

from aotc.aot.capture.capture import capture
from aotc.aot.capture.spec import load_spec
from aotc.aot.errors import AotcError
from aotc.aot.lower import lower
from aotc.aot.rewrites.rewrite import rewrite_each
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.compile import check_text
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
    lowered(Task(family, FIRST + seed, Choice(is_dynamic=True, has_gradients=False)), tmp_path)


@pytest.mark.parametrize("seed", [0, *MORE])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_form_of_a_kernel_is_a_program(family, seed, tmp_path):
    """A build takes another form in place of one that Triton does not take, so that nothing but
    the time would show it: a product by a row that is looked up had no form of few rows."""
    task = Task(family, FIRST + seed, Choice(is_dynamic=seed % 2 == 1, has_gradients=False))
    for spec in lowered(task, tmp_path):
        for candidate in {row.form: row for row in reversed(spec.candidates)}.values():
            form = spec.form(candidate)
            params = [(param.name, param.type) for param in spec.params_of(candidate)]
            check_text(form.source, form.function, params, candidate.config, "sm_90")


def lowered(task, folder):
    """The kernels of a program."""
    path = folder / "program.py"
    path.write_text(task.program().source())
    try:
        captured = capture(load_spec(str(path)))
    except AotcError as refused:
        pytest.skip(f"refused: {refused}")
    graph, _ = rewrite_each(captured.graph, {"cuda": GPUS[90]})["cuda"]
    return lower(schedule(graph, GPUS[90]), GPUS[90])
