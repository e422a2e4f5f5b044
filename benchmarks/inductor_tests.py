"""Inductor's own tests on the CPU with `backend="aotc"` in its place.

    python -m benchmarks.inductor_tests PATH/test_torchinductor.py [-o docs/inductor-tests.md]

PATH is the file of torch's source tree; it is not part of this project. Each test runs as it is
written, but that what it compiles goes to the back end. A test that fails with `aot_eager` too is
none of compilers' (it belongs to another version of torch, or counts kernels and reads code of
Inductor's) and does not apply. A region that our back end left to Inductor is counted.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import inspect
import json
import os
import signal
import sys
import unittest
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo

OWN = ("generated_kernel_count", "run_and_get", "FileCheck", "metrics.", "cpp_code", "fw_graph")
CONTROL = "aot_eager"
NEAR = 1e-6
OUTCOMES = {
    "passed": "passed, all of it ours",
    "left": "passed, with regions that went to Inductor",
    "sums": "passed but for the order of sums: within 1e-6 of the scale of f64's result",
    "wrong": "other numbers than expected",
    "failed": "failed otherwise",
    "slow": "took longer than the limit",
    "other": "does not apply: fails with `aot_eager` too, or is skipped by torch",
    "own": "does not apply: looks at what Inductor generates",
}


@dataclass(frozen=True)
class Result:
    name: str
    outcome: str
    reason: str = ""
    regions_left: int = 0


class _Slow(Exception):
    """A test ran into its limit."""


def _compiler(backend: str) -> Any:
    found = torch._dynamo.lookup_backend(backend)
    return lambda module, inputs, *rest, **named: found(module, inputs)


@contextlib.contextmanager
def swapped(tests: Any, backend: str) -> Iterator[None]:
    """Whatever the test file compiles goes to a back end."""
    real_compile, real_optimize = torch.compile, torch._dynamo.optimize

    def compiled(model: Any = None, **named: Any) -> Any:
        if named.get("backend", "inductor") == "inductor":
            named |= {"backend": backend}
            named.pop("options", None)
            named.pop("mode", None)
        return real_compile(model, **named)

    def optimized(compiler: Any = "inductor", *rest: Any, **named: Any) -> Any:
        return real_optimize(backend if compiler == "inductor" else compiler, *rest, **named)

    kept = tests.compile_fx
    tests.compile_fx = _compiler(backend)
    torch.compile, torch._dynamo.optimize = compiled, optimized
    try:
        yield
    finally:
        torch.compile, torch._dynamo.optimize = real_compile, real_optimize
        tests.compile_fx = kept


def _load(path: Path) -> Any:
    sys.path[:0] = [str(path.parent), str(path.parent.parent)]
    spec = importlib.util.spec_from_file_location("inductor_tests_of_torch", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _case(tests: Any) -> type[unittest.TestCase]:
    """The tests of the template for the CPU, with torch's own comparison."""
    names = [name for name in dir(tests.CommonTemplate) if name.startswith("test_")]
    body = {name: getattr(tests.CommonTemplate, name) for name in dir(tests.CommonTemplate)
            if not name.startswith("__")}  # fmt: skip
    assert names
    return type(
        "CpuTests", (tests.TestCase,), {**body, "common": tests.check_model, "device": "cpu"}
    )


def _run(case: type[unittest.TestCase], name: str, limit_s: int) -> tuple[str, str]:
    """(kind, reason) of one test: passed, skipped, wrong, slow or failed."""

    def ring(*_: Any) -> None:
        raise _Slow

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(limit_s)
    torch._dynamo.reset()
    torch.manual_seed(0)
    try:
        getattr(case(name), name)()
    except unittest.SkipTest as skipped:
        return "skipped", str(skipped)
    except _Slow:
        return "slow", f"more than {limit_s} s"
    except AssertionError as error:
        text = str(error)
        is_wrong = "are not close" in text or "are not equal" in text
        return ("wrong" if is_wrong else "failed"), f"AssertionError: {text[:160]}"
    except Exception as error:
        if "_Slow" in repr(error) or isinstance(error.__cause__, _Slow):
            return "slow", f"more than {limit_s} s"
        return "failed", f"{type(error).__name__}: {str(error)[:160]}"
    finally:
        signal.alarm(0)
    return "passed", ""


