"""Fixtures of several folders: `golden` texts with one switch to accept them, a tiny model built
once, and the `aotc` program in this process."""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from aotc.aot.cli.program import run

# Before anything asks for the processor: `tests/masked/sitecustomize.py`, the switch that hides its
# AVX-512 from this process and from those that tests start.
_MASK = Path(__file__).parent / "masked" / "sitecustomize.py"
if os.environ.get("AOTC_TESTS_WITHOUT"):
    _found = importlib.util.spec_from_file_location("masked_processor", _MASK)
    _found.loader.exec_module(importlib.util.module_from_spec(_found))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(_MASK.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )

BLESS = "--bless"
BLESSED = "blessed"  # property of a test: a file that it wrote
with suppress(ModuleNotFoundError):  # the GPU's tests draw no examples
    from hypothesis import HealthCheck, settings

    # A busy machine draws examples slowly: no test is about time.
    settings.register_profile("aotc", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("aotc")
sys.path.insert(0, str(Path(__file__).parent))
# For `benchmarks`; last, since the checkout's other folders have the names of installed packages.
sys.path.append(str(Path(__file__).parents[1]))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(BLESS, action="store_true", help="write the expected texts anew")


@pytest.fixture
def is_blessing(request: pytest.FixtureRequest) -> bool:
    """Whether expected texts are to be written instead of compared."""
    return bool(request.config.getoption(BLESS))


@pytest.fixture
def expect_text(request: pytest.FixtureRequest, is_blessing: bool) -> Callable[[Path, str], None]:
    """`expect_text(path, text)` compares with the file at `path`; with `--bless` it writes the file
    where that differs, which the summary of the run lists."""
    root = request.config.rootpath
    command = f"pytest {request.node.path.relative_to(root).as_posix()} {BLESS}"

    def check(path: Path, text: str) -> None:
        expected = path.read_text() if path.is_file() else None
        if expected == text:
            return
        name = path.relative_to(root).as_posix()
        lines = list(
            difflib.unified_diff(
                (expected or "").splitlines(), text.splitlines(), name, "found", lineterm=""
            )
        )
        if not is_blessing:
            why = "does not exist" if expected is None else "differs"
            diff = "\n".join(lines)
            pytest.fail(f"{name} {why}:\n{diff}\nto accept what was found: {command}", False)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        report_blessed(request, name, lines if expected is not None else None)

    return check


def report_blessed(request: pytest.FixtureRequest, name: str, diff: Sequence[str] | None) -> None:
    """Let the summary of the run say that the file is new (None) or how it changed."""
    counts = [sum(line[:1] == sign for line in (diff or ())[2:]) for sign in "+-"]
    how = "new" if diff is None else f"+{counts[0]} -{counts[1]} lines"
    request.node.user_properties.append((BLESSED, f"{name} ({how})"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [each for found in terminalreporter.stats.values() for each in found]
    properties = [getattr(each, "user_properties", ()) for each in reports]
    blessed = sorted({text for rows in properties for name, text in rows if name == BLESSED})
    if blessed:
        terminalreporter.section(f"{len(blessed)} expected texts were written: read their diff")
        terminalreporter.write("\n".join([*blessed, ""]))


@pytest.fixture
def golden(request: pytest.FixtureRequest, expect_text: Callable) -> Callable[[str], None]:
    """`golden(text)` compares with `golden/<test file>/<test name>.txt` beside the test."""
    test_file = Path(str(request.node.path))
    name = re.sub(r"[^\w.\-]+", "-", request.node.name).strip("-")
    path = test_file.parent / "golden" / test_file.stem.removeprefix("test_") / f"{name}.txt"

    def check(text: str) -> None:
        expect_text(path, text)

    return check


TINY_MODEL = """
import torch


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(48)
        self.linear = torch.nn.Linear(48, 80)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(self.norm(x))).softmax(-1)


def build_model():
    return Tiny()


example_inputs = (torch.randn(12, 48),)
"""


@pytest.fixture(scope="session")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("spec") / "tiny.py"
    path.write_text(TINY_MODEL)
    return path


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One artifact cache for all tests that do not ask how full it is."""
    return tmp_path_factory.mktemp("cache-of-tests")


@pytest.fixture
def aotc(capsys):
    """Run `aotc` in this process: exit code, standard output, standard error."""

    def call(*arguments):
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def build(aotc, spec, cache):
    """Build the tiny model; the parsed `--json` report. Fails the test when the build fails."""

    def call(out, *options, cache_dir=cache):
        code, text, errors = aotc(
            "build", spec, "-o", out, "--json", "--quiet", "--cache-dir", cache_dir, *options
        )
        assert code == 0, errors
        return json.loads(text)

    return call


@pytest.fixture(scope="session")
def bundle(spec, cache, tmp_path_factory):
    """The tiny model as a bundle that no test changes."""
    out = tmp_path_factory.mktemp("bundle-of-tests") / "tiny"
    arguments = ["build", spec, "-o", out, "--quiet", "--debug", "--cache-dir", cache]
    assert run([str(argument) for argument in arguments]) == 0
    return out


@pytest.fixture
def fake_cuda(monkeypatch):
    """A double of the CUDA driver with one device of compute capability 9.0; see `fake_cuda.py`."""
    from fake_cuda import FakeCuda, install

    fake = install(monkeypatch, FakeCuda())
    yield fake
    fake.check()
