"""Models of public libraries at small sizes: built, and compared with eager by name.

A handful with every change; the whole zoo with `pytest -m nightly`. What has no row yet is listed.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.zoo.measure import Figures, compare_with_eager, write_spec  # noqa: E402
from benchmarks.zoo.page import render  # noqa: E402
from benchmarks.zoo.table import ZOO  # noqa: E402

# An encoder with windows, a decoder with groups of heads, both halves, a pyramid, a recommender.
WITH_EVERY_CHANGE = ("modernbert", "llama", "t5", "resnet18", "dlrm")
ROWS = [
    pytest.param(row, marks=() if name in WITH_EVERY_CHANGE else pytest.mark.nightly, id=name)
    for name, row in ZOO.items()
]


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_model(row, aotc, cache, tmp_path):
    spec, bundle = write_spec(row, False, tmp_path), tmp_path / "bundle"
    code, _, errors = aotc("build", spec, "-o", bundle, "--quiet", "--cache-dir", cache)
    assert code == 0, errors
    difference, is_correct = compare_with_eager(spec, bundle)
    assert is_correct, difference


def test_sizes_are_arguments_of_their_makers():
    for row in ZOO.values():
        assert set(row.small.inputs) == set(row.full.inputs), row.name


def test_the_page_counts_and_names_what_is_slow_wrong_or_refused():
    times = {"aotc": 2000.0, "eager": 1000.0, "compile": 3000.0}
    good = {"aotc": 1000.0, "eager": 4000.0, "aoti": 2000.0}
    rows = (
        Figures("slow", "", 1e-6, True, 3, 4, 1.0, times, {"aoti": "no compiler"}),
        Figures("fast", "", 1e-6, True, 3, 4, 1.0, good),
        Figures("wrong", "", 0.5, False, 3, 4, 1.0),
        Figures("absent", "an op has no row"),
    )
    page = render("small", rows)
    assert "3 of 4 models build, 2 are right" in page
    assert "Geometric mean over 2 models: 1.00×. Below 0.95×: slow 0.50×." in page
    assert "| wrong | 5e-01 **wrong** |" in page
    assert "- absent is refused: an op has no row" in page
    assert "- slow, AOTInductor: no compiler" in page
