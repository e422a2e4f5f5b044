"""Convolutions in bf16 or f32 one by one, beside torch and what the processor's registers do.

    python -m benchmarks.narrow_convolutions [--only WORD] [--dtype float32] [--rounds 20]
        [--before CHECKOUT]

Each is a layer of ResNet-50 at 4 images or one like it, channels last, with a bias and a ReLU
behind it. It takes turns with eager torch (oneDNN) and `torch.compile` with freezing in one process
on one thread, and so does a loop of `VDPBF16PS` or `TDPBF16PS` on registers, since the clock of a
machine that others use moves. The fastest call of each counts. `--before` has another checkout of
this repository build the same layers, which take turns too.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aotc.runtime import load
from aotc.runtime.drivers.cpu.driver import best_isa, features
from benchmarks.narrow_products import peak_gflops

ROOT = Path(__file__).parent.parent
CALLS = 5  # of a contender in one turn


@dataclass(frozen=True, slots=True)
class Case:
    """A convolution of `images` × `channels` × `size` × `size`."""

    images: int
    channels: int
    size: int
    filters: int
    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    is_residual: bool = False

    @property
    def name(self) -> str:
        """How a row of the table is called."""
        words = [f"{self.images} × {self.channels} × {self.size}² → {self.filters}"]
        words.append(f"{self.kernel} × {self.kernel}")
        words += [f"stride {self.stride}"] if self.stride > 1 else []
        words += [f"dilated {self.dilation}"] if self.dilation > 1 else []
        words += [f"{self.groups} groups"] if self.groups > 1 else []
        words += ["residual"] if self.is_residual else []
        return ", ".join(words)

    @property
    def out(self) -> int:
        """Rows of the result."""
        reach = (self.kernel - 1) * self.dilation + 1
        return (self.size + 2 * self.padding - reach) // self.stride + 1

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        depth = self.channels // self.groups * self.kernel**2
        return 2 * self.images * self.out**2 * self.filters * depth


CASES = (
    Case(4, 3, 224, 64, 7, 2, 3),
    Case(4, 3, 224, 32, 3, 2, 1),
    Case(4, 3, 224, 64, 3, 1, 1),
    Case(4, 3, 224, 96, 4, 4),
    Case(4, 3, 224, 64, 11, 4, 2),
    Case(4, 3, 224, 768, 16, 16),
    Case(64, 1, 28, 32, 5, 1, 2),
    Case(4, 2, 128, 64, 9, 1, 4),
    Case(4, 12, 56, 64, 3, 1, 1),
    Case(4, 24, 56, 64, 3, 1, 1),
    Case(4, 64, 56, 64, 3, 1, 1),
    Case(4, 128, 28, 128, 3, 1, 1),
    Case(4, 256, 14, 256, 3, 1, 1),
    Case(4, 512, 7, 512, 3, 1, 1),
    Case(4, 128, 56, 128, 3, 2, 1),
    Case(4, 256, 28, 256, 3, 2, 1),
    Case(4, 64, 56, 256, 1, is_residual=True),
    Case(4, 256, 56, 64, 1),
    Case(4, 128, 28, 512, 1, is_residual=True),
    Case(4, 512, 28, 128, 1),
    Case(4, 256, 14, 1024, 1, is_residual=True),
    Case(4, 1024, 14, 256, 1),
    Case(4, 512, 7, 2048, 1, is_residual=True),
    Case(4, 2048, 7, 512, 1),
    Case(4, 256, 56, 512, 1, 2),
    Case(4, 32, 65, 32, 3, 1, 1),
    Case(4, 96, 33, 80, 3, 1, 2, 2),
    Case(4, 128, 28, 128, 3, 1, 1, 1, 8),
    Case(4, 128, 56, 128, 3, 1, 1, 1, 32),
    Case(4, 256, 56, 256, 3, 2, 1, 1, 32),
    Case(4, 256, 28, 256, 3, 1, 1, 1, 32),
    Case(4, 512, 14, 512, 3, 1, 1, 1, 32),
    Case(4, 1024, 7, 1024, 3, 1, 1, 1, 32),
    Case(4, 64, 56, 64, 3, 1, 1, 1, 4),
    Case(4, 168, 28, 168, 3, 1, 1, 1, 7),
    Case(4, 192, 28, 192, 3, 1, 1, 1, 4),
    Case(4, 400, 28, 400, 3, 2, 1, 1, 25),
    Case(4, 448, 28, 448, 3, 1, 1, 1, 8),
    Case(4, 240, 28, 240, 1, 1, 0, 1, 3),
)

SPEC = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d({channels}, {filters}, {kernel}, {stride}, {padding}, {dilation},
                               {groups})

    def forward(self, x, *more):
        found = self.layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return torch.relu(found + more[0] if more else found)


def drawn(*shape):
    return torch.randn(*shape).to(torch.{dtype})


def build_model():
    torch.manual_seed(0)
    return Layer().to(torch.{dtype}).eval().to(memory_format=torch.channels_last)


example_inputs = (drawn({images}, {size}, {size}, {channels}),)
if {is_residual}:
    example_inputs += (drawn({images}, {out}, {out}, {filters}),)
"""


