"""`python -m benchmarks.kernels`: `aotc.kernels` beside eager, torch.compile and Liger.

Each operation over several lengths of a row, the forward pass and both passes, as GB/s of the bytes
that must move, beside a copy on the same device: the limit of what reads and writes memory.
Contenders take turns; a contender whose result is wrong is not timed. On a GPU calls wait in a
queue behind a kernel that sleeps, so that what is timed is the GPU's work; what a call costs the
host is a table of its own. Writes a page of tables, a plot an operation, and the figures as JSON,
which a later run goes on from.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import torch
from torch import Tensor
from torch.nn import functional

from aotc import kernels
from benchmarks import machine
from benchmarks.suite import ROOT

PASSES = ("forward", "forward + backward")
CONTENDERS = ("aotc", "eager", "torch.compile", "Liger")
COPY = "copy"
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
LENGTHS = (1024, 4096, 16384, 65536)
ELEMENTS = {"cuda": 1 << 26, "cpu": 1 << 20}
"""Of an operand: 128 MiB of bf16, more than twice the L2 cache of the GPUs of today."""
ROUNDS = 3
CALLS = 8
"""In a queue on a GPU, for one time."""
QUICK = ("softmax", "layer_norm", "rms_norm", "cross_entropy", "swiglu", "gelu", "rope")
HOST_SHAPE = (8, 1024)
"""Rows and length of the calls whose cost on the host is measured: kernels that take no time."""
Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Operation:
    """One operation over [rows, length].

    moved: how often an operand's bytes are read or written, in the forward and the backward pass.
    tensors: the float arguments for (rows, length); ours, eager, liger: functions of them.
    """

    name: str
    moved: tuple[float, float]
    tensors: Callable[[int, int], Sequence[tuple[int, ...]]]
    ours: Function
    eager: Function
    liger: Callable[[], Function] | None = None
    constants: Callable[[Tensor], Sequence[Tensor]] = lambda x: ()
    """Of the first tensor: further arguments without gradients, made once."""


def _alone(rows: int, length: int) -> list[tuple[int, ...]]:
    return [(rows, length)]


def _twice(rows: int, length: int) -> list[tuple[int, ...]]:
    return [(rows, length), (rows, length)]


def _normed(count: int) -> Callable[[int, int], list[tuple[int, ...]]]:
    return lambda rows, length: [(rows, length), *[(length,)] * count]


def _images(rows: int, length: int) -> list[tuple[int, ...]]:
    """Rows are groups of 8 channels, 32 channels an image."""
    return [(max(1, rows // 4), 32, length // 8), (32,), (32,)]


def _heads(rows: int, length: int) -> list[tuple[int, ...]]:
    """Heads of 128 elements; `length` positions."""
    return [(1, max(1, rows // 128), length, 128)]


def _labels(x: Tensor) -> tuple[Tensor]:
    return (torch.arange(x.shape[0], device=x.device) * 31 % x.shape[1],)


def _angles(x: Tensor) -> tuple[Tensor, Tensor]:
    turns = torch.arange(x.shape[2], device=x.device).float()[:, None]
    turns = turns * 10000.0 ** (-torch.arange(64, device=x.device) / 64)
    return turns.cos(), turns.sin()


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As models write it."""
    cos, sin = (torch.cat([each, each], -1).to(x.dtype) for each in (cos, sin))
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


def _of_liger(module: str, function: str, *rest: Any, part: int | None = None) -> Any:
    """What applies a function of Liger's; raises ImportError where it is not installed."""

    def found() -> Function:
        apply = getattr(importlib.import_module(f"liger_kernel.ops.{module}"), function).apply

        def run(*tensors: Tensor) -> Tensor:
            result = apply(*tensors, *rest)
            return result if part is None else result[part]

        return run

    return found


