"""What a launch of a small `@triton.jit` kernel from Python costs, and Triton's own part of that.

    python -m benchmarks.launch_cost [--rounds 41]

A kernel of 16 elements is launched by `kernel[grid](…)` on CPU tensors. Triton's part is what is
left where the compiled kernel's launcher does nothing: its binding and specialising of arguments,
its look-up of the compiled kernel and its launch metadata.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from aotc import kernels

CALLS = 2000


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


def measure(rounds: int) -> dict[str, float]:
    """Median microseconds of each way, taken in turns."""
    x, y, out = torch.randn(16), torch.randn(16), torch.empty(16)

    def launch(programs: int) -> None:
        add_kernel[(programs,)](x, y, out, 16, BLOCK=16)

    with kernels.on_cpu():
        compiled = add_kernel[(1,)](x, y, out, 16, BLOCK=16)
        launcher = compiled.run

        def without_launcher() -> None:
            compiled._run = lambda *_: None
            launch(1)

        def with_launcher(programs: int) -> None:
            compiled._run = launcher
            launch(programs)

        ways: dict[str, Callable[[], object]] = {
            "a launch of one program": lambda: with_launcher(1),
            "a launch of 64 programs": lambda: with_launcher(64),
            "Triton's part of it": without_launcher,
            "`torch.add(x, y, out=out)`": lambda: torch.add(x, y, out=out),
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, call in ways.items():
                start = time.perf_counter()
                for _ in range(CALLS):
                    call()
                times[way].append((time.perf_counter() - start) / CALLS * 1e6)
    return {way: statistics.median(found) for way, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=41)
    given = parser.parse_args()
    print(f"triton {triton.__version__}, torch {torch.__version__}")
    for way, found_us in measure(given.rounds).items():
        print(f"{found_us:7.2f} µs  {way}")


if __name__ == "__main__":
    main()
