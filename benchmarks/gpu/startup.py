"""Process start → first result: `python -m benchmarks.gpu.startup SAVED BUNDLE JSON KIND…`.

Each time is that of a whole process, from its start to its end, which loads what was deployed,
answers once and has the answer in host memory. Ours has no torch. Torch's loads the saved model,
memory-mapped; the compiled ones find their caches warm. Files are in the page cache; the processes
take turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = {"aotc": 5, "eager": 2, "compile": 1, "max-autotune": 1}
OURS = """
import sys, time
began = time.perf_counter()
from aotc import runtime
imported = time.perf_counter()
program = runtime.load({bundle!r}, device="cuda")
loaded = time.perf_counter()
program(*[bytes(spec.nbytes) for spec in program.inputs])
ended = time.perf_counter()
assert not {{"torch", "triton", "numpy"}} & set(sys.modules)
print(imported - began, loaded - imported, ended - loaded)
"""
THEIRS = """
import torch
from benchmarks.gpu.peers import MODES, prefer_speed
from benchmarks.gpu.saved import load
prefer_speed()
model, args, named = load({model!r})
call = model if {kind!r} == "eager" else torch.compile(model, mode=MODES[{kind!r}])
result = call(*args, **named)
torch.cuda.synchronize()
torch.utils._pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), result)
"""
PARTS = ("import", "load", "first call")  # what ours prints


def main() -> None:
    """Measure all contenders in turns and write the seconds of each process."""
    model, bundle, out, *kinds = sys.argv[1:]
    programs = {
        kind: OURS.format(bundle=bundle)
        if kind == "aotc"
        else THEIRS.format(model=model, kind=kind)
        for kind in kinds
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    parts: list[list[float]] = []
    failed: dict[str, str] = {}
    for turn in range(max(ROUNDS[kind] for kind in kinds)):
        for kind, program in programs.items():
            if turn >= ROUNDS[kind] or kind in failed:
                continue
            seconds, answer, why = run(program)
            if why:
                failed[kind] = why
                continue
            times[kind].append(seconds)
            if kind == "aotc":
                parts.append([float(word) for word in answer.split()])
    medians = [statistics.median(column) for column in zip(*parts, strict=True)]
    ours = dict(zip(PARTS, medians, strict=True)) if parts else {}
    row = {"seconds": times, "ours": ours, "failed": failed}
    Path(out).write_text(json.dumps(row, indent=1) + "\n")
    for kind, found in times.items():
        print(f"{kind}: {statistics.median(found):.3f} s" if found else f"{kind}: {failed[kind]}")
    print(ours)


def run(program: str) -> tuple[float, str, str]:
    """(seconds of the whole process, what it printed, why it failed)."""
    began_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - began_s
    if done.returncode:
        return seconds, "", (done.stderr.strip().splitlines() or ["no message"])[-1]
    return seconds, done.stdout, ""


if __name__ == "__main__":
    main()
