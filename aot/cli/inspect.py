"""`aotc inspect BUNDLE`: what a bundle takes, gives, holds and costs; nothing of it is run."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from aotc.aot.cli import flags
from aotc.aot.cli.printing import bytes_text, print_json, print_table
from aotc.aot.facts.layouts import layouts, more_bytes
from aotc.runtime.bundle.control_steps import ControlStep
from aotc.runtime.bundle.launch_plan import STEP
from aotc.runtime.bundle.manifest import LIMITS, Entry, FileEntry, Manifest, TensorSpec
from aotc.runtime.bundle.native_plan import SYMBOL, NativeLaunch
from aotc.runtime.bundle.opened import Bundle, read_bundle
from aotc.runtime.bundle.plan import Image, Kernel, Launch, Plan
from aotc.runtime.bundle.schema import write
from aotc.runtime.bundle.torch_calls import TorchCall
from aotc.runtime.errors import BundleFileMissing
from aotc.runtime.mismatch import mismatches

PROVENANCE = "provenance.json"
LAYOUTS_SHOWN = 4
LAYOUTS_SHARE = (
    0.01  # of the weights' bytes, below which parameters in several layouts have no lines
)
SHOWN = ("targets", "torch_ops")  # parts of it that have places of their own
SUMMED = "code_bytes"  # of the kernels in one line
# Columns of the kernels' table → fields of a kernel.
CPU_COLUMNS = {"code bytes": "code_bytes", "choice": "choice"}
GPU_COLUMNS = {
    "threads": "threads",
    "registers": "registers",
    "spill bytes": "spill_bytes",
    "shared bytes": "shared_bytes",
    "choice": "choice",
}


@click.command("inspect")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--kernels", "with_kernels", is_flag=True, help="List every launch.")
@click.option("--files", "with_files", is_flag=True, help="List every file with its digest.")
@flags.digest
@flags.as_json
def command(
    bundle: Path, with_kernels: bool, with_files: bool, digest: str | None, as_json: bool
) -> None:
    """Show what BUNDLE takes, gives and holds. Reads data only; no code of it is loaded."""
    record = inspect_bundle(bundle, digest)
    if as_json:
        print_json("aotc.inspect/1", record)
        return
    _print_head(record)
    for target in record["targets"]:
        _print_target(target, with_kernels)
    if with_files:
        click.echo("\nfiles")
        print_table(
            ("  name", "size", "sha256"),
            [(f"  {r['name']}", bytes_text(r["bytes"]), r["sha256"][:16]) for r in record["files"]],
        )


def inspect_bundle(bundle: Path, digest: str | None = None) -> dict[str, Any]:
    """All of a bundle's facts as plain data. Raises `BundleError`s."""
    return read_bundle(bundle, _facts, digest)


def _facts(opened: Bundle) -> dict[str, Any]:
    manifest = opened.manifest
    plans = {
        row.name: Plan.from_msgpack(opened.read(row.plan), opened.where(row.plan))
        for row in manifest.targets
    }
    provenance = _provenance(opened)
    return {
        "path": opened.path,
        "digest": opened.digest,
        "producer": manifest.producer,
        "entries": list(map(_entry, manifest.entries)),
        "ranks": manifest.ranks,
        "states": [_tensor(spec) for spec in manifest.states],
        "session_sizes": [str(dim) for dim in manifest.session_dims],
        "weights_bytes": manifest.weights.nbytes if manifest.weights else 0,
        "layouts": layouts(opened, plans),
        "features": list(manifest.features),
        "mismatches": [row.as_map() for row in mismatches(manifest)],
        "targets": [
            _target(manifest, name, plan, _known(provenance, name)) for name, plan in plans.items()
        ],
        "torch_ops": _torch_ops(manifest, plans.values(), provenance),
        "backends": [
            {
                "name": entry.name,
                "version": entry.version,
                "sha256": entry.sha256.hex(),
                "file": entry.file,
            }
            for entry in manifest.backends
        ],
        "provenance": {name: value for name, value in provenance.items() if name not in SHOWN},
        "files": [
            {"name": entry.name, "bytes": entry.nbytes, "sha256": entry.sha256.hex()}
            for entry in _files(opened)
        ],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "inputs": [_tensor(spec) for spec in entry.inputs],
        "outputs": [_tensor(spec) for spec in entry.outputs],
        "dims": [str(dim) for dim in entry.dims if dim.input is not None],
        "guards": [guard.text for guard in entry.guards],
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "dtype": spec.dtype,
        "shape": [each if isinstance(each, int) else str(each) for each in spec.shape],
        "order": list(spec.order) or None,
        "bytes": spec.nbytes if spec.is_fixed else None,
    }