def built(text: str, folder: Path, checkout: Path, target: str) -> Path:
    """A bundle of a spec, by the compiler of a checkout."""
    spec, bundle = folder / "spec.py", folder / f"bundle{len(list(folder.iterdir()))}"
    spec.write_text(text)
    path = os.pathsep.join((str(checkout / "scripts" / "alias"), str(checkout)))
    command = [sys.executable, "-m", "aotc.aot.cli", "build", str(spec), "-o", str(bundle)]
    command += ["--target", target, "--quiet", "--tune", "off"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path}, cwd=checkout)
    return bundle


def contenders(
    text: str, bundles: dict[str, Path], peers: list[str]
) -> dict[str, Callable[[], Any]]:
    """What takes turns, by name."""
    import torch

    made: dict[str, Any] = {}
    exec(text, made)
    inputs, model = made["example_inputs"], made["build_model"]()
    found: dict[str, Callable[[], Any]] = {}
    for name, bundle in bundles.items():
        found[name] = partial(load(bundle), *inputs)
    if "eager" in peers:
        found["eager"] = partial(model, *inputs)
    if "compile" in peers:
        found["compile"] = partial(torch.compile(model), *inputs)
    with torch.no_grad():
        expected = made["build_model"]().float()(*(each.float() for each in inputs))
        for name, call in found.items():
            result = call()
            result = result[0] if isinstance(result, tuple | list) else result
            error = (torch.as_tensor(result).float() - expected).abs().max() / expected.abs().max()
            assert error < 2e-2, (name, error)
    return found


def timed(call: Callable[[], Any]) -> float:
    """Seconds of the fastest of some calls."""
    best = math.inf
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print a row for each convolution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names have this")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--dtype", default="bfloat16", help="a name of torch's")
    parser.add_argument("--before", type=Path, help="another checkout, which takes turns")
    parser.add_argument("--peers", nargs="*", default=["eager", "compile"])
    parser.add_argument("--target", default=f"cpu-{best_isa(features())}")
    given = parser.parse_args()
    os.environ.update(AOTC_THREADS="1", TORCHINDUCTOR_FREEZING="1")
    import torch

    torch.set_num_threads(1)
    checkouts = {"aotc": ROOT} | ({"before": given.before} if given.before else {})
    names = [*checkouts, *given.peers]
    print(f"target {given.target}, µs; in brackets the part of products of bf16 on registers")
    print("| convolution | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 1))
    for case in CASES:
        if given.only not in case.name:
            continue
        fields = {name: getattr(case, name) for name in (*Case.__dataclass_fields__, "out")}
        text = SPEC.format(**fields, dtype=given.dtype)
        with tempfile.TemporaryDirectory() as place, torch.no_grad():
            folder = Path(place)
            bundles = {k: built(text, folder, v, given.target) for k, v in checkouts.items()}
            calls = contenders(text, bundles, given.peers)
            best, peak = dict.fromkeys(names, math.inf), 0.0
            for turn in range(given.rounds):
                peak = max(peak, peak_gflops(given.target)) if turn % 10 == 0 else peak
                for name, call in calls.items():
                    best[name] = min(best[name], timed(call))
        cells = [
            f"{1e6 * best[name]:.0f} ({case.operations / best[name] / 1e9 / peak:.0%})"
            for name in names
        ]
        print(f"| {case.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
