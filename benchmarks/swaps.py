"""Bundles that take each other's place while threads call: what failed, and what the process holds.

    python -m benchmarks.swaps A [B …] [--swaps 1000] [--threads 4]

The bundles are of one signature, with fixed or dynamic sizes; calls are of zeros, at the least
sizes.
Exits with 1 where a call failed.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aotc import runtime
from aotc.runtime.arrays.dtypes import DTYPES


class Swapped(NamedTuple):
    """What came of swaps under load: exceptions of calls, calls that gave a result, the longest in
    seconds, and what the process held more at the end than after the first swaps."""

    failed: list[Exception]
    calls: int
    longest_s: float
    seconds: float
    descriptors: int
    mappings: int
    nbytes: int


def held() -> tuple[int, int, int]:
    """(descriptors, mappings, resident bytes) of this process."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return len(list(Path("/proc/self/fd").iterdir())), len(maps), pages * os.sysconf("SC_PAGE_SIZE")


def swap_under_load(
    paths: Sequence[Any], call: Callable[[runtime.Deployment], Any], count: int, threads: int
) -> Swapped:
    """`count` swaps through the bundles in turn while threads make calls."""
    failed: list[Exception] = []
    calls, longest_s, is_over = [0] * threads, [0.0] * threads, threading.Event()
    deployment = runtime.Deployment(paths[0], stats=True)

    def work(number: int) -> None:
        while not is_over.is_set():
            began_s = time.perf_counter()
            try:
                call(deployment)
                calls[number] += 1
            except Exception as error:
                failed.append(error)
            longest_s[number] = max(longest_s[number], time.perf_counter() - began_s)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for each in workers:
        each.start()
    before, began_s = held(), time.perf_counter()
    for turn in range(count):
        if turn == min(20, count // 2):
            before = held()
        deployment.swap(paths[(turn + 1) % len(paths)])
    seconds = time.perf_counter() - began_s
    is_over.set()
    for each in workers:
        each.join()
    after = held()
    assert deployment.swaps == count
    assert deployment.stats().entries[0].calls == sum(calls)
    deployment.close()
    more = [late - early for late, early in zip(after, before, strict=True)]
    return Swapped(failed, sum(calls), max(longest_s), seconds, *more)


def zeros(program: runtime.Program) -> list[Any]:
    """Arguments of the least sizes."""
    low = {dim.name: dim.low for dim in program.dims}
    arrays = []
    for spec in program.inputs:
        shape = [size if isinstance(size, int) else low[str(size)] for size in spec.shape]
        nbytes = DTYPES[spec.dtype].itemsize_bytes
        for size in shape:
            nbytes *= size
        arrays.append(memoryview(bytes(nbytes)).cast(DTYPES[spec.dtype].buffer, shape))  # type: ignore[call-overload]
    return arrays


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bundles", nargs="+")
    parser.add_argument("--swaps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=4)
    given = parser.parse_args()
    with runtime.load(given.bundles[0]) as program:
        arrays = zeros(program)
    found = swap_under_load(given.bundles, lambda each: each(*arrays), given.swaps, given.threads)
    print(
        f"{given.swaps} swaps in {found.seconds:.1f} s under {given.threads} threads, "
        f"{found.calls} calls, {len(found.failed)} failed; "
        f"the longest call {found.longest_s:.3f} s; {found.descriptors} descriptors, "
        f"{found.mappings} mappings, {found.nbytes / 1e6:.1f} MB more"
    )
    for error in found.failed[:5]:
        print(repr(error), file=sys.stderr)
    return int(bool(found.failed))


if __name__ == "__main__":
    sys.exit(main())
