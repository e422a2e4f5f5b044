"""Triton's own tests of its language, run on the CPU target.

    python -m benchmarks.triton_language FOLDER [--each 3] [-k EXPRESSION] [-o RESULTS.json]

FOLDER holds Triton's `python/test` (of the release that is installed; from 3.9 on `python` with its
`conftest.py`), which is not part of this project. Each case ends as one of `OUTCOMES`; `--each N`
draws N cases of each function, evenly.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

OUTCOMES = {
    "passed": "passed",
    "wrong": "numbers or behaviour differ",
    "refused": "not supported, and the error names what",
    "failed": "ended by another error",
    "gpu": "concerns GPUs: the test skips itself, or reads PTX, layouts or GPU counters",
}
FILES = (
    "test_annotations", "test_block_pointer", "test_conversions", "test_core", "test_decorator",
    "test_frontend", "test_libdevice", "test_matmul", "test_module", "test_mxfp", "test_pipeliner",
    "test_random", "test_standard", "test_subprocess", "test_tensor_descriptor", "test_tuple",
)  # fmt: skip
REFUSALS = (
    "is not supported by the cpu target", "are not supported by the cpu target",
    "not supported in this architecture",  # Triton's own, of 8-bit floats that no x86 row has
)  # fmt: skip
OF_GPUS = (
    "KeyError: 'ptx'", "KeyError: 'ttgir'", "KeyError: 'amdgcn'", "KeyError: 'sass'",
    "KeyError: 'cubin'", "torch.cuda", "Torch not compiled with CUDA", "Unknown key: 'ttgir'",
    "pin_memory=True requires a CUDA",
)  # fmt: skip
OF_THREADS = (
    "device_print_scalar", "no_arg_print", "print_no_arg", "test_zero_strided_tensors",
    "test_pointer_arguments",
)  # fmt: skip
"""Cases that count a GPU's threads (what is one for a program is printed by each), name CUDA, or
want a tensor of the CPU to be an error."""
BEYOND = ("test_index1d",)
"""Tests with a kernel that writes beyond its tensor, where a GPU's allocator has room and this
process its heap (`debug="memory"` names the line): not run, and counted as concerning GPUs."""


class Recorder:
    """A plugin of pytest: draws cases, and keeps how each of them ended."""

    def __init__(self, each: int) -> None:
        self.each = each
        self.outcomes: dict[str, tuple[str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self.each:
            self._draw(items)
        for item in items:
            if item.nodeid.split("::")[-1].split("[")[0] in BEYOND:
                self.outcomes[item.nodeid] = ("gpu", "")
        items[:] = [item for item in items if item.nodeid not in self.outcomes]

    def _draw(self, items: list[Any]) -> None:
        functions: dict[str, list[Any]] = defaultdict(list)
        for item in items:
            functions[item.nodeid.split("[")[0]].append(item)
        items[:] = [x for cases in functions.values() for x in _drawn(cases, self.each)]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped:
            is_gpu = not hasattr(report, "wasxfail")
            self.outcomes[report.nodeid] = ("gpu" if is_gpu else "passed", "")
        elif report.failed:
            how, why = _failure(report)
            is_of_threads = any(name in report.nodeid for name in OF_THREADS)
            self.outcomes[report.nodeid] = ("gpu" if is_of_threads else how, why)
        elif report.when == "call":
            self.outcomes[report.nodeid] = ("passed", "")


def _drawn(cases: list[Any], count: int) -> list[Any]:
    """`count` of the cases, evenly over all."""
    if len(cases) <= count:
        return cases
    return [cases[(2 * place + 1) * len(cases) // (2 * count)] for place in range(count)]


def _failure(report: Any) -> tuple[str, str]:
    text = str(report.longrepr)
    crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
    if any(mark in text for mark in REFUSALS):
        return "refused", next(x for x in text.splitlines()[::-1] if any(m in x for m in REFUSALS))
    if any(mark in crash for mark in OF_GPUS):
        return "gpu", crash
    is_wrong = crash.startswith(("AssertionError", "assert", "Failed"))
    return ("wrong" if is_wrong else "failed"), crash or text[-300:]


def run(folder: Path, each: int, expression: str, files: list[str]) -> dict[str, tuple[str, str]]:
    """Runs the tests in this process; returns the outcome and the reason of each case."""
    import pytest
    import torch

    from aotc import kernels

    kernels.use_cpu()
    # Skips ask for it as the files are imported; kernels are compiled as for this one.
    torch.cuda.get_device_capability = lambda *_: (9, 0)  # type: ignore[misc, assignment]
    recorder = Recorder(each)
    language = next(folder.rglob("language/test_core.py")).parent
    # Not every release has each of them.
    paths = [str(path) for name in files if (path := language / f"{name}.py").exists()]
    command = ["-q", "-p", "no:cacheprovider", "--tb=short", "--no-header", "--device=cpu", "-rN"]
    command += ["--show-capture=no", "--continue-on-collection-errors", f"--rootdir={folder}"]
    command += ["--import-mode=prepend", *paths]
    pytest.main([*command, *(["-k", expression] if expression else [])], plugins=[recorder])
    return recorder.outcomes


def report(outcomes: dict[str, tuple[str, str]]) -> str:
    """A table of counts by file, then the reasons by how often they come."""
    names = sorted({case.split("::")[0].rpartition("/")[2] for case in outcomes})
    lines = [f"{'file':28}" + "".join(f"{x:>9}" for x in OUTCOMES)]
    for name in (*names, ""):
        counts = Counter(how for case, (how, _) in outcomes.items() if f"{name}::" in case)
        lines.append(f"{name or 'all':28}" + "".join(f"{counts[x]:9}" for x in OUTCOMES))
    reasons = Counter(
        (how, reason.strip().replace("\n", " ")[:150], case.split("::")[1].split("[")[0])
        for case, (how, reason) in outcomes.items()
        if how not in ("passed", "gpu")
    )
    lines += [f"{n:5} {how:8} {test}: {why}" for (how, why, test), n in reasons.most_common()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--each", type=int, default=0, help="cases of each function; 0 is all")
    parser.add_argument("-k", dest="expression", default="")
    parser.add_argument("--files", nargs="*", default=list(FILES))
    parser.add_argument("-o", dest="output", type=Path)
    given = parser.parse_args()
    os.environ["AOTC_TRITON_CPU"] = "1"  # of the processes that tests start
    os.environ.setdefault("TRITON_CACHE_DIR", str(given.folder.resolve() / ".triton"))
    outcomes = run(given.folder.resolve(), given.each, given.expression, given.files)
    if given.output:
        given.output.write_text(json.dumps(outcomes, indent=1))
    sys.stdout.write(report(outcomes) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
