"""Gradients of convolutions' weights, and of pooling, on the CPU: ours beside eager's.

    python -m benchmarks.weight_gradients [--threads 1] [--rounds 21]

Calls of `convolution_backward` for the weights alone by `torch.compile(backend="aotc")` and by
eager, and both passes of ReLU and maximum pooling, in turns in one process; medians in
milliseconds, and the median of the ratios eager / aotc.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from aotc.aot.dynamo import aotc
from benchmarks.report import table

ROWS = (  # samples, channels, extent, filters, kernel, stride, padding, dilation
    (8, 64, 56, 128, 3, 2, 1, 1),
    (8, 128, 28, 256, 3, 2, 1, 1),
    (8, 256, 14, 512, 3, 2, 1, 1),
    (4, 3, 224, 64, 7, 2, 3, 1),
    (8, 256, 56, 512, 1, 2, 0, 1),
    (8, 128, 56, 128, 3, 2, 1, 1),
    (4, 31, 57, 64, 3, 2, 1, 1),
    (2, 31, 57, 45, 5, 3, 2, 1),
    (4, 32, 57, 64, 3, 2, 2, 2),
    (8, 64, 56, 64, 3, 1, 1, 1),
    (8, 256, 14, 256, 3, 1, 1, 1),
    (8, 512, 7, 512, 3, 1, 1, 1),
    (8, 64, 56, 256, 1, 1, 0, 1),
    (8, 128, 28, 512, 1, 1, 0, 1),
)
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def of_weights(row: tuple[int, ...], dtype: torch.dtype) -> Callable[[], Tensor]:
    """What computes the gradient of the weights of a row of the table."""
    samples, channels, extent, filters, kernel, stride, padding, dilation = row
    x = torch.randn(samples, channels, extent, extent, dtype=dtype)
    weight = torch.randn(filters, channels, kernel, kernel, dtype=dtype)
    steps = ([stride] * 2, [padding] * 2, [dilation] * 2)
    gradient = torch.randn_like(torch.conv2d(x, weight, None, *steps))
    rest = (None, *steps, False, [0, 0], 1, [False, True, False])

    def run(gradient: Tensor, x: Tensor, weight: Tensor) -> Any:
        return torch.ops.aten.convolution_backward(gradient, x, weight, *rest)[1]

    return lambda call=run: call(gradient, x, weight)


def of_pooling(size: int, stride: int, padding: int, dtype: torch.dtype) -> Callable[[], Tensor]:
    """What computes both passes of ReLU and maximum pooling."""
    x = torch.randn(8, 64, 112, 112, dtype=dtype, requires_grad=True)

    def run(x: Tensor) -> Tensor:
        return functional.max_pool2d(torch.relu(x), size, stride, padding)

    gradient = torch.randn_like(run(x))
    return lambda call=run: torch.autograd.grad(call(x), x, gradient)[0]


def measured(made: Callable[..., Tensor], rounds: int) -> list[str]:
    """Our milliseconds, eager's, and their ratio."""
    torch._dynamo.reset()
    (plain,) = made.__defaults__ or ()
    compiled = torch.compile(plain, backend=aotc, options={"fallback": "error"})
    for call in (compiled, plain):
        made(call)
    taken: list[tuple[float, float]] = []
    for _ in range(rounds):
        times = []
        for call in (compiled, plain):
            started_s = time.perf_counter()
            made(call)
            times.append((time.perf_counter() - started_s) * 1e3)
        taken.append((times[0], times[1]))
    ours, eager = (statistics.median(column) for column in zip(*taken, strict=True))
    ratio = statistics.median(other / own for own, other in taken)
    return [f"{ours:.2f}", f"{eager:.2f}", f"{ratio:.2f}"]


def main() -> None:
    """Measure all rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=21)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows = []
    for name, dtype in TYPES.items():
        for row in ROWS:
            shape = "{} × {} × {}² → {}, {}² by {}, padding {}, dilation {}".format(*row)
            rows.append([shape, name, *measured(of_weights(row, dtype), chosen.rounds)])
        for window in ((2, 2, 0), (3, 2, 1)):
            shape = "ReLU and pooling {}² by {}, padding {}, of 8 × 64 × 112²".format(*window)
            rows.append([shape, name, *measured(of_pooling(*window, dtype), chosen.rounds)])
    print(table(["gradient", "type", "aotc, ms", "eager, ms", "eager / aotc"], rows))


if __name__ == "__main__":
    main()
