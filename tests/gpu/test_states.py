"""Bundles with buffers that a model changes, on a real device, call after call beside eager."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest

from aotc.runtime import load

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "decoder_step.py"
CALLS = 6


@pytest.fixture(scope="module")
def example():
    from aotc.aot.capture.user_code import import_code

    return import_code(str(EXAMPLE))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    command = [sys.executable, "-m", "aotc.aot.cli", "build", EXAMPLE, "-o", folder / "bundle"]
    command += ["--target", "cuda", "--cache-dir", folder / "cache"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    with load(folder / "bundle", device="cuda") as opened:
        yield opened


def step(seed, position):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, 1, 64, generator=generator), torch.tensor([position])


def assert_follows(call, module, seeds):
    """Both get the same steps; the caches lie on the device."""
    with torch.no_grad():
        for position, seed in enumerate(seeds):
            given = step(seed, position)
            found = call(*(each.cuda() for each in given))
            torch.testing.assert_close(found.cpu(), module(*given), rtol=2e-3, atol=2e-4)


def test_calls_follow_eager_and_begin_again(program, example):
    model = example.build_model()
    session = program.session()
    assert_follows(session, copy.deepcopy(model), range(CALLS))
    session.reset()
    assert_follows(session, copy.deepcopy(model), range(CALLS, 2 * CALLS))


def test_two_sessions_are_two_sequences(program, example):
    model = example.build_model()
    sessions = [program.session() for _ in range(2)]
    expected = [copy.deepcopy(model) for _ in sessions]
    with torch.no_grad():
        for position in range(CALLS):
            for seed, session, module in zip((10, 20), sessions, expected, strict=True):
                given = step(seed + position, position)
                found = session(*(each.cuda() for each in given))
                torch.testing.assert_close(found.cpu(), module(*given), rtol=2e-3, atol=2e-4)


def test_a_state_is_read_and_written(program, example):
    session = program.session()
    assert_follows(session, example.build_model(), range(3))
    name = program.states[0].name
    out = torch.empty(dict(example.build_model().named_buffers())[name].shape)
    session.state.read(name, out)
    assert out[:, :, :3].abs().sum() > 0
    assert out[:, :, 3:].abs().sum() == 0
