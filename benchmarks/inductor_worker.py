"""One of Inductor's tests in a process of its own, which ends where the test does not."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import signal
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo

from benchmarks.inductor_source import load_tests
from benchmarks.machine import without_directories

OURS = "aotc"
NEAR = "near"  # ours, judged by the scale of f64's results
NEAR_LIMIT = 1e-6
SHOWN = 240  # characters of a message
GRACE_S = 20  # after a test's own limit, where it does not hear the alarm
START_S = 300
WRONG = ("are not close", "are not equal", "not equal")


@dataclass(frozen=True)
class Outcome:
    """How one test ended: kind is passed, skipped, wrong, slow or failed."""

    kind: str
    reason: str = ""
    regions_left: int = 0
    graphs: int = 0  # that Dynamo gave the back end


class _Slow(Exception):
    """A test ran into its limit."""


def said(text: str) -> str:
    """A message in one line, without what belongs to this machine: its directories."""
    text = text.split("To execute this test")[0]
    return " ".join(without_directories(text).split())[:SHOWN]


class Swapped:
    """The back end that takes the place of Inductor, with the graphs that it was given counted."""

    def __init__(self, name: str) -> None:
        self.graphs = 0
        self._compile = torch._dynamo.lookup_backend(name)

    def __call__(self, module: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        self.graphs += 1
        return self._compile(module, inputs)


@contextlib.contextmanager
def swapped(tests: Any, name: str) -> Iterator[Swapped]:
    """Whatever the test file compiles goes to a back end."""
    backend = Swapped(name)
    real_compile = torch.compile
    real = {each: getattr(torch._dynamo, each) for each in ("optimize", "optimize_assert")}

    def chosen(asked: Any) -> Any:
        return backend if asked == "inductor" else asked

    def compiled(model: Any = None, **named: Any) -> Any:
        if named.get("backend", "inductor") == "inductor":
            named |= {"backend": backend}
            named.pop("options", None)
            named.pop("mode", None)
        return real_compile(model, **named)

    def optimizing(real: Callable[..., Any]) -> Callable[..., Any]:
        def optimized(*given: Any, **named: Any) -> Any:
            asked = named.pop("backend", given[0] if given else "inductor")
            return real(chosen(asked), *given[1:], **named)

        return optimized

    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(torch, "compile", compiled))
        for each, function in real.items():
            stack.enter_context(patch.object(torch._dynamo, each, optimizing(function)))
        stack.enter_context(patch.object(tests, "compile_fx", backend))
        counting = getattr(tests, "CompileCounterWithBackend", None)
        if counting is not None:
            stack.enter_context(
                patch.object(
                    tests, "CompileCounterWithBackend", lambda name: counting(chosen(name))
                )
            )
        yield backend


def case_of(tests: Any) -> type[unittest.TestCase]:
    """The tests of the template for the CPU, with torch's own comparison."""
    body = {name: getattr(tests.CommonTemplate, name) for name in dir(tests.CommonTemplate)
            if not name.startswith("__")}  # fmt: skip
    return type(
        "CpuTests", (tests.TestCase,), {**body, "common": tests.check_model, "device": "cpu"}
    )


def _call(case: type[unittest.TestCase], name: str) -> None:
    test = case(name)
    try:
        test.setUp()
        try:
            getattr(test, name)()
        finally:
            test.tearDown()
    finally:
        test.doCleanups()


def _run(case: type[unittest.TestCase], name: str, limit_s: int) -> tuple[str, str]:
    def ring(*_: Any) -> None:
        raise _Slow

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(limit_s)
    torch.manual_seed(0)
    try:
        _call(case, name)
    except unittest.SkipTest as skipped:
        return "skipped", said(str(skipped))
    except _Slow:
        return "slow", f"more than {limit_s} s"
    except AssertionError as error:
        text = str(error)
        is_wrong = any(word in text for word in WRONG)
        return ("wrong" if is_wrong else "failed"), said(f"AssertionError: {text}")
    except Exception as error:
        if "_Slow" in repr(error) or isinstance(error.__cause__, _Slow):
            return "slow", f"more than {limit_s} s"
        return "failed", said(f"{type(error).__name__}: {error}")
    finally:
        signal.alarm(0)
    return "passed", ""


