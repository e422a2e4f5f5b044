"""Repairs of PTX: checked lines of each file in `ptx`, the texts that LLVM writes before.

// RUN: sm_90 EARLY         repair for this architecture; lines `EARLY:` are of that run
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from file_check import check

from aotc.aot.targets.cuda.ptx import PAIR, repaired

FILES = {path.stem: path for path in sorted((Path(__file__).parent / "ptx").glob("*.ptx"))}


@pytest.mark.parametrize("name", FILES)
def test_repaired_text(name):
    file = FILES[name].read_text()
    _, _, text = file.partition("\n\n")  # the directives are no part of it
    runs = re.findall(r"^// RUN: sm_(\d+)(?: (\w+))?$", file, re.MULTILINE)
    assert runs
    for capability, prefix in runs:
        check(file, repaired(text, int(capability)), (prefix or "CHECK",))


def test_every_repaired_instruction_is_in_a_file():
    found = {
        (match["name"].removesuffix(".NaN"), match["half"])
        for name in ("pairs_of_integers", "pairs_of_floats")
        for match in PAIR.finditer(FILES[name].read_text())
    }
    assert found == {
        *itertools.product(("add", "min", "max"), ("s16", "u16")),
        ("min", "f16"),
        ("max", "bf16"),
    }
