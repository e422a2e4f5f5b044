"""The Triton source of each form of each kind of kernel, whole: `sources/CASE.FORM.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
import source_cases  # noqa: F401  # the cases register themselves
from source_table import CASES, golden_text

FOLDER = Path(__file__).parent / "sources"
ROWS = {file: (case, form) for case in CASES.values() for file, form in case.files()}


@pytest.mark.parametrize("name", ROWS)
def test_source(name, expect_text):
    expect_text(FOLDER / f"{name}.py", golden_text(*ROWS[name]))


def test_every_file_has_a_case():
    assert {path.stem for path in FOLDER.glob("*.py")} == ROWS.keys()