def run_test(
    tests: Any, case: type[unittest.TestCase], name: str, mode: str, limit_s: int
) -> Outcome:
    """One test, by our back end or the one that the mode names."""
    from aotc.aot.dynamo.programs import counting

    before = counting().regions_left
    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(swapped(tests, OURS if mode == NEAR else mode))
        if mode == NEAR:
            stack.enter_context(patch.object(case, "common", _comparing_by_scale(backend)))
            stack.enter_context(patch.object(torch, "compile", _judging(torch.compile)))
        left = stack.enter_context(_hearing())
        kind, reason = _run(case, name, limit_s)
    if kind == "passed":
        reason = said("; ".join(dict.fromkeys(left)))
    return Outcome(kind, reason, counting().regions_left - before, backend.graphs)


@contextlib.contextmanager
def _hearing() -> Iterator[list[str]]:
    """What the back end says of regions that it leaves to others."""
    heard: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(  # type: ignore[method-assign]
        record.getMessage().removeprefix("aotc: ")
    )
    logger = logging.getLogger(OURS)
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)


def _comparing_by_scale(backend: Swapped) -> Callable[..., None]:
    """A comparison of results in f32 with f64's, by the scale of these."""

    def compare(_: Any, model: Any, inputs: Any, *__: Any, **named: Any) -> None:
        assert not named.get("check_gradient")
        expected = model(*_widened(inputs))
        _check_near(torch._dynamo.optimize(backend)(model)(*inputs), expected)

    return compare


def _judging(compiling: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler of functions whose results are judged by f64's, and replaced by eager's."""

    def compiled(model: Callable[..., Any], **named: Any) -> Callable[..., Any]:
        run = compiling(model, **named)

        def judged(*inputs: Any) -> Any:
            eager, wide = model(*inputs), model(*_widened(inputs))
            _check_near(run(*inputs), wide, eager)
            return eager

        return judged

    return compiled


def _widened(inputs: Any) -> list[Any]:
    return [_wide(x) if isinstance(x, torch.Tensor) else x for x in inputs]


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Floats as f64, complex numbers as pairs of f64, the others as they are."""
    if x.is_complex():
        return x.to(torch.complex128)
    return x.double() if x.is_floating_point() else x


def _check_near(found: Any, expected: Any, eager: Any = None) -> None:
    """Each result within `NEAR_LIMIT` of the scale of f64's, beyond eager's distance to it."""
    eager = found if eager is None else eager
    leaves = map(torch.utils._pytree.tree_leaves, (found, expected, eager))
    for one, wide, other in zip(*leaves, strict=True):
        limit = NEAR_LIMIT * wide.abs().max()
        if other is not one:
            limit = limit + (_wide(other) - wide).abs().max()
        assert (_wide(one) - wide).abs().max() <= limit


def _serve(path: Path, is_dynamic: bool, link: Connection) -> None:
    """Run the tests that are asked for, until the other side closes."""
    tests = load_tests(path)
    torch._dynamo.config.assume_static_by_default = not is_dynamic
    case = case_of(tests)
    case.setUpClass()
    link.send(
        (sorted(name for name in dir(case) if name.startswith("test_")), tests.dropped_checks)
    )
    with contextlib.suppress(EOFError):
        while True:
            name, mode, limit_s = link.recv()
            link.send(run_test(tests, case, name, mode, limit_s))


class Worker:
    """A process that runs tests one after the other; one that does not answer is replaced.

    is_dynamic: all sizes are taken to vary, from the first call on.
    """

    def __init__(self, path: Path, is_dynamic: bool = False) -> None:
        self._path, self._is_dynamic = path, is_dynamic
        self.names: list[str] = []
        self.dropped_checks: dict[str, int] = {}
        self._process: Any = None

    def start(self) -> None:
        """Read the file, in a process of its own, and learn its tests' names."""
        if self._process is not None:
            return
        context = multiprocessing.get_context("spawn")
        self._link, theirs = context.Pipe()
        given = (self._path, self._is_dynamic, theirs)
        self._process = context.Process(target=_serve, args=given, daemon=False)
        self._process.start()
        theirs.close()
        if not self._link.poll(START_S):
            raise TimeoutError(f"the test file was not read within {START_S} s")
        self.names, self.dropped_checks = self._link.recv()

    def run(self, name: str, mode: str, limit_s: int) -> Outcome:
        """One test; a process that ends or hangs in it is an outcome."""
        self.start()
        self._link.send((name, mode, limit_s))
        if not self._link.poll(limit_s + GRACE_S):
            self.stop()
            return Outcome("slow", f"more than {limit_s} s", graphs=1)
        try:
            return self._link.recv()  # type: ignore[no-any-return]
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            self.stop()
            return Outcome("failed", f"the process ended with {code}", graphs=1)

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._link.close()
            self._process.kill()
            self._process.join()
            self._process = None
