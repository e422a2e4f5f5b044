"""LLVM IR of the vector math, every function whole: its bits are what kernels compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.aot.targets.cpu import math

FOLDER = Path(__file__).parent / "math"


@pytest.mark.parametrize(("element", "lanes"), [("float", 16), ("double", 8)])
def test_functions(element, lanes, expect_text):
    text = math.functions(lanes, math.FUNCTIONS[element], element)
    expect_text(FOLDER / f"{element}_{lanes}.ll", text)


def test_every_file_is_of_an_element():
    assert {path.stem.partition("_")[0] for path in FOLDER.iterdir()} == math.FUNCTIONS.keys()
