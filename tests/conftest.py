"""Fixtures of several folders: expected texts with one switch to accept them, a tiny model built
once, and the `aotc` program in this process."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from aotc.aot.cli.program import run

# Torch and what tests make are some million objects that stay: by Python's own count of new objects
# all of them are walked hundreds of times, a fifth of the work of tests that compile. What must be
# freed at a certain moment is asked for by `gc.collect()` in its test.
gc.set_threshold(50_000, 10, 10)

# Before anything asks for the processor: `tests/masked/sitecustomize.py`, the switches that change
# it for this process and for those that tests start.
_MASK = Path(__file__).parent / "masked" / "sitecustomize.py"
if os.environ.get("AOTC_TESTS_WITHOUT") or os.environ.get("AOTC_TESTS_TILES"):
    _found = importlib.util.spec_from_file_location("masked_processor", _MASK)
    _found.loader.exec_module(importlib.util.module_from_spec(_found))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(_MASK.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )

# Torch's threads sleep between two ops: they would turn in circles for a while, on processors that
# the other test process and the compiler processes have work for.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Inductor compiles the few regions that tests leave to it by itself, without processes of its own,
# and tries no instruction sets: each costs a compiler's run for every fresh cache.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")

with suppress(ModuleNotFoundError):  # the GPU's tests draw no examples
    from hypothesis import HealthCheck, settings

    # A busy machine draws examples slowly: no test is about time.
    settings.register_profile("aotc", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("aotc")
sys.path.insert(0, str(Path(__file__).parent))
# For `benchmarks`; last, since the checkout's other folders have the names of installed packages.
sys.path.append(str(Path(__file__).parents[1]))

import kept_results  # noqa: E402
import null_driver  # noqa: E402, F401  # puts itself in the table of drivers
from expected_texts import (  # noqa: E402, F401  # fixtures and hooks of every test
    expect_text,
    golden,
    is_blessing,
    pytest_addoption,
    pytest_terminal_summary,
)
from in_turn import leave_out  # noqa: E402
from kept_kernels import KeepingBatch, folder_of_this_compiler, kept_kernels  # noqa: E402
from shared_workers import shared_workers  # noqa: E402

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


@pytest.fixture(scope="session", autouse=True)
def compiler_processes(request, tmp_path_factory):
    """Builds leave their compiler processes to each other, and what these compiled."""
    with ExitStack() as stack:
        stack.enter_context(shared_workers())
        if not os.environ.get("AOTC_TESTS_COMPILE"):
            kernels, results = kept_folders(request.config, tmp_path_factory)
            stack.enter_context(kept_kernels(folder_of_this_compiler(kernels)))
            kept_results.FOLDER = results
            kept_results.delete_unused(results)
        yield


@pytest.fixture
def compiled_anew(monkeypatch):
    """Inside, compiler processes compile what is asked for, also where it was compiled before."""
    monkeypatch.setattr(KeepingBatch, "answers", False)


def kept_folders(config, tmp_path_factory):
    """Folders of pytest's cache, or of the run where that is off or another user's."""
    names, own = ("kernels", "results"), getattr(config, "cache", None)
    if own is not None:
        with suppress(OSError):
            folders = [own.mkdir(name) for name in names]
            if all(each.stat().st_uid == os.getuid() for each in folders):
                return folders
    return [of_the_run(tmp_path_factory, f"kept-{name}") for name in names]


def of_the_run(tmp_path_factory, name):
    """A folder that all test processes of a run have."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / name
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("spec") / "tiny.py"
    path.write_text(TINY_MODEL)
    return path


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One artifact cache for all tests that do not ask how full it is, of all test processes."""
    return of_the_run(tmp_path_factory, "cache-of-tests")


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What has no turn is nightly, before markers are asked for.

    What is marked `slow` begins: a long test that comes last keeps one process busy while the
    others have nothing left to take.
    """
    leave_out(items)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: no search for garbage walks it again, of which each
    costs seconds among thousands of tests.

    And Dynamo measures no guards: for each graph it empties the processor's caches first, which is
    half of a small graph's compilation.
    """
    guards = sys.modules.get("torch._dynamo.guards")
    if hasattr(guards, "profile_guard_manager"):
        guards.profile_guard_manager = lambda *given: 0.0
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """What is left then is searched for garbage once: pytest does so five times, and Python again
    as it ends, each of which is a second after all tests."""
    gc.collect()
    gc.freeze()