def _torch_ops(
    manifest: Manifest, plans: Iterable[Plan], provenance: dict[str, Any]
) -> list[dict[str, Any]]:
    """The ops that torch runs: calls of each in the target that has most, and the model's lines."""
    counts: Counter[str] = Counter()
    for plan in plans:
        for lows in plan.lows:
            counts |= Counter(call.op for call in plan.at(*lows).calls)
    noted = provenance.get("torch_ops")
    rows = [row for row in noted if isinstance(row, dict)] if isinstance(noted, list) else []
    sources = {row.get("name"): row.get("sources", []) for row in rows}
    return [
        {"name": name, "calls": counts[name], "sources": sources.get(name, [])}
        for name in manifest.torch
    ]


def _known(provenance: dict[str, Any], target: str) -> dict[str, Any]:
    """What the build noted about a target: fusion groups and the figures of its kernels."""
    targets = provenance.get("targets")
    known = targets.get(target) if isinstance(targets, dict) else None
    return known if isinstance(known, dict) else {}


def _target(manifest: Manifest, name: str, plan: Plan, known: dict[str, Any]) -> dict[str, Any]:
    row = next(target for target in manifest.targets if target.name == name)
    figures = known.get("kernels", {})
    natives = [native for lows in plan.lows for native in plan.at(*lows).natives]
    return {
        "name": name,
        "device": row.device,
        "needs": list(row.needs),
        "code_bytes": manifest.file(row.library).nbytes,
        "entries": [
            {"name": entry.name, **_plan(plan, number), "ranges": _ranges(entry, plan, number)}
            for number, entry in enumerate(manifest.entries)
        ],
        "kernels": [
            *(_kernel(kernel, figures.get(kernel.symbol, {})) for kernel in plan.kernels),
            *(
                {**figures.get(SYMBOL, {}), "name": name, "symbol": name}
                for name in sorted(set(map(_native_name, natives)))
            ),
        ],
        "groups": known.get("groups", []),
        "tuning": known.get("tuning", []),
        "dot_precision": known.get("dot_precision"),
        "convolution_precision": known.get("convolution_precision"),
    }


def _step_name(
    step: Launch | TorchCall | NativeLaunch | ControlStep, kernels: Sequence[Kernel]
) -> str:
    if isinstance(step, Launch):
        return kernels[step.kernel].name
    if isinstance(step, ControlStep):
        return step.text
    return step.op if isinstance(step, TorchCall) else _native_name(step)


def _native_name(native: NativeLaunch) -> str:
    return f"{native.backend}.{native.function}"


def _plan(plan: Plan, entry: int) -> dict[str, Any]:
    """Memory and steps of an entry; where calls decide sizes, those of the smallest ones."""
    smallest = plan.at(*[lows for lows in plan.lows if lows[1] == entry][-1])
    return {
        "arena_bytes": smallest.arena_bytes if smallest is plan.fixed else None,
        "zeroed_bytes": smallest.zeroed_bytes,
        "scratch_bytes": smallest.scratch_bytes,
        "checks": [check.as_map() for check in smallest.checks],
        "launches": [
            {
                "kernel": plan.kernels[launch.kernel].name,
                "symbol": plan.kernels[launch.kernel].symbol,
                "grid": list(launch.grid),
                "args": [list(argument) for argument in launch.args],
            }
            for launch in smallest.launches
        ],
        "steps": [
            {**STEP.write(step), "name": _step_name(step, plan.kernels)} for step in smallest.steps
        ],
    }


def _ranges(entry: Entry, plan: Plan, number: int) -> list[dict[str, Any]]:
    """What calls of an entry run, by their dynamic sizes: the first range that holds a call's sizes
    serves it. `launches` counts those of each kernel by its symbol."""
    found = []
    for row, (lows, of_entry) in zip(plan.variants, plan.lows, strict=True):
        if of_entry != number:
            continue
        fixed = plan.at(lows, number)
        counts = Counter(plan.kernels[launch.kernel].symbol for launch in fixed.launches)
        counts += Counter(map(_native_name, fixed.natives))
        pairs = zip(entry.dims, row.ranges, strict=False)
        sizes = {dim.name: list(bounds) for dim, bounds in pairs}
        found.append({"sizes": sizes, "steps": len(fixed.steps), "launches": dict(counts)})
    return found


def _kernel(kernel: Kernel, figures: dict[str, Any]) -> dict[str, Any]:
    """A kernel by the plan, with what only the build has noted: registers, spills, the choice."""
    image = {} if kernel.image is None else write(Image, kernel.image)
    return {**figures, "name": kernel.name, "symbol": kernel.symbol, **image}


