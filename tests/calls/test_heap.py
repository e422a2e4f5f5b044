"""Results of several MB reuse the pages of those that were dropped, whatever the heap has else."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.triton]
SPEC = """
import torch
def model(x):
    return x + 1, x * 2
def example_inputs():
    return (torch.zeros(1_000_000),)
"""
# Blocks that end the heap are given back by glibc where it has not learnt to keep them: counted are
# the pages that the system had to zero for a call.
CALLS = """
import array, resource, sys
import aotc.runtime as runtime
if sys.argv[2] == "numpy":
    import numpy
    x = numpy.zeros(1_000_000, "f4")
else:
    x = array.array("f", bytes(4_000_000))
program = runtime.load(sys.argv[1], threads=1)
for _ in range(5):
    program(x)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    program(x)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory, cache):
    from aotc.aot.cli.program import run

    folder = tmp_path_factory.mktemp("large")
    (folder / "spec.py").write_text(SPEC)
    made = ["build", folder / "spec.py", "-o", folder / "out", "--quiet", "--cache-dir", cache]
    assert run([str(each) for each in made]) == 0
    return folder / "out"


@pytest.mark.parametrize("kind", ["numpy", "array"])
def test_results_take_no_fresh_pages(large, kind):
    asked = [sys.executable, "-c", CALLS, str(large), kind]
    found = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert float(found.stdout) < 100, "of 1,953 pages of results a call"
