"""Hand-written Triton kernels through the CPU target, against torch and Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import triton

from aotc import kernels
from aotc.kernels import driver
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features

sys.path.insert(0, str(Path(__file__).parent))
import extended_kernels
import interpret_kernels
from interpret_kernels import MODULES, NOT_INTERPRETED
from kernel_table import CASES

TOLERANCES = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.int32: 0}
"""Largest difference allowed, as a part of the expected values' scale."""


@pytest.fixture(params=["x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "x86-64-amx"])
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every instruction set that this machine has, one after the other."""
    row: str = request.param
    if not ISA_FEATURES[row] <= features():
        pytest.skip(f"this processor is not {row}")
    monkeypatch.setattr(driver, "_isa", lambda: row)
    with kernels.on_cpu():
        yield row
    for value in (each for module in MODULES for each in vars(module).values()):
        if isinstance(value, triton.runtime.JITFunction):
            value.device_caches.clear()


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """What Triton's interpreter gives; it binds at import, so it needs a process of its own."""
    path = tmp_path_factory.mktemp("interpreted") / "results.pt"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run(
        [sys.executable, interpret_kernels.__file__, str(path)], env=environment, check=True
    )
    found: dict[str, torch.Tensor] = torch.load(path)
    return found


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    wide, wanted = found.double(), expected.double()
    scale = wanted.abs().amax().clamp(min=1e-30)
    assert not wide.isnan().any()
    assert ((wide - wanted).abs().amax() / scale).item() <= TOLERANCES[found.dtype]


@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str, isa: str) -> None:
    assert_close(*CASES[name]())


@pytest.mark.parametrize("name", sorted(set(CASES) - NOT_INTERPRETED))
def test_against_interpreter(name: str, interpreted: dict[str, torch.Tensor], isa: str) -> None:
    assert_close(CASES[name]()[0], interpreted[name])


@pytest.mark.filterwarnings("ignore:kernel `picked_by_quotients` is compiled for x86-64-v3")
def test_a_kernel_that_ends_llvm_is_compiled_for_a_smaller_processor(isa):
    """`convolutions 20261201`; a typed error was all that its user got."""
    first, second, out = torch.randn(60).double(), torch.randn(2).double(), torch.zeros(60).double()
    extended_kernels.picked_by_quotients[(1,)](first, second, out, 8, 16)
    place = (torch.arange(60) + 2) % 60
    torch.testing.assert_close(out, first[place] + second[place // 10 % 2])
