"""Every form that the tables of `lower` have is in some expected text: the table of forms here is
read from the code, so that a new form without one fails."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
import source_cases  # noqa: F401  # the cases register themselves
from source_table import CASES, TARGETS, Case

from aotc.aot.ir.graph import walk
from aotc.aot.ir.ops import OPS
from aotc.aot.lower import emit
from aotc.aot.lower.attention import source as attention
from aotc.aot.lower.convolution import source as convolution
from aotc.aot.lower.kernel_file import WAIT
from aotc.aot.lower.lower import LOWERED, ON_MEMORY
from aotc.aot.lower.matmul.choice import STYLES
from aotc.aot.lower.row import gpu_candidates, statistics
from aotc.aot.lower.row.source import FORMS, levels_of
from aotc.aot.native import lowering
from aotc.aot.targets.cuda.machines import GPUS
from aotc.kernels.templates.registry import TEMPLATES, called_functions

DEVICES = ("cpu", "cuda")
ROWS = [(case, form) for case in CASES.values() for form in case.forms]


def device(case: Case) -> str:
    return TARGETS[case.target].device


def style(form: str) -> str:
    """The form without the letters of axes with a tail."""
    name, _, letters = form.rpartition("_")
    return name if name and letters and set(letters) <= set("mnk") else form


def found(kind: str, on: str = "cuda") -> set[str]:
    """Forms of the kind that have an expected text."""
    rows = ((case, form) for case, form in ROWS if device(case) == on)
    return {style(form) for case, form in rows if case.group.kind == kind}


def test_kinds_of_kernels_on_each_device():
    expected = {*itertools.product(LOWERED, DEVICES)} - {("attention", "cpu")}
    assert {(case.group.kind, device(case)) for case in CASES.values()} == expected


def test_forms_of_products():
    assert found("matmul") == {*STYLES, *convolution._TEMPLATES}


def test_masks_of_products():
    """Each template with a tail of each axis, and without any."""
    rows = [form for case, form in ROWS if case.group.kind == "matmul" and device(case) == "cuda"]
    letters = {}
    for form in rows:
        if style(form) in STYLES:
            rest = form.removeprefix(style(form)).lstrip("_")
            letters.setdefault(STYLES[style(form)].template, set()).add(rest)
    for row in STYLES.values():
        if row.is_flat:
            assert "".join(sorted(set("".join(letters[row.template])))) in ("mn", "kmn"), row
        elif row.name != "persistent":  # no row of GPUS has it: see TARGETS
            assert {"", "mnk"} <= letters[row.template], row


def test_forms_of_attention():
    assert found("attention") == attention.FORMS.keys()


def test_forms_of_calls():
    assert found("call", "cuda") == {"", lowering.FORM, lowering.TRITON_FORM}
    assert found("call", "cpu") == {"", lowering.FORM}


def test_kernels_of_our_own_that_are_called():
    functions = {
        dict(case.group.root_op.attrs)["function"]
        for case in CASES.values()
        if case.group.kind == "call"
    }
    assert functions >= ON_MEMORY.keys()


def test_forms_of_rows_on_a_gpu():
    """Each pair of form and direction that some shape gets."""
    numbers = (1, 2, 40, 5000)
    possible = set()
    for outer, kept, levels in itertools.product((1, 3), numbers, (1, 2)):
        for reduced in (5, 300, 5000, 40000, 1 << 20):
            for is_lanes, stores, can_share in itertools.product((False, True), repeat=3):
                shape = gpu_candidates.RowShape(
                    outer, kept, reduced, 8.0, levels, is_lanes, stores, 4, can_share and stores, 4
                )
                tiles = gpu_candidates.row_tiles(shape, GPUS[90])
                possible |= {(each.form, is_lanes) for each in tiles}
    assert {form for form, _ in possible} == FORMS.keys()
    rows = [row for row in ROWS if row[0].group.kind == "row" and device(row[0]) == "cuda"]
    assert {(form, case.group.domain.is_reduced_in_lanes) for case, form in rows} == possible


def test_statistics_of_rows_on_a_gpu():
    """Each way of summing up a row in each form that can hold what it has of one."""
    kinds = get_args(statistics.Statistic)
    possible = {*itertools.product(kinds, FORMS)}
    possible -= {(statistics.Search, form) for form in ("shared", "shared_streamed")}
    rows = [row for row in ROWS if row[0].group.kind == "row" and device(row[0]) == "cuda"]
    found = {
        (type(each), form)
        for case, form in rows
        for level in statistics.statistics(levels_of(case.group))
        for each in level
    }
    assert found == possible


def test_forms_of_rows_on_a_cpu():
    """Whole rows and rows in chunks, reduced along the lanes of a tile and along its rows; rows
    whose columns programs share."""
    cases = [case for case, _ in ROWS if case.group.kind == "row" and device(case) == "cpu"]
    ways = {
        ("for start in" in case.spec.forms[0].source, case.group.domain.is_reduced_in_lanes)
        for case in cases
    }
    assert ways == {*itertools.product((False, True), repeat=2)}
    assert any("if tl.atomic_add(arrived" in case.spec.forms[0].source for case in cases)


def test_templates():
    """Each template is filled in some text, by the forms that name it."""
    products = [case for case in CASES.values() if case.group.kind == "matmul"]
    filled = {case.group.root_op.kind for case in products if device(case) == "cpu"}
    filled |= {STYLES[name].template for name in found("matmul") if name in STYLES}
    filled |= {convolution._TEMPLATES[name] for name in found("matmul") if name not in STYLES}
    assert filled == TEMPLATES.keys()


@pytest.mark.parametrize("name", called_functions())
def test_functions_that_kernels_hold_a_copy_of(name):
    forms = (form for case in CASES.values() for form in case.spec.forms)
    assert any(f"{name}(" in form.source for form in forms)


def test_kinds_of_nodes():
    """Each kind of node that a kernel can compute."""
    roots = tuple(root.node for case in CASES.values() for root in case.group.roots)
    not_computed = {"input", "constant", "convolution", "memory", "torch", "control"}
    kinds = {row.kind for row in OPS.values()} - not_computed
    assert {node.kind for node in walk(roots)} >= kinds | emit._WRITERS.keys()


def test_forms_that_wait_by_themselves():
    """A form says whether it does; that its text has a call which waits is no news."""
    forms = [form for case in CASES.values() for form in case.spec.forms]
    assert {form.waits for form in forms} == {False, True}
    for form in forms:
        assert form.waits == (f"    {WAIT}\n" in form.source), form.source
