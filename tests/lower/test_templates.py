"""The templates run on their own, and a filled one keeps the text around its holes."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import numpy
import pytest

from aotc.aot.lower.kernel_file import fill
from aotc.kernels.templates.registry import FUNCTIONS, TEMPLATES, WHOLE

sys.path.insert(0, str(Path(__file__).parent))

from schedule_runner import Job

ROWS, COLUMNS, DEPTH = 21, 70, 45


@pytest.mark.triton
def test_templates_multiply_as_they_stand(tmp_path):
    random = numpy.random.default_rng(1)
    left = random.standard_normal((2, ROWS, DEPTH)).astype("float32")
    right = random.standard_normal((2, DEPTH, COLUMNS)).astype("float32")
    packed = numpy.zeros((2, DEPTH, 64), "float32")
    packed[0], packed[1, :, : COLUMNS - 64] = right[0, :, :64], right[0, :, 64:]
    sizes = {"M": ROWS, "N": COLUMNS, "K": DEPTH, "BM": 16, "BN": 64, "BK": 32}
    job = Job()
    for name, operands, batch in (
        ("matmul", (left, right), 2),
        ("matmul_packed", (left[0], packed), 1),
    ):
        template = TEMPLATES[name]
        names = [f"{name}_{at}" for at in range(3)]
        arrays = (*operands, numpy.full((batch, ROWS, COLUMNS), numpy.nan, "float32"))
        job.arrays |= dict(zip(names, arrays, strict=True))
        job.dtypes |= dict.fromkeys(names, "f32")
        job.launches.append(
            {
                # A job file has no Triton types: the accumulator's stands in the source.
                "source": template.text().replace("ACCUMULATOR)", "tl.float32)"),
                "function": template.function,
                "grid": (2, 2, batch),
                "config": {**sizes, "ACCUMULATOR": 0},
                "args": names,
            }
        )
    results = job.run(tmp_path)
    assert not job.errors, job.errors
    product = left @ right
    numpy.testing.assert_allclose(results["matmul_2"], product, atol=2e-5)
    numpy.testing.assert_allclose(results["matmul_packed_2"][0], product[0], atol=2e-5)


@pytest.mark.parametrize("name", TEMPLATES)
def test_filling_replaces_holes_and_constants(name):
    template = TEMPLATES[name]
    holes = {hole: [f"{hole}_line = 1", f"use({hole}_line)"] for hole in template.holes}
    constants = {"M": "5", "N": "6", "K": "7", "ACCUMULATOR": "tl.float64"}
    text = "\n".join(fill(template, holes, constants, ["before()"]))
    ast.parse(text)
    for hole in template.holes:
        assert f"use({hole}_line)" in text
        assert not re.search(rf"(?<![.\w]){hole}\(", text)
    if "before()" in text and "7" in text:
        assert text.index("before()") < re.search(r"\bfor \w+ in ", text).start()
    for constant in constants:
        assert not re.search(rf"\b{constant}\b", text)


def test_every_template_has_its_file():
    folder = Path(TEMPLATES["matmul"].text.__globals__["__file__"]).parent
    files = {path.name for path in folder.glob("*.py")} - {"__init__.py", "registry.py"}
    whole = {f"{name}.py" for name in WHOLE if "/" not in name}
    assert files == {*FUNCTIONS} | whole | {template.file for template in TEMPLATES.values()}
