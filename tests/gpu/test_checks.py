"""Data errors on a real device: calls stay asynchronous, the next wait raises, nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aotc.runtime import load
from aotc.runtime.errors import IndexOutOfRange

pytest.importorskip("torch")
pytest.importorskip("triton")

import sites
import torch

FOLDER = Path(sites.__file__).parent


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Every op whose data is checked, built for this machine's device."""
    out = tmp_path_factory.mktemp("checks") / "sites.aotc"
    command = [sys.executable, "-m", "aotc.aot.cli", "build", FOLDER / "sites.py", "-o", out]
    command += ["--target", "cuda", "--cache-dir", out.parent / "cache"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return out


def given(name, bad):
    """The model's inputs on the device, `bad` in the last place of one of them."""
    tensors = {key: torch.tensor(site.good) for key, site in sites.SITES.items()}
    if bad is not None:
        tensors[name][-1] = bad
    return [each.cuda() for each in tensors.values()]


def test_good_data_gives_what_eager_gives(bundle):
    with load(bundle) as program:
        found = program(*given("", None))
        program.synchronize()
        for site, tensor in zip(sites.SITES.values(), found, strict=True):
            torch.testing.assert_close(tensor.cpu(), site.run(torch.tensor(site.good)))


@pytest.mark.parametrize("name", sites.SITES)
def test_the_next_wait_raises(bundle, name):
    site = sites.SITES[name]
    with load(bundle) as program:
        for bad in site.bad:
            program(*given(name, bad))
            with pytest.raises(site.error) as caught:
                program.synchronize()
            assert caught.value.operation == site.operation
            program(*given("", None))
            program.synchronize()  # raised once; the device is as it was
    torch.cuda.synchronize()


def test_the_next_call_raises_and_a_call_with_host_arrays_does_so_itself(bundle):
    with load(bundle) as program:
        program(*given("embedding", 77))
        torch.cuda.synchronize()
        with pytest.raises(IndexOutOfRange, match="index 77 in `embedding`"):
            program(*given("", None))
        with pytest.raises(IndexOutOfRange, match="index 78 in `embedding`"):
            program(*(each.cpu() for each in given("embedding", 78)))
        program(*given("", None))


def test_bound_calls_replay_their_graph(bundle):
    tensors = given("", None)
    with load(bundle) as program, program.bind(*tensors) as bound:
        for _ in range(100):
            bound()
        torch.cuda.synchronize()
        bound()
        tensors[0][-1] = 4
        bound()
        torch.cuda.synchronize()
        with pytest.raises(IndexOutOfRange):
            bound()


def test_closing_raises_what_was_not_raised(bundle):
    program = load(bundle)
    program(*given("embedding", -1))
    with pytest.raises(IndexOutOfRange):
        program.close()
    torch.cuda.synchronize()