def _files(opened: Bundle) -> list[FileEntry]:
    """Those with a digest of their own, in the order of the manifest and the list of extras."""
    entries = [*opened.manifest.files]
    with contextlib.suppress(BundleFileMissing):
        extras = opened.extras().files
        entries += [*filter(None, [opened.manifest.extras]), *extras]
    return entries


def _provenance(opened: Bundle) -> dict[str, Any]:
    """The build's facts; empty where the extras were deleted."""
    data = opened.read_extra(PROVENANCE)
    if data is None or len(data) > LIMITS.file_bytes:
        return {}
    parsed = json.loads(data)
    return parsed if isinstance(parsed, dict) else {}


def _print_head(record: dict[str, Any]) -> None:
    click.echo(f"bundle   {record['path']}")
    click.echo(f"digest   sha256:{record['digest']}")
    click.echo(f"producer {record['producer']}")
    for entry in record["entries"]:
        if len(record["entries"]) > 1:
            click.echo(f"\nentry    {entry['name']}")
        _print_tensors("input", entry["inputs"])
        _print_tensors("output", entry["outputs"])
        for row in entry["dims"]:
            click.echo(f"dim      {row}")
        for row in entry["guards"]:
            click.echo(f"where    {row}")
    if len(record["entries"]) > 1:
        click.echo("")
    if record["ranks"] > 1:
        click.echo(f"devices  {record['ranks']}, each with its part of weights and states")
    _print_tensors("state", record["states"])
    for row in record["session_sizes"]:
        click.echo(f"session  {row}")
    _print_weights(record)
    for row in record["torch_ops"]:
        places = f" at {', '.join(row['sources'])}" if row["sources"] else ""
        click.echo(f"torch    runs `{row['name']}`, {row['calls']} in each call{places}")
    for row in record["backends"]:
        place = "to be found where it runs" if row["file"] is None else "in the bundle"
        click.echo(f"native   {row['name']} {row['version']}, sha256:{row['sha256'][:12]}, {place}")
    for row in record["mismatches"]:
        click.echo(f"does not run here: {row['field']} is {row['found']}")


def _print_weights(record: dict[str, Any]) -> None:
    """Their bytes, and the parameters that are stored in several layouts."""
    rows = record["layouts"]
    more = f", {bytes_text(more_bytes(rows))} of them in further layouts" if rows else ""
    click.echo(f"weights  {bytes_text(record['weights_bytes'])}{more}")
    if more_bytes(rows) < LAYOUTS_SHARE * record["weights_bytes"]:
        return
    for row in rows[:LAYOUTS_SHOWN]:
        users = [", ".join(each["read_by"]) or "nothing" for each in row["tensors"]]
        readers = f"each for {users[0]}" if len(set(users)) == 1 else "for " + " and ".join(users)
        what = "the scales of " * (row["part"] == "scales") + row["parameter"]
        click.echo(f"layouts  {what}: stored {len(row['tensors'])} times, {readers}")
    if len(rows) > LAYOUTS_SHOWN:
        click.echo(f"layouts  {len(rows) - LAYOUTS_SHOWN} more parameters are stored several times")


