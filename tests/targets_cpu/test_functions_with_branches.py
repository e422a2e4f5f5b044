"""Functions of vectors whose lanes decide branches: each lane is one number to all that read it."""

from __future__ import annotations

import re

import pytest

from aotc.aot.targets.cpu.math import FUNCTIONS, module

CALLED = [
    (element, name, lanes)
    for element, row in FUNCTIONS.items()
    for name in row
    for lanes in (1, 4, 8)
]


def definitions(text: str) -> list[str]:
    return [part for part in re.split(r"\n(?=define )", text) if part.startswith("define ")]


@pytest.mark.parametrize(("element", "name", "lanes"), CALLED)
def test_operands_are_frozen_where_there_are_branches(element, name, lanes):
    """`convolutions 202611277000599`: LLVM took a lane of fmod's divisor that nobody asked for as 0
    at one place and as another number at the next, and the loop had no end."""
    for text in definitions(module([(element, name, lanes)])):
        if " br i1 " not in text:
            continue
        head, body = text.split("{", 1)
        parameters = re.findall(r"%[\w.]+", head.split("(", 1)[1])
        for parameter in parameters:
            assert len(re.findall(rf"{re.escape(parameter)}\b", body)) == 1
            assert re.search(rf"= freeze .*{re.escape(parameter)}$", body, re.MULTILINE)


def test_some_have_branches():
    texts = [module([called]) for called in CALLED]
    assert sum(" br i1 " in text for text in texts) > 20
