"""`aotc inspect BUNDLE`: what a bundle takes, gives, holds and costs; nothing of it is run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from aotc.aot.cli.printing import bytes_text, print_json, print_table
from aotc.runtime.check import mismatches, read_manifest
from aotc.runtime.directory import Directory
from aotc.runtime.extras import read_extra
from aotc.runtime.manifest import LIMITS, Manifest, TensorSpec, identity_of
from aotc.runtime.plan import LaunchPlan

PROVENANCE = "provenance.json"


@click.command("inspect")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--kernels", "with_kernels", is_flag=True, help="List every launch.")
@click.option("--files", "with_files", is_flag=True, help="List every file with its digest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(bundle: Path, with_kernels: bool, with_files: bool, as_json: bool) -> None:
    """Show what BUNDLE takes, gives and holds. Reads data only; no code of it is loaded."""
    record = inspect_bundle(bundle)
    if as_json:
        print_json("aotc.inspect/1", record)
        return
    _print_head(record)
    for target in record["targets"]:
        _print_target(target, with_kernels)
    if record["groups"]:
        click.echo("\nfusion groups")
        print_table(
            ("  kernel", "kind", "fused operations", "reads and writes"),
            [
                (f"  {row['name']}", row["kind"], row["operations"], bytes_text(row["bytes"]))
                for row in record["groups"]
            ],
        )
    if with_files:
        click.echo("\nfiles")
        print_table(
            ("  name", "size", "sha256"),
            [(f"  {r['name']}", bytes_text(r["bytes"]), r["sha256"][:16]) for r in record["files"]],
        )


def inspect_bundle(bundle: Path) -> dict[str, Any]:
    """All of a bundle's facts as plain data. Raises `BundleError`s."""
    with Directory(str(bundle)) as directory:
        manifest, data = read_manifest(directory)
        plans = {
            target.name: LaunchPlan.from_msgpack(
                directory.read(manifest.file(target.plan)), directory.where(target.plan)
            )
            for target in manifest.targets
        }
    provenance = _provenance(bundle)
    return {
        "path": str(bundle),
        "identity": identity_of(data),
        "inputs": [_tensor(spec) for spec in manifest.inputs],
        "outputs": [_tensor(spec) for spec in manifest.outputs],
        "weights_bytes": manifest.weights.nbytes if manifest.weights else 0,
        "features": list(manifest.features),
        "mismatches": [row.as_map() for row in mismatches(manifest)],
        "targets": [_target(manifest, name, plan) for name, plan in plans.items()],
        "groups": provenance.get("groups", []),
        "provenance": {name: value for name, value in provenance.items() if name != "groups"},
        "files": [
            {"name": entry.name, "bytes": entry.nbytes, "sha256": entry.sha256.hex()}
            for entry in manifest.files
        ],
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "bytes": spec.nbytes,
    }


def _target(manifest: Manifest, name: str, plan: LaunchPlan) -> dict[str, Any]:
    row = next(target for target in manifest.targets if target.name == name)
    return {
        "name": name,
        "device": row.device,
        "needs": list(row.needs),
        "code_bytes": manifest.file(row.library).nbytes,
        "arena_bytes": plan.arena_bytes,
        "scratch_bytes": plan.scratch_bytes,
        "kernels": len(plan.kernels),
        "launches": [
            {
                "kernel": plan.kernels[launch.kernel].name,
                "symbol": plan.kernels[launch.kernel].symbol,
                "grid": list(launch.grid),
                "args": [list(argument) for argument in launch.args],
            }
            for launch in plan.launches
        ],
    }


def _provenance(bundle: Path) -> dict[str, Any]:
    """The build's facts; empty where the extras were deleted."""
    with Directory(str(bundle)) as directory:
        data = read_extra(directory, PROVENANCE)
    if data is None or len(data) > LIMITS.file_bytes:
        return {}
    parsed = json.loads(data)
    return parsed if isinstance(parsed, dict) else {}


def _print_head(record: dict[str, Any]) -> None:
    click.echo(f"bundle   {record['path']}")
    click.echo(f"identity sha256:{record['identity']}")
    for kind in ("inputs", "outputs"):
        for row in record[kind]:
            shape = f"{row['dtype']}{row['shape']}"
            click.echo(f"{kind[:-1]:<8} {row['name']}: {shape}, {bytes_text(row['bytes'])}")
    click.echo(f"weights  {bytes_text(record['weights_bytes'])}")
    for row in record["mismatches"]:
        click.echo(f"does not run here: {row['field']} is {row['found']}")


def _print_target(target: dict[str, Any], with_kernels: bool) -> None:
    click.echo(f"\ntarget   {target['name']}")
    click.echo(f"code     {bytes_text(target['code_bytes'])}, {target['kernels']} kernels")
    click.echo(
        f"memory   {bytes_text(target['arena_bytes'])} arena, "
        f"{bytes_text(target['scratch_bytes'])} scratch a thread"
    )
    launches = target["launches"]
    click.echo(f"launches {len(launches)} a call")
    if with_kernels:
        print_table(
            ("  launch", "kernel", "grid", "arguments"),
            [
                (f"  {index}", row["kernel"], "×".join(map(str, row["grid"])), _arguments(row))
                for index, row in enumerate(launches)
            ],
        )
        return
    counts = Counter(row["kernel"] for row in launches)
    print_table(("  kernel", "launches"), [(f"  {name}", count) for name, count in counts.items()])


def _arguments(launch: dict[str, Any]) -> str:
    return " ".join(f"{space}:{value}" for space, value in launch["args"])
