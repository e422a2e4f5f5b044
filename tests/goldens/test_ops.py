"""The text of each op in kernels: `ops/OP_TARGET.txt`."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from op_texts import POINTWISE, REDUCED, pointwise_text, reduction_text

FOLDER = Path(__file__).parent / "ops"
TARGETS = ("cpu", "sm_90")


@pytest.mark.parametrize("target", TARGETS)
def test_pointwise_ops(target, expect_text):
    parts = (f"== {name}\n\n{pointwise_text(name, target)}" for name in POINTWISE)
    expect_text(FOLDER / f"pointwise_{target}.txt", "\n".join(parts))


@pytest.mark.parametrize(("name", "target"), [*itertools.product(REDUCED, TARGETS)])
def test_reductions(name, target, expect_text):
    expect_text(FOLDER / f"{name}_{target}.txt", reduction_text(name, target))


def test_every_file_is_of_an_op():
    names = {f"{name}_{target}" for name in ("pointwise", *REDUCED) for target in TARGETS}
    assert {path.stem for path in FOLDER.iterdir()} == names
