"""Bundles of dynamic shapes on a real device, compared with eager torch at many sizes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aotc.runtime import load
from aotc.runtime.drivers.cuda.errors import DeviceMemoryFull
from aotc.runtime.errors import SizeOutOfRange

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch
from varying import CASES, spec_text

TOLERANCES = {torch.float16: 1e-2, torch.float32: 2e-4}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds a case for this machine's device; the bundle's path."""
    folder = tmp_path_factory.mktemp("dynamic")

    def make(name, tune="off"):
        out = folder / f"{name}-{tune}.aotc"
        if not out.exists():
            spec = folder / f"{name}.py"
            spec.write_text(spec_text(name))
            command = [sys.executable, "-m", "aotc.aot.cli", "build", spec, "-o", out]
            command += ["--target", "cuda", "--tune", tune, "--cache-dir", folder / "cache"]
            done = subprocess.run(
                list(map(str, command)), capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr + done.stdout
        return out

    return make


def leaves(result):
    return torch.utils._pytree.tree_leaves(result)


def assert_agrees(found, expected, dtype, sizes):
    for got, want in zip(leaves(found), leaves(expected), strict=True):
        assert got.shape == want.shape, sizes
        scale = max(1.0, float(want.float().abs().max()))
        difference = float((got.float() - want.float()).abs().max())
        assert difference <= TOLERANCES[dtype] * scale, (sizes, difference, scale)


def expected_of(case, model, inputs):
    """Eager torch on the device, in float32, so that only our rounding counts."""
    exact = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    with torch.no_grad(), exact:
        return model.float().cuda()(*(each.float().cuda() for each in inputs))


@pytest.mark.parametrize("name", CASES)
def test_every_size_gives_the_numbers_of_eager_torch(name, built):
    case = CASES[name]
    model = case.model()
    with load(built(name), device="cuda") as program:
        for sizes in (*case.sizes, *case.sizes[::-1]):
            inputs = case.inputs(sizes)
            found = program(*(each.cuda() for each in inputs))
            torch.cuda.synchronize()
            assert_agrees(found, expected_of(case, model, inputs), case.dtype, sizes)


def test_host_arrays_and_other_streams(built):
    case = CASES["perceptron"]
    model = case.model()
    with load(built("perceptron"), device="cuda") as program:
        for sizes in case.sizes:
            inputs = case.inputs(sizes)
            expected = expected_of(case, model, inputs)
            found = program(*inputs)
            assert found.device.type == "cpu"
            assert_agrees(found.cuda(), expected, case.dtype, sizes)
        found = []
        streams = [torch.cuda.Stream() for _ in case.sizes]
        given = [tuple(each.cuda() for each in case.inputs(sizes)) for sizes in case.sizes]
        torch.cuda.synchronize()
        for stream, inputs in zip(streams, given, strict=True):
            with torch.cuda.stream(stream):
                found.append(program(*inputs))
        torch.cuda.synchronize()
        for sizes, inputs, got in zip(case.sizes, given, found, strict=True):
            assert_agrees(got, expected_of(case, model, inputs), case.dtype, sizes)


def test_more_shapes_than_are_kept(built):
    case = CASES["perceptron"]
    model = case.model()
    with load(built("perceptron"), device="cuda") as program:
        for rows in (*range(1, 80, 3), 1, 4):
            inputs = case.inputs((rows,))
            found = program(*(each.cuda() for each in inputs))
            torch.cuda.synchronize()
            assert_agrees(found, expected_of(case, model, inputs), case.dtype, rows)
        with pytest.raises(SizeOutOfRange):
            program(torch.zeros(4097, 256, dtype=torch.float16, device="cuda"))


def test_memory_does_not_grow_with_shapes(built):
    """Inputs and outputs apart, what a session needs is there when it opens."""
    case = CASES["encoder"]
    given = [tuple(each.cuda() for each in case.inputs(sizes)) for sizes in case.sizes]
    with load(built("encoder"), device="cuda") as program:
        outs = [torch.empty_like(inputs[0]) for inputs in given]
        program(*given[0], out=outs[0])
        torch.cuda.synchronize()
        free, _ = torch.cuda.mem_get_info()
        for inputs, out in zip(given, outs, strict=True):
            program(*inputs, out=out)
        torch.cuda.synchronize()
        # Graphs take some memory of the driver's; an arena of the largest shape would be more.
        assert free - torch.cuda.mem_get_info()[0] < 64 << 20


def test_an_arena_that_has_no_room(built, monkeypatch):
    """Refused when the program is loaded, not by a call, where all memory is taken at once."""
    monkeypatch.setenv("AOTC_DYNAMIC_ARENA", "maximum")
    bundle = built("encoder")  # the build needs memory too
    taken = torch.empty(max(0, torch.cuda.mem_get_info()[0] - (48 << 20)), dtype=torch.uint8,
                        device="cuda")  # fmt: skip
    try:
        with pytest.raises(DeviceMemoryFull):
            load(bundle, device="cuda")
    finally:
        del taken
        torch.cuda.empty_cache()


def test_tuned_for_each_range(built):
    case = CASES["perceptron"]
    model = case.model()
    with load(built("perceptron", "quick"), device="cuda") as program:
        for sizes in case.sizes:
            inputs = case.inputs(sizes)
            found = program(*(each.cuda() for each in inputs))
            torch.cuda.synchronize()
            assert_agrees(found, expected_of(case, model, inputs), case.dtype, sizes)