def judge(tests: Any, case: type[unittest.TestCase], name: str, limit_s: int) -> Result:
    from aotc.aot.dynamo.counting import counting

    before = counting().regions_left
    with swapped(tests, "aotc"):
        kind, reason = _run(case, name, limit_s)
    left = counting().regions_left - before
    if kind == "passed":
        return Result(name, "left" if left else "passed", "", left)
    if kind == "skipped":
        return Result(name, "other", reason)
    if any(word in inspect.getsource(getattr(case, name)) for word in OWN):
        return Result(name, "own", reason)
    with swapped(tests, CONTROL):
        control, said = _run(case, name, limit_s)
    if control != "passed":
        return Result(name, "other", said)
    if kind == "wrong" and _is_near(case, name, limit_s):
        kind = "sums"
    return Result(name, kind, " ".join(reason.split()), left)


def _is_near(case: type[unittest.TestCase], name: str, limit_s: int) -> bool:
    """Whether results in f32 are f64's within `NEAR` of their scale."""
    with patch.object(case, "common", _compare_by_scale):
        return _run(case, name, limit_s)[0] == "passed"


def _compare_by_scale(self: Any, model: Any, inputs: Any, *_: Any, **named: Any) -> None:
    assert not named.get("check_gradient")
    wide = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
            for x in inputs]  # fmt: skip
    expected = torch.utils._pytree.tree_leaves(model(*wide))
    found = torch._dynamo.optimize(_compiler("aotc"))(model)(*inputs)
    for one, other in zip(torch.utils._pytree.tree_leaves(found), expected, strict=True):
        error = (one.double() - other).abs().max()
        assert error <= NEAR * other.abs().max()


def page(results: list[Result], source: str) -> str:
    counts = Counter(row.outcome for row in results)
    good = sum(counts[name] for name in ("passed", "left", "sums"))
    applies = good + sum(counts[name] for name in ("wrong", "failed", "slow"))
    regions = sum(row.regions_left for row in results)
    lines = [
        "# Inductor's own tests",
        "",
        f"Written on {datetime.date.today()} by `python -m benchmarks.inductor_tests`; torch"
        f" {torch.__version__}, {source}.",
        "",
        f"Of {len(results)} tests {applies} apply; {good} of these passed"
        f" ({100 * good / max(applies, 1):.1f} %),"
        f" {good - counts['left']} of them without Inductor."
        f" {regions} regions went to Inductor.",
        "",
        "| outcome | tests |",
        "| --- | --- |",
        *(f"| {text} | {counts[name]} |" for name, text in OUTCOMES.items()),
        "",
    ]
    for name in ("wrong", "failed", "slow", "sums", "left", "own", "other"):
        rows = [row for row in results if row.outcome == name]
        if rows:
            lines += [f"## {OUTCOMES[name][0].upper()}{OUTCOMES[name][1:]}", ""]
            lines += [_line(row) for row in rows] + [""]
    return "\n".join(lines).rstrip() + "\n"


def _line(row: Result) -> str:
    said = " ".join(row.reason.split()).replace("|", "/").replace("`", "'")
    note = f"{row.regions_left} regions" if row.outcome == "left" else said
    return f"- `{row.name}`{': ' if note else ''}{note}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/inductor-tests.md"))
    parser.add_argument("--journal", type=Path, default=None, help="results so far, to go on from")
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--seconds", type=int, default=60, help="limit of one test")
    parser.add_argument(
        "--source", default="its own test file", help="what the file is, for the page"
    )
    given = parser.parse_args()
    tests = _load(given.path)
    case = _case(tests)
    case.setUpClass()
    names = sorted(name for name in dir(case) if name.startswith("test_") and given.only in name)
    known: dict[str, Result] = {}
    if given.journal is not None and given.journal.exists():
        rows = (json.loads(line) for line in given.journal.read_text().splitlines())
        known = {row["name"]: Result(**row) for row in rows}
    for name in names:
        if name in known:
            continue
        known[name] = judge(tests, case, name, given.seconds)
        print(known[name].outcome, name, known[name].reason[:100], flush=True)
        if given.journal is not None:
            with given.journal.open("a") as journal:
                journal.write(json.dumps(asdict(known[name])) + os.linesep)
    given.output.write_text(page([known[name] for name in names if name in known], given.source))


if __name__ == "__main__":
    main()
