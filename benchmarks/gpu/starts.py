"""Process start → first result: `python -m benchmarks.gpu.starts SPEC BUNDLE JSON`.

Each time is that of a whole process, from its start to its end, which loads what was deployed,
answers once and has the answer in host memory. Ours has no torch. Torch's loads the pickled model,
memory-mapped; the compiled ones find their caches warm. Files are in the page cache; the processes
take turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.gpu.forward import load_spec

ROUNDS = {"aotc": 7, "eager": 3, "compile": 2, "max-autotune": 2}
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
import sys
sys.path.insert(0, {folder!r})
import torch
torch.set_grad_enabled(False)
model = torch.load({model!r}, weights_only=False, mmap=True, map_location="cuda")
args, named = torch.load({inputs!r}, weights_only=True, map_location="cuda")
call = model if {mode!r} == "eager" else torch.compile(model, mode={mode!r})
result = call(*args, **named)
torch.cuda.synchronize()
torch.utils._pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), result)
"""
MODES = {"eager": "eager", "compile": "default", "max-autotune": "max-autotune"}


def main() -> None:
    """Measure all contenders in turns and write the seconds of each process."""
    spec, bundle, out = sys.argv[1:]
    torch.set_grad_enabled(False)
    with tempfile.TemporaryDirectory(prefix="aotc-start-") as name:
        programs = {"aotc": OURS.format(bundle=bundle), **_theirs(spec, Path(name))}
        times: dict[str, list[float]] = {kind: [] for kind in programs}
        parts: list[list[float]] = []
        failed: dict[str, str] = {}
        for turn in range(max(ROUNDS.values())):
            for kind, program in programs.items():
                if turn >= ROUNDS[kind] or kind in failed:
                    continue
                seconds, answer, why = _run(program)
                if why:
                    failed[kind] = why
                    continue
                times[kind].append(seconds)
                if kind == "aotc":
                    parts.append([float(word) for word in answer.split()])
    medians = [statistics.median(column) for column in zip(*parts, strict=True)]
    row = {
        "seconds": times,
        "ours": dict(zip(("import", "load", "first call"), medians, strict=True)),
        "failed": failed,
    }
    Path(out).write_text(json.dumps(row, indent=1) + "\n")
    for kind, found in times.items():
        if found:
            print(f"{kind}: {statistics.median(found):.3f} s")


def _theirs(spec: str, folder: Path) -> dict[str, str]:
    """The programs of torch; the model and its inputs are saved for them."""
    model, args, named = load_spec(spec)
    places = {"model": str(folder / "model.pt"), "inputs": str(folder / "inputs.pt")}
    torch.save(model.cpu(), places["model"])
    torch.save((args, named), places["inputs"])
    del model
    torch.cuda.empty_cache()
    specs = str(Path(spec).resolve().parent)
    return {kind: THEIRS.format(folder=specs, mode=mode, **places) for kind, mode in MODES.items()}


def _run(program: str) -> tuple[float, str, str]:
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
