"""Triton kernels drawn at random: as Triton's interpreter has them, on each instruction set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aotc import kernels
from aotc.kernels import driver
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features

sys.path.insert(0, str(Path(__file__).parent))
import drawn_kernels

SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 30))]
KERNELS = 12


@pytest.mark.parametrize("seed", SEEDS)
def test_results(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, expected = tmp_path / "drawn.py", tmp_path / "expected.pt"
    path.write_text(drawn_kernels.text(seed, KERNELS))
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, drawn_kernels.__file__, str(path), str(expected)]
    subprocess.run(command, env=environment, check=True)
    interpreted = torch.load(expected)
    for isa in ("x86-64-v3", "x86-64-v4"):
        if not ISA_FEATURES[isa] <= features():
            continue
        monkeypatch.setattr(driver, "_isa", lambda isa=isa: isa)
        with kernels.on_cpu():
            found = drawn_kernels.results(str(path))
        for name, wanted in interpreted.items():
            assert isinstance(wanted, torch.Tensor), f"{name}: {wanted}"
            assert isinstance(found[name], torch.Tensor), f"{isa}, {name}: {found[name]}"
            assert torch.equal(found[name], wanted), f"{isa}, {name}"
