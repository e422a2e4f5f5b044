"""Decode layers of the Llama-1B shape in bf16, int8, int4 and 8-bit floats: times, bytes, errors.

python -m benchmarks.gpu.quantised [--layers 4] [--batch 1] [--calls 300]

Errors are against the model in f64; those of torchao's eager stand beside them where it imports.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aotc import runtime

KINDS = ("bf16", "int8", "int4", "fp8")
WIDTH, INNER, KEYS = 2048, 8192, 512  # Llama-3.2-1B
SPEC = """
import torch
from benchmarks.gpu.quantised import model_of
model = model_of({layers})
example_inputs = (torch.randn({batch}, 2048, dtype=torch.bfloat16),)
"""


class Layer(nn.Module):
    """The products of one decoder layer; attention, which has no weights, is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.after = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, KEYS, bias=False)
        self.value = nn.Linear(WIDTH, KEYS, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, INNER, bias=False)
        self.up = nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, WIDTH] → the same."""
        y = self.norm(x)
        mixed = self.query(y) + torch.cat([self.key(y), self.value(y)] * 2, -1)
        x = x + self.output(mixed)
        y = self.after(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def model_of(layers: int) -> nn.Module:
    """Random weights of the shape, the same each time."""
    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(layers))).to(torch.bfloat16).eval()


def main() -> None:
    """Build, time interleaved by events, and print one line a kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--calls", type=int, default=300)
    given = parser.parse_args()
    model = model_of(given.layers)
    x = torch.randn(given.batch, WIDTH, dtype=torch.bfloat16)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
    on_device = x.cuda()
    calls = {}
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder, "decode.py")
        spec.write_text(SPEC.format(layers=given.layers, batch=given.batch))
        for kind in KINDS:
            own = [] if kind == "bf16" else ["--quantize", kind]
            out = Path(folder, kind)
            command = [sys.executable, "-m", "aotc.aot.cli", "build", spec, "-o", out]
            subprocess.run([*command, "--target", "cuda", "--quiet", *own], check=True)
            stored = Path(out, "weights.safetensors").stat().st_size
            calls[kind] = runtime.load(out), stored
        for kind, config in _torchao().items():
            own = copy.deepcopy(model).cuda()
            try:
                _quantize(own, config)
                own(on_device)
            except Exception as error:
                print(f"torchao {kind}: {type(error).__name__}: {error}")
                continue
            calls[f"torchao {kind}"] = own, 0
        _print(calls, on_device, exact, given.calls)


def _torchao() -> dict[str, object]:
    try:
        import torchao.quantization as library
    except ImportError:
        return {}
    return {
        "int8": library.Int8WeightOnlyConfig(),
        "int4": library.Int4WeightOnlyConfig(group_size=64),
        "fp8": library.Float8WeightOnlyConfig(),
        "int8 dynamic": library.Int8DynamicActivationInt8WeightConfig(),
        "fp8 dynamic": library.Float8DynamicActivationFloat8WeightConfig(),
    }


def _quantize(model: nn.Module, config: object) -> None:
    from torchao.quantization import quantize_

    quantize_(model, config)


def _print(
    calls: dict[str, tuple[Callable[..., Any], int]],
    x: torch.Tensor,
    exact: torch.Tensor,
    count: int,
) -> None:
    times: dict[str, list[float]] = {kind: [] for kind in calls}
    with torch.no_grad():
        for turn in range(count + 20):
            for kind, (function, _) in calls.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                function(x)
                end.record()
                end.synchronize()
                if turn >= 20:
                    times[kind].append(start.elapsed_time(end) * 1e3)
        for kind, (function, stored) in calls.items():
            result = torch.as_tensor(function(x)).double().cpu()
            error = float((result - exact).abs().max() / exact.abs().max())
            print(
                f"{kind}: median {statistics.median(times[kind]):.1f} us, "
                f"least {min(times[kind]):.1f} us, {stored / 1e6:.1f} MB, error {error:.2e}"
            )


if __name__ == "__main__":
    main()