def _liger_cross_entropy() -> Function:
    apply = importlib.import_module("liger_kernel.ops.cross_entropy").LigerCrossEntropyFunction
    return lambda x, labels: apply.apply(x.clone(), labels, None)[0]  # it overwrites its logits


OPERATIONS = (
    Operation("vector_add", (3, 0), _twice, kernels.vector_add, torch.add),
    Operation(
        "softmax", (2, 3), _alone, kernels.softmax, lambda x: torch.softmax(x, -1),
        _of_liger("softmax", "LigerSoftmaxFunction"),
    ),
    Operation(
        "layer_norm", (2, 3), _normed(2),
        lambda x, w, b: kernels.layer_norm(x, x.shape[-1:], w, b),
        lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b),
        _of_liger("layer_norm", "LigerLayerNormFunction", 1e-5),
    ),
    Operation(
        "rms_norm", (2, 3), _normed(1),
        lambda x, w: kernels.rms_norm(x, x.shape[-1:], w, 1e-6),
        lambda x, w: functional.rms_norm(x, x.shape[-1:], w, 1e-6),
        _of_liger("rms_norm", "LigerRMSNormFunction", 1e-6, 0.0, "llama", False),
    ),
    Operation(
        "cross_entropy", (1, 2), _alone,
        kernels.cross_entropy, functional.cross_entropy, _liger_cross_entropy, _labels,
    ),
    Operation(
        "swiglu", (3, 5), _twice, kernels.swiglu, lambda x, g: functional.silu(x) * g,
        _of_liger("swiglu", "LigerSiLUMulFunction"),
    ),
    Operation("gelu", (2, 3), _alone, kernels.gelu, functional.gelu),
    Operation("rope", (2, 2), _heads, kernels.rope, _rotated, None, _angles),
    Operation(
        "dropout", (2, 2), _alone, lambda x: kernels.dropout(x, 0.1),
        lambda x: functional.dropout(x, 0.1),
    ),
    Operation(
        "group_norm", (2, 3), _images,
        lambda x, w, b: kernels.group_norm(x, 4, w, b),
        lambda x, w, b: functional.group_norm(x, 4, w, b),
    ),
)  # fmt: skip
RANDOM = ("dropout",)  # results that cannot be compared


# -- timing ----------------------------------------------------------------------------------------


def _milliseconds(call: Callable[[], Any], device: str) -> float:
    """A call's time: on CUDA the GPU's, else the median. Operands are larger than its L2 cache."""
    if device == "cuda":
        return device_ms(call)
    times: list[float] = []
    end = time.perf_counter() + 0.05
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def device_ms(call: Callable[[], Any], calls: int = CALLS) -> float:
    """The GPU's milliseconds for a call, of several that all wait while the GPU sleeps before the
    first: were it awake before the last is queued, the sleep is too short and doubled."""
    call()
    cycles, start, end = 4_000_000, *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(8):
        torch.cuda.synchronize()
        torch.cuda._sleep(cycles)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        was_asleep = not start.query()
        end.synchronize()
        if was_asleep:
            break
        cycles *= 2
    return start.elapsed_time(end) / calls


def host_microseconds(call: Callable[[], Any], device: str, count: int = 100) -> float:
    """The host's time for a call of `count`, at best of several turns."""
    found = math.inf
    for _ in range(5):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        found = min(found, (time.perf_counter() - start) / count * 1e6)
    return found


def _calls(
    function: Function, tensors: Sequence[Tensor], constants: Sequence[Tensor]
) -> dict[str, Callable[[], Any]]:
    """What is timed, by pass; all contenders get the same gradient."""
    given = (*tensors, *constants)
    result = function(*given)
    drawn = torch.Generator(result.device).manual_seed(1)
    gradient = torch.randn(result.shape, generator=drawn, device=result.device)
    gradient = gradient.bfloat16().to(result.dtype)  # a number of every type here
    return {
        PASSES[0]: lambda: function(*given),
        PASSES[1]: lambda: torch.autograd.grad(function(*given), tensors, gradient),
    }


