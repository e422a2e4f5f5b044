"""Bundles that run ops through torch on a real device, against eager torch on the host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aotc.runtime import load
from aotc.runtime.errors import FallbackFailed

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

SPEC = Path(__file__).parents[1] / "fallback" / "ops_of_torch.py"
SEEDS = range(4)


@pytest.fixture(scope="module")
def case():
    from aotc.aot.capture.user_code import import_code

    return import_code(str(SPEC))


@pytest.fixture(scope="module")
def eager(case):
    with torch.no_grad():
        return {seed: case.model(*case.inputs(seed)) for seed in SEEDS}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fallback")
    command = [sys.executable, "-m", "aotc.aot.cli", "build", SPEC, "-o", folder / "bundle"]
    command += ["--target", "cuda", "--fallback", "torch", "--cache-dir", folder / "cache"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder / "bundle"


@pytest.fixture
def program(built, case):
    with load(built, device="cuda") as opened:
        yield opened


def on_device(case, seed):
    return [each.cuda() for each in case.inputs(seed)]


def assert_equal(found, expected):
    for name, tensor in expected.items():
        got = found[name].cpu()
        assert (got.dtype, got.shape) == (tensor.dtype, tensor.shape), name
        torch.testing.assert_close(got, tensor, rtol=2e-3, atol=2e-4, msg=name)


def test_arrays_on_the_device_and_on_the_host(program, case, eager):
    for seed in SEEDS:
        assert_equal(program(*on_device(case, seed)), eager[seed])
        assert_equal(program(*case.inputs(seed)), eager[seed])
    assert program.fallback_calls["aten::special_bessel_j0"] == 2 * 2 * len(SEEDS)


def test_calls_in_flight_on_several_streams(program, case, eager):
    streams = [torch.cuda.Stream() for _ in range(3)]
    found = []
    for number in range(60):
        seed = number % len(SEEDS)
        with torch.cuda.stream(streams[number % 3]):
            found.append((seed, program(*on_device(case, seed))))
    torch.cuda.synchronize()
    for seed, outputs in found:
        assert_equal(outputs, eager[seed])


def test_sessions_given_outputs_and_bound_calls(program, case, eager):
    with program.session() as session:
        first = session(*on_device(case, 0))
        session(*on_device(case, 1), out=first)
        assert_equal(first, eager[1])
    arrays = on_device(case, 2)
    with program.bind(*arrays) as bound:
        assert_equal(bound(), eager[2])
        for array, other in zip(arrays, case.inputs(3), strict=True):
            array.copy_(other)
        assert_equal(bound(), eager[3])


def test_the_callers_autocast_does_not_reach_the_ops(program, case, eager):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert_equal(program(*on_device(case, 1)), eager[1])


def test_what_torch_raises_leaves_the_program_usable(program, case, eager):
    with pytest.raises(FallbackFailed, match="linalg_solve"):
        program(*(torch.zeros_like(each) for each in on_device(case, 0)))
    assert_equal(program(*on_device(case, 1)), eager[1])


def test_programs_give_their_memory_back(built, case):
    with load(built, device="cuda") as program:  # torch's ops take workspaces at their first call
        program(*on_device(case, 0))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(5):
        with load(built, device="cuda") as program:
            program(*on_device(case, 0))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] >= free - (8 << 20)
