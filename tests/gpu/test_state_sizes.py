"""States whose sizes a session fixes, on a device: several sizes, forks, views, many sessions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aotc.runtime import errors, load
from aotc.runtime.drivers.cuda.errors import DeviceMemoryFull

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

SPEC = Path(__file__).parents[1] / "state" / "cached_decoder.py"


@pytest.fixture(scope="module")
def decoder():
    from aotc.aot.capture.user_code import import_code

    return import_code(str(SPEC))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sizes")
    command = [sys.executable, "-m", "aotc.aot.cli", "build", SPEC, "-o", folder / "bundle"]
    command += ["--target", "cuda", "--cache-dir", folder / "cache"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    with load(folder / "bundle", device="cuda") as opened:
        yield opened


def follow(module, session, at, counts):
    """Rows from place `at` on through both; the caches afterwards, without a copy."""
    with torch.no_grad():
        for rows in counts:
            x = torch.randn(module.keys.shape[0], rows, module.project.in_features)
            positions = torch.arange(at, at + rows)
            found = session(x.cuda(), positions.cuda())
            torch.testing.assert_close(found.cpu(), module(x, positions), rtol=2e-3, atol=2e-4)
            at += rows
    for name in ("keys", "values", "marks"):
        seen = torch.from_dlpack(session.state.view(name))
        assert seen.is_cuda
        wanted = module.get_buffer(name)
        torch.testing.assert_close(seen.cpu(), wanted, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(
    ("batch", "length", "counts"),
    [(2, 32, (5, 1, 1)), (1, 1, (1,)), (8, 64, (64,)), (3, 17, (16, 1)), (1, 64, (30, 34))],
)
def test_a_session_has_the_sizes_that_it_asks_for(program, decoder, batch, length, counts):
    with program.session(batch=batch, length=length) as session:
        follow(decoder.build_model(batch, length), session, 0, counts)
        session.reset()
        follow(decoder.build_model(batch, length), session, 0, counts)


def test_forks_go_on_by_themselves(program, decoder):
    with program.session(batch=2, length=12) as session:
        module, twin = decoder.build_model(2, 12), decoder.build_model(2, 12)
        follow(module, session, 0, (4,))
        twin.load_state_dict(module.state_dict())
        with session.fork() as fork:
            follow(module, session, 4, (1, 2))
            follow(twin, fork, 4, (3, 1))


def test_a_view_outlives_its_session(program, decoder):
    session = program.session(batch=1, length=4)
    follow(decoder.build_model(1, 4), session, 0, (3,))
    seen = torch.from_dlpack(session.state.view("marks"))
    session.close()
    assert seen.tolist() == [[0, 1, 2, -1]]


def test_sizes_that_differ_are_refused(program):
    with (
        program.session(batch=3, length=8) as session,
        pytest.raises(errors.SessionSizeDiffers, match="`batch` is 2"),
    ):
        session(torch.zeros(2, 1, 16).cuda(), torch.tensor([0]).cuda())


def test_a_thousand_sessions_or_a_refusal(program):
    sessions = []
    try:
        sessions += [program.session(batch=1, length=8) for _ in range(1000)]
    except DeviceMemoryFull as full:
        assert full.fields["needed"] > 0  # noqa: PT017  either ending is right
    assert sessions
    for session in sessions:
        session.close()