def _contenders(row: Operation) -> dict[str, Function]:
    found = {"aotc": row.ours, "eager": row.eager}
    found["torch.compile"] = torch.compile(row.eager, dynamic=False)
    if row.liger is not None:
        with contextlib.suppress(ImportError):
            found["Liger"] = row.liger()
    return found


def _distances(found: Sequence[Tensor], expected: Sequence[Tensor]) -> list[float]:
    """How far each result is from eager's in f32, relative to its largest element."""
    distances = []
    for one, other in zip(found, expected, strict=True):
        away = float((one.detach().float() - other.float()).abs().max())
        scale = float(other.float().abs().max())
        distances.append(away / scale if scale else away)
    return distances


def _disagrees(found: Sequence[float], eager: Sequence[float], dtype: torch.dtype) -> bool:
    """Whether a result is further from eager's in f32 than twice what eager's own in this type is,
    and two roundings to it."""
    step = 2 * torch.finfo(dtype).eps
    return any(not one <= 2 * other + step for one, other in zip(found, eager, strict=True))


def measure(row: Operation, length: int, dtype: torch.dtype, device: str) -> dict[str, Any]:
    """GB/s by pass and contender of one operation at one length, and what was not timed and why."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    rows = max(1, ELEMENTS[device] // length)
    tensors = [
        torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
        for shape in row.tensors(rows, length)
    ]
    nbytes = tensors[0].numel() * tensors[0].element_size()
    wide = [each.detach().float().requires_grad_() for each in tensors]
    constants = row.constants(tensors[0])
    made = _calls(row.eager, wide, constants)
    expected = [made[PASSES[0]]().detach(), *made[PASSES[1]]()]
    del wide, made
    calls: dict[str, dict[str, Callable[[], Any]]] = {}
    notes: dict[str, str] = {}
    distances: dict[str, list[float]] = {}
    for name, function in _contenders(row).items():
        try:
            made = _calls(function, tensors, constants)
            results = [made[PASSES[0]]().detach(), *made[PASSES[1]]()]
        except Exception as error:  # a peer that does not take these sizes
            notes[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
            continue
        distances[name] = _distances(results, expected)
        calls[name] = made
    for name, each in distances.items():
        if row.name not in RANDOM and _disagrees(each, distances["eager"], dtype):
            notes[name] = f"at {rows} × {length} its result is not that of eager in f32"
            del calls[name]
    passes = PASSES if row.moved[1] else PASSES[:1]
    beside = sum(each.numel() * each.element_size() for each in constants)
    moved = {
        PASSES[0]: row.moved[0] * nbytes + beside,
        PASSES[1]: sum(row.moved) * nbytes + 2 * beside,
    }
    speeds: dict[str, dict[str, float]] = {}
    for each in passes:
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, made in calls.items():
                times[name].append(_milliseconds(made[each], device))
        speeds[each] = {
            name: moved[each] / statistics.median(found) / 1e6 for name, found in times.items()
        }
    return {"rows": rows, "speeds": speeds, "notes": notes}


def host_costs(row: Operation, dtype: torch.dtype, device: str) -> dict[str, list[float]]:
    """Microseconds of the host a call without gradients, with them, and of the backward pass."""
    rows, length = HOST_SHAPE
    shapes = row.tensors(rows if row.tensors not in (_heads, _images) else 128, length)
    tensors = [torch.randn(s, device=device, dtype=dtype, requires_grad=True) for s in shapes]
    constants = row.constants(tensors[0])
    found: dict[str, list[float]] = {}
    for name, function in _contenders(row).items():
        if name == "torch.compile":  # its cost is that of its graph's guards
            continue
        call = functools.partial(function, *tensors, *constants)
        result = call()
        back = functools.partial(
            torch.autograd.grad, result, tensors, torch.ones_like(result), retain_graph=True
        )
        with torch.no_grad():
            alone = host_microseconds(call, device)
        found[name] = [alone, *(host_microseconds(each, device) for each in (call, back))]
    return found


def copy_speed(device: str, dtype: torch.dtype) -> float:
    """GB/s of a copy, reading and writing: the limit of all these kernels."""
    x = torch.randn(ELEMENTS[device], device=device).to(dtype)
    out = torch.empty_like(x)
    times = [_milliseconds(lambda: out.copy_(x), device) for _ in range(ROUNDS)]
    return 2 * x.numel() * x.element_size() / min(times) / 1e6


# -- results ---------------------------------------------------------------------------------------


def _geomean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def page(found: dict[str, Any]) -> str:
    """The page, from the figures as they are kept."""
    facts, limit = found["facts"], found[COPY]
    parts = [
        "# Speed of the kernel library\n",
        "<!-- Written by `scripts/bench kernels`. Do not edit. -->\n",
        f"Measured {facts['date']} on {facts['device']} with {facts['versions']} by "
        f"`python -m benchmarks.kernels --device {facts['kind']}`, {facts['dtype']}, median of "
        f"{ROUNDS} turns. GB/s of the bytes that must be read and written, also in the backward "
        f"pass; a copy reaches {limit:.0f} GB/s here (the limit). On a GPU it is the GPU's time: "
        "calls wait in a queue behind a kernel that sleeps. Peers are eager torch, torch.compile "
        "with its defaults, and Liger where it is installed.\n",
    ]
    for name, lengths in found["operations"].items():
        parts.append(f"## {name}\n")
        if found.get("plots"):
            parts.append(f"![{name}: GB/s over the length of a row]({found['plots']}/{name}.png)\n")
        for each in PASSES:
            parts.append(_table(each, lengths, limit))
        notes = {f"{n}: {text}" for row in lengths.values() for n, text in row["notes"].items()}
        parts += [f"- {note}\n" for note in sorted(notes)]
    parts.append(_host_table(found.get("host", {})))
    return "\n".join(part for part in parts if part)


def _host_table(found: dict[str, dict[str, list[float]]]) -> str:
    if not found:
        return ""
    rows, length = HOST_SHAPE
    lines = [
        "## What a call costs the host\n",
        f"Microseconds of a call on {rows} × {length} (rope and group_norm: 128 × {length}), whose "
        "kernels take less: without gradients, with them, and of the backward pass alone.\n",
        "| function | aotc | eager |", "|---|---|---|",
    ]  # fmt: skip
    for name, costs in found.items():
        cells = [" / ".join(f"{each:.0f}" for each in costs[n]) for n in ("aotc", "eager")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _table(which: str, lengths: dict[str, Any], limit: float) -> str:
    rows = {n: row for n, row in lengths.items() if which in row["speeds"]}
    names = [n for n in CONTENDERS if any(n in row["speeds"][which] for row in rows.values())]
    if not rows:
        return ""
    lines = [
        f"| {which}: rows × length | {' | '.join(names)} | aotc of a copy |",
        "|" + "---|" * (len(names) + 2),
    ]
    for length, row in rows.items():
        speeds = row["speeds"][which]
        cells = [
            f"{speeds[n]:,.{0 if speeds[n] > 100 else 1}f}" if n in speeds else "" for n in names
        ]
        share = f"{speeds['aotc'] / limit:.0%}" if "aotc" in speeds else ""
        lines.append(f"| {row['rows']:,} × {int(length):,} | {' | '.join(cells)} | {share} |")
    ratios = []
    for peer in names:
        both = [
            r["speeds"][which] for r in rows.values() if {"aotc", peer} <= {*r["speeds"][which]}
        ]
        if peer != "aotc" and both:
            ratio = _geomean([speeds["aotc"] / speeds[peer] for speeds in both])
            worst = min(speeds["aotc"] / speeds[peer] for speeds in both)
            ratios.append(f"{ratio:.2f}× {peer} (worst {worst:.2f}×)")
    return "\n".join(lines) + f"\n\naotc is {', '.join(ratios)}, geometric mean.\n"


def plot(name: str, lengths: dict[str, Any], limit: float, path: Path) -> None:
    """GB/s over the length of a row, one line a contender, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True)
    for axis, which in zip(axes, PASSES, strict=True):
        rows = {int(n): row["speeds"].get(which, {}) for n, row in lengths.items()}
        for contender in CONTENDERS:
            points = [(n, speeds[contender]) for n, speeds in rows.items() if contender in speeds]
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", label=contender)
        axis.axhline(limit, color="gray", linestyle="--", label="copy")
        axis.set(title=f"{name}, {which}", xlabel="elements of a row", xscale="log", ylim=(0, None))
        axis.legend()
    axes[0].set_ylabel("GB/s")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def write(found: dict[str, Any], out: Path) -> None:
    """Figures, plots and page."""
    folder = out / "kernels-speed"
    try:
        for name, lengths in found["operations"].items():
            plot(name, lengths, found[COPY], folder / f"{name}.png")
        found["plots"] = folder.name
    except ImportError:
        print("no plots: matplotlib is not installed", flush=True)
    (out / "kernels-speed.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (out / "kernels-speed.md").write_text(page(found), encoding="utf-8")


def _facts(device: str, dtype: str) -> dict[str, str]:
    found = dict(machine.facts())
    found["device"] = found["processor"]
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
    return {**found, "kind": device, "dtype": dtype}


@click.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default=None, help="Default: CUDA.")
@click.option("--dtype", type=click.Choice([*DTYPES]), default="bf16", show_default=True)
@click.option("--only", multiple=True, type=click.Choice([row.name for row in OPERATIONS]))
@click.option("--length", "lengths", multiple=True, type=int, help="Default: 1 K to 64 K.")
@click.option("--seconds", default=140.0, show_default=True, help="Begin nothing after this.")
@click.option("--quick", is_flag=True, help=f"Only {', '.join(QUICK)}.")
@click.option("--again", is_flag=True, help="Forget the figures that are there.")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=ROOT / "docs")
def main(
    device: str | None,
    dtype: str,
    only: tuple[str, ...],
    lengths: tuple[int, ...],
    seconds: float,
    quick: bool,
    again: bool,
    out: Path,
) -> None:
    """Measure what has no figure yet, then write the page from all figures there are."""
    end = time.monotonic() + seconds
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "kernels-speed.json"
    found = json.loads(kept.read_text()) if kept.exists() and not again else {}
    if found.get("facts") != _facts(device, dtype):  # figures of another day, machine or type
        found = {"facts": _facts(device, dtype), "operations": {}}
    found[COPY] = max(found.get(COPY, 0.0), copy_speed(device, DTYPES[dtype]))
    only = only or (QUICK if quick else ())
    rows = [row for row in OPERATIONS if not only or row.name in only]
    for row in rows:
        found.setdefault("host", {}).setdefault(row.name, host_costs(row, DTYPES[dtype], device))
    cells = [(row, length) for length in lengths or LENGTHS for row in rows]
    for number, (row, length) in enumerate(cells):
        known = found["operations"].setdefault(row.name, {})
        if str(length) in known:
            continue
        if time.monotonic() > end:
            print(f"{len(cells) - number} of {len(cells)} left: run it again to go on", flush=True)
            break
        start = time.monotonic()
        known[str(length)] = measure(row, length, DTYPES[dtype], device)
        known = found["operations"][row.name] = {key: known[key] for key in sorted(known, key=int)}
        print(f"{row.name} {length}: {time.monotonic() - start:.1f} s", flush=True)
        kept.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    found["operations"] = {name: each for name, each in found["operations"].items() if each}
    write(found, out)
    print((out / "kernels-speed.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
