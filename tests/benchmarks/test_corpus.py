"""The corpus of the GPU: every workload runs, builds and is right at its small sizes on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc import runtime  # noqa: E402
from aotc.aot.cli.program import run  # noqa: E402
from benchmarks.gpu.cliffs import render, write_spec  # noqa: E402
from benchmarks.gpu.cliffs_of import allowed, wider  # noqa: E402
from benchmarks.gpu.corpus.rows import CORPUS  # noqa: E402
from benchmarks.gpu.corpus.slower import SLOWER  # noqa: E402
from benchmarks.gpu.forward import difference  # noqa: E402
from benchmarks.suite import ROOT  # noqa: E402

SMALL = [name for name, row in CORPUS.items() if row.small is not None]
QUICK = ("kan", "sample", "heads", "stencil")
FAST = {"name": "rows", "symbol": "rows", "launches": 2, "time_us": 90.0, "limit_us": 9.0,
        "share_of_call": 0.5}  # fmt: skip


@pytest.mark.torch
@pytest.mark.triton
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in SMALL],
)
def test_a_small_form_is_right(name, tmp_path, cache):
    spec = write_spec(name, False, tmp_path)
    options = ["--cache-dir", str(cache), "--quiet"]
    assert run(["build", str(spec), "-o", str(tmp_path / "bundle"), *options]) == 0
    model, example = CORPUS[name].made(False)
    args, named = ((), example) if isinstance(example, dict) else (example, {})
    with torch.no_grad(), runtime.load(tmp_path / "bundle") as program:
        exact = wider(model, args, named, CORPUS[name].dtype)
        of_eager = difference(model(*args, **named), exact)
        found = difference(program(*args, **named), exact)
    assert found <= allowed(CORPUS[name].dtype, of_eager)


@pytest.mark.torch
@pytest.mark.triton
def test_a_workload_is_built_profiled_and_timed(tmp_path):
    command = [sys.executable, "-m", "benchmarks.gpu.cliffs_of", "kan", tmp_path, "off"]
    command += [tmp_path / "row.json", "--cpu"]
    subprocess.run(list(map(str, command)), cwd=ROOT, check=True)
    row = json.loads((tmp_path / "row.json").read_text())
    assert row["failed"] == ""
    assert set(row["ms"]) == {"aotc", "eager"}
    assert row["launches"] > 0
    assert "| kan |" in render({"device": "a processor"}, {"kan": row})


def test_the_page_says_why_workloads_are_slower():
    assert set(SLOWER) <= set(CORPUS)
    record = json.loads((ROOT / "docs" / "cliffs.json").read_text())
    built = {name: row for name, row in record["workloads"].items() if not row["failed"]}
    slower = {
        name for name, row in built.items()
        if min(ms for peer, ms in row["ms"].items() if peer != "aotc") < row["ms"]["aotc"]
    }  # fmt: skip
    assert slower == set(SLOWER)
    page = render(record["facts"], built)
    assert page.count("Not explained.") == 0
    assert all(reason in page for reason in SLOWER.values())


def test_the_page_names_what_is_slow_and_what_failed():
    row = {"failed": "", "build_s": 3.0, "ms": {"aotc": 2.0, "eager": 3.0, "eager + graph": 1.0},
           "launches": 4, "limit_ms": 0.5, "slow_kernels": [FAST]}  # fmt: skip
    page = render({"device": "none"}, {"kan": row, "dit": {"failed": "CompileError: no"}})
    assert "1 of 2 workloads" in page
    assert "| kan | 2.000 | 3.000 | 1.000 | – | 0.50× | 4 | 0.500 | 3 |" in page
    assert "| kan | `rows` | 2 | 90.0 | 9.0 | 50% | 10% |" in page
    assert "| dit | CompileError: no |" in page