def _print_tensors(kind: str, rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        shape = f"{row['dtype']}[{', '.join(map(str, row['shape']))}]"
        shape += f" in memory order {row['order']}" if row["order"] else ""
        size = "" if row["bytes"] is None else f", {bytes_text(row['bytes'])}"
        click.echo(f"{kind:<8} {row['name']}: {shape}{size}")


def _print_target(target: dict[str, Any], with_kernels: bool) -> None:
    click.echo(f"\ntarget   {target['name']}")
    click.echo(f"code     {bytes_text(target['code_bytes'])}, {len(target['kernels'])} kernels")
    is_gpu = target["device"] == "cuda"
    for entry in target["entries"]:
        _print_entry(entry, len(target["entries"]) > 1, is_gpu, with_kernels)
    _print_kernels(target, GPU_COLUMNS if is_gpu else CPU_COLUMNS)
    if target["groups"]:
        click.echo("\nfusion groups")
        _print_groups(target["groups"])


def _print_groups(groups: Sequence[dict[str, Any]]) -> None:
    """The operations of each group; groups that differ only in their operands are one line."""
    found: dict[tuple[str, ...], list[int]] = {}  # cells → bytes of each group
    for row in groups:
        cells = (f"  {row['name']}", row["kind"], row["operations"])
        found.setdefault(cells, []).append(row["bytes"])
    has_equal = len(found) < len(groups)
    print_table(
        ("  kernel", "kind", "fused operations", *(["groups"] * has_equal), "reads and writes"),
        [
            (*cells, *([len(nbytes)] * has_equal), bytes_text(sum(nbytes)))
            for cells, nbytes in found.items()
        ],
    )


def _print_entry(entry: dict[str, Any], is_named: bool, is_gpu: bool, with_kernels: bool) -> None:
    """Memory, steps and checks of a call."""
    if is_named:
        click.echo(f"entry    {entry['name']}")
    scratch = f", {bytes_text(entry['scratch_bytes'])} scratch a thread"
    arena_bytes = entry["arena_bytes"]
    arena = "each call's own" if arena_bytes is None else bytes_text(arena_bytes)
    click.echo(f"memory   {arena} arena{'' if is_gpu else scratch}")
    for row in entry["ranges"]:
        where = f" with {_sizes_text(row)}" if len(entry["ranges"]) > 1 else ""
        click.echo(f"steps    {row['steps']} a call{where}")
    counts = Counter(row["kind"] for row in entry["checks"])
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    click.echo(f"checks   of data: {kinds or 'none'}")
    if with_kernels:
        print_table(("  launch", "kernel", "grid", "arguments"), list(_steps(entry)))


def _steps(entry: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Kernels and what runs between them, in the order in which they run."""
    for index, row in enumerate(entry["steps"]):
        if row["kind"] == "kernel":
            yield (f"  {index}", row["name"], "×".join(map(str, row["grid"])), _arguments(row))
            continue
        if row["kind"] == "control":
            condition = [row["condition"]] if row["condition"] else []
            yield (f"  {row['kind']}", row["name"], "-", _arguments({"args": condition}))
            continue
        is_torch = row["kind"] == "torch"
        tensors = [*row["operands"], *filter(None, row["results"])] if is_torch else row["tensors"]
        memory = [each["memory"] for each in tensors]
        yield (f"  {row['kind']}", row["name"], "-", _arguments({"args": memory}))


def _print_kernels(target: dict[str, Any], columns: Mapping[str, str]) -> None:
    """Figures of each kernel; `-` for what the bundle's extras would say, were they there.

    Kernels that differ only in their bytes of code are one line, with their number.
    """
    said = [name for name, field in columns.items() if field != SUMMED]
    entries = target["entries"]
    is_dynamic = any(len(entry["ranges"]) > 1 for entry in entries)
    known = {row["symbol"]: row for row in target["kernels"]}
    counts: dict[tuple[str, str], int] = {}  # (sizes, symbol) → launches of a call
    for entry in entries:
        for each in entry["ranges"]:
            name = f"{entry['name']} " if len(entries) > 1 else ""
            sizes = f"{name}{_sizes_text(each)}".strip() if is_dynamic else ""
            for symbol, count in each["launches"].items():
                counts[sizes, symbol] = counts.get((sizes, symbol), 0) + count
    rows: dict[tuple[str, ...], list[tuple[int, Any]]] = {}  # cells → launches, code bytes
    for (sizes, symbol), count in counts.items():
        row = known[symbol]
        cells = (row["name"], sizes, *(str(row.get(columns[each], "-")) for each in said))
        rows.setdefault(cells, []).append((count, row.get(SUMMED)))
    has_equal = len(rows) < len(counts)
    has_bytes = SUMMED in columns.values()
    print_table(
        (
            "  kernel", *(["sizes"] * is_dynamic), *(["kernels"] * has_equal), "launches",
            *(["code bytes"] * has_bytes), *said,
        ),
        [
            (
                f"  {name}", *([sizes] * is_dynamic), *([len(equal)] * has_equal),
                sum(count for count, _ in equal), *([_sum(equal)] * has_bytes), *values,
            )
            for (name, sizes, *values), equal in rows.items()
        ],
    )  # fmt: skip


def _sum(equal: Sequence[tuple[int, Any]]) -> str:
    """Bytes of code of kernels; `-` where the bundle does not say them."""
    found = [nbytes for _, nbytes in equal if isinstance(nbytes, int)]
    return str(sum(found)) if found else "-"


def _sizes_text(row: dict[str, Any]) -> str:
    """`batch = 1..8, length = 4`."""
    return ", ".join(
        f"{name} = {low}" if low == high else f"{name} = {low}..{high}"
        for name, (low, high) in row["sizes"].items()
    )


def _arguments(launch: dict[str, Any]) -> str:
    return " ".join(f"{space}:{value}" for space, value in launch["args"])
