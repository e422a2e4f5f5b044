"""One workload: `python -m benchmarks.gpu.cliffs_of NAME WORK TUNE JSON [--compile] [--cpu]`.

Builds it, waits for the device, then profiles the bundle and times it beside torch. With `--cpu` at
its small sizes on this processor, which shows that it works. A result is right if it is no farther
from a wider reference than `TIMES_EAGER` times eager is, on the same inputs or a rounding away.
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.gpu.corpus.rows import CORPUS

LEAST = {"torch.bfloat16": 0.02, "torch.float32": 1e-4}
"""Differences from the wider reference, as parts of its largest value, that are always right."""
NEARBY = 4  # draws of inputs, where a result is farther
TIMES_EAGER = 1.5
"""How much farther from the reference than eager a result may be: sums have another order."""


def main(name: str, work: str, tune: str, out: str, *flags: str) -> None:
    """Write the workload's row; a failure is a row that says why."""
    try:
        device = "cpu" if "--cpu" in flags else "cuda"
        row = measure(name, Path(work), tune, "--compile" in flags, device)
    except Exception as error:
        traceback.print_exc()
        row = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    Path(out).write_text(json.dumps(row, indent=1) + "\n")


def measure(
    name: str, work: Path, tune: str, compiles: bool, device: str = "cuda"
) -> dict[str, Any]:
    """The row of one workload: times in milliseconds, slow kernels, seconds of the build."""
    from aotc.aot.measure.device_lock import device_turn
    from aotc.aot.pipeline import BuildOptions, build
    from benchmarks.gpu.cliffs import write_spec

    is_full = device == "cuda"
    spec, bundle = write_spec(name, is_full, work / "specs"), work / "bundles" / name
    started_s = time.perf_counter()
    options = BuildOptions(cache_folder=work / "cache", force=True, tune=tune, jobs=2)
    build(str(spec), bundle, (device,), options)
    build_s = time.perf_counter() - started_s
    with device_turn():
        row = _profiled(bundle, device)
    ways, ours, theirs = _ways(name, bundle, compiles, device)
    with device_turn():
        ms = _timed(ways, device)
    if not ours <= allowed(CORPUS[name].dtype, theirs):
        found = f"{ours:.1e} of the largest value, eager by {theirs:.1e}"
        return {"failed": f"differs from the wider reference by {found}"}
    differences = {"difference": ours, "difference_of_eager": theirs}
    return {"failed": "", "build_s": build_s, **differences, "ms": ms, **row}


def allowed(dtype: Any, of_eager: float) -> float:
    """The difference from the reference up to which a result is right, where eager has this one."""
    return max(LEAST[str(dtype)], TIMES_EAGER * of_eager)


def wider(model: Any, args: Any, named: Any, dtype: Any) -> Any:
    """What the model gives with its weights and inputs in f64, f32 for bf16."""
    import torch

    kind = torch.float64 if dtype == torch.float32 else torch.float32
    args = [x.to(kind) if x.is_floating_point() else x for x in args]
    named = {key: x.to(kind) if x.is_floating_point() else x for key, x in named.items()}
    return copy.deepcopy(model).to(kind)(*args, **named)


def _profiled(bundle: Path, device: str) -> dict[str, Any]:
    from aotc.aot.cli.profile import profile_bundle

    record = profile_bundle(bundle, device, 20).record()
    share = record["share_of_limit"]
    return {
        "launches": len(record["launches"]),
        "launches_us": record["launches_us"],
        "limit_ms": share and share * record["launches_us"] / 1e3,
        "slow_kernels": record["slow_kernels"],
    }


def _ways(name: str, bundle: Path, compiles: bool, device: str) -> tuple[Any, float, float]:
    """The contenders, and how far our result and eager's are from the reference."""
    from aotc import runtime
    from benchmarks.gpu.forward import difference, ways_of_torch
    from benchmarks.gpu.peers import prefer_speed
    from benchmarks.gpu.saved import channels_last

    prefer_speed()
    model, example = CORPUS[name].made(device == "cuda")
    args, named = ((), example) if isinstance(example, dict) else (example, {})
    model, args, named = channels_last(model, args, named)
    model, args = model.to(device), tuple(x.to(device) for x in args)
    named = {key: value.to(device) for key, value in named.items()}
    program = runtime.load(bundle, device=device)
    bound = program.bind(*(value.contiguous() for value in (args or named.values())))
    theirs, _ = ways_of_torch(model, args, named, ["compile"] if compiles else [])
    dtype = CORPUS[name].dtype
    exact = wider(model, args, named, dtype)
    ours, of_eager = (difference(result, exact) for result in (bound(), theirs["eager"]()))
    if not ours <= allowed(dtype, of_eager):
        of_eager = max(of_eager, of_eager_nearby(model, args, named, dtype))
    return {"aotc": bound, **theirs}, ours, of_eager


def of_eager_nearby(model: Any, args: Any, named: Any, dtype: Any) -> float:
    """Eager's greatest difference from the reference over inputs a rounding away from these.

    Deep networks of random weights enlarge some roundings: by how much one result differs is a
    matter of luck.
    """
    import torch

    from benchmarks.gpu.forward import difference

    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(NEARBY):
        moved = [_rounded_away(x, generator) for x in args]
        moved_named = {key: _rounded_away(x, generator) for key, x in named.items()}
        with torch.no_grad():
            exact = wider(model, moved, moved_named, dtype)
            found.append(difference(model(*moved, **moved_named), exact))
    return max(found)


def _rounded_away(x: Any, generator: Any) -> Any:
    import torch

    if not x.is_floating_point():
        return x
    step = torch.randint(-1, 2, x.shape, generator=generator).to(x.device, x.dtype)
    return x * (1 + step * torch.finfo(x.dtype).eps)


def _timed(ways: Any, device: str) -> dict[str, float]:
    """Milliseconds of a call of each way: the median of rounds in turns."""
    import torch

    from benchmarks.gpu.forward import CALLS, round_ms

    rounds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(7):
        for name, way in ways.items():
            if device == "cuda":
                marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                rounds[name].append(round_ms(way, *marks))
            else:
                started_s = time.perf_counter()
                for _ in range(CALLS):
                    way()
                rounds[name].append((time.perf_counter() - started_s) / CALLS * 1e3)
    return {name: round(statistics.median(row), 5) for name, row in rounds.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
