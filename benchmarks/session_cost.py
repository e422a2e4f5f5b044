"""What it costs to open a session of a language model at new sizes: the host's part, the driver's.

    python -m benchmarks.session_cost BUNDLE [--batches 64] [--length 512] [--no-device]

BUNDLE is one that `aotc.aot.huggingface.causal_lm(…, session_sizes=True, sampling=False)` gave.
For each batch a session is opened, decodes one token and is closed. The calls of the driver are
counted and timed, each with what ctypes takes. With `--no-device` the driver is a library that does
nothing (made here by `cc`), so that the host's part can be measured where there is no GPU; tokens
are then of no meaning.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

from aotc.runtime import load
from aotc.runtime.drivers.cuda import libcuda

HOPPER = {1: 1024, 10: 32, 16: 132, 39: 2048, 75: 9, 76: 0, 81: 233472, 97: 232448}
COPIES = ("cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2")
HANDLES = (
    "cuModuleLoadData", "cuStreamCreate", "cuEventCreate", "cuGraphCreate", "cuModuleGetFunction",
    "cuGraphAddKernelNode_v2", "cuGraphAddMemsetNode", "cuGraphAddEventRecordNode",
    "cuGraphInstantiateWithFlags",
)  # fmt: skip
BODIES = {
    "cuGetErrorName": "(int e, const char **s) { *s = \"NONE\"; return 0; }",
    "cuGetErrorString": "(int e, const char **s) { *s = \"no driver\"; return 0; }",
    "cuDriverGetVersion": "(int *v) { *v = 13000; return 0; }",
    "cuDeviceGetCount": "(int *v) { *v = 1; return 0; }",
    "cuDeviceGet": "(int *v, int d) { *v = d; return 0; }",
    "cuDeviceGetName": "(char *s, int n, int d) { strcpy(s, \"none\"); return 0; }",
    "cuDeviceTotalMem_v2": "(size_t *s, int d) { *s = 1ull << 37; return 0; }",
    "cuDevicePrimaryCtxRetain": "(void **c, int d) { *c = (void *)1; return 0; }",
    "cuCtxGetCurrent": "(void **c) { *c = (void *)1; return 0; }",
    "cuCtxPopCurrent_v2": "(void **c) { *c = (void *)1; return 0; }",
    "cuStreamGetCtx": "(void *s, void **c) { *c = (void *)1; return 0; }",
    "cuFuncGetAttribute": "(int *v, int a, void *f) { *v = a ? 0 : 1024; return 0; }",
    "cuMemAlloc_v2": "(size_t *p, size_t n) { *p = (size_t)malloc(n); return 0; }",
    "cuMemHostAlloc": "(void **p, size_t n, int f) { *p = malloc(n); return 0; }",
    "cuMemFree_v2": "(void *p) { free(p); return 0; }",
    "cuMemFreeHost": "(void *p) { free(p); return 0; }",
    "cuMemGetInfo_v2": "(size_t *f, size_t *t) { *f = *t = 1ull << 37; return 0; }",
    "cuPointerGetAttribute": "(void) { return 1; }",
}  # fmt: skip


def nothing(folder: Path) -> None:
    """Make `libcuda.so.1` there: memory is the host's, kernels do not run."""
    rows = "".join(f"case {number}: *v = {value}; break;" for number, value in HOPPER.items())
    attribute = f"(int *v, int a, int d) {{ *v = 1; switch (a) {{{rows}}} return 0; }}"
    bodies = {
        **BODIES,
        **dict.fromkeys(
            COPIES, "(void *to, void *from, size_t n) { memcpy(to, from, n); return 0; }"
        ),
        **dict.fromkeys(HANDLES, "(void **h) { *h = (void *)++made; return 0; }"),
        "cuDeviceGetAttribute": attribute,
    }
    lines = ["#include <stdlib.h>", "#include <string.h>", "static size_t made = 4096;"]
    for name in (*libcuda.FUNCTIONS, *libcuda.OPTIONAL):
        lines.append(f"int {name}{bodies.get(name, '(void) { return 0; }')}")
    source = folder / "libcuda.c"
    source.write_text("\n".join(lines) + "\n")
    line = ["cc", "-w", "-O1", "-shared", "-fPIC", source, "-o", folder / libcuda.LIBRARY_NAME]
    subprocess.run(list(map(str, line)), check=True)


def watch(times_s: Counter[str], counts: Counter[str]) -> None:
    """Have each call of the driver counted and timed."""

    def watched(name: str, function: Any) -> Any:
        def call(*arguments: Any) -> int:
            began_s = time.perf_counter()
            result: int = function(*arguments)
            times_s[name] += time.perf_counter() - began_s
            counts[name] += 1
            return result

        return call

    functions = libcuda.library().functions
    functions.update({name: watched(name, row) for name, row in list(functions.items())})


def measure(program: Any, batches: int, length: int) -> list[float]:
    """Seconds of each session with one decode, of batch 1 and so on."""
    found = []
    for batch in range(1, batches + 1):
        began_s = time.perf_counter()
        with program.session(batch=batch, length=length) as session:
            rows = array("q", bytes(8 * batch))
            memoryview(session.decode(rows, rows)["tokens"]).tolist()
        found.append(time.perf_counter() - began_s)
    return found


def main() -> None:
    """Read the arguments, measure, print."""
    reader = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    reader.add_argument("bundle", type=Path)
    reader.add_argument("--batches", type=int, default=64)
    reader.add_argument("--length", type=int, default=512)
    reader.add_argument("--no-device", action="store_true")
    given = reader.parse_args()
    if given.no_device:
        with tempfile.TemporaryDirectory() as folder:
            nothing(Path(folder))
            line = [sys.executable, "-m", "benchmarks.session_cost", given.bundle.resolve()]
            line += ["--batches", given.batches, "--length", given.length]
            # The dynamic linker reads the variable when a process starts.
            environment = {**os.environ, "LD_LIBRARY_PATH": folder}
            done = subprocess.run(list(map(str, line)), env=environment, check=False)
        sys.exit(done.returncode)
    with load(given.bundle, device="cuda:0") as program:
        times_ms = [1e3 * each for each in measure(program, given.batches, given.length)]
    rows = statistics.quantiles(times_ms, n=4)
    print(f"{given.batches} sessions {sum(times_ms):.0f} ms; one: least {min(times_ms):.2f} ms, "
          f"quartiles {', '.join(f'{each:.2f}' for each in rows)} ms")  # fmt: skip
    times_s: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    with load(given.bundle, device="cuda:0") as program:
        watch(times_s, counts)
        measure(program, given.batches, given.length)
    for name, seconds in times_s.most_common(12):
        each_ms = 1e3 * seconds / given.batches
        print(f"{each_ms:8.3f} ms a session, {counts[name] / given.batches:6.1f} calls  {name}")


if __name__ == "__main__":
    main()
