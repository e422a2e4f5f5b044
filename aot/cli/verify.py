"""`aotc verify BUNDLE`: digests of every byte, compatibility with this machine, golden numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aotc.aot.cli.printing import print_json
from aotc.aot.cli.run import check_record
from aotc.aot.errors import GoldenMissing
from aotc.aot.golden import check_golden, read_extras
from aotc.runtime.check import mismatches, read_manifest
from aotc.runtime.directory import Directory
from aotc.runtime.weights import Digests, MappedFile


@click.command("verify")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--integrity", "layers", flag_value="integrity", help="Digests only.")
@click.option("--compat", "layers", flag_value="compat", help="Compatibility only.")
@click.option("--golden", "layers", flag_value="golden", help="Golden numbers only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(bundle: Path, layers: str | None, as_json: bool) -> int:
    """Check BUNDLE: integrity, compatibility, golden numbers; all that apply unless one is named.

    Exit 6 when a byte was altered, 5 when it does not run here, 1 when its numbers are wrong.
    """
    wanted = (layers,) if layers else ("integrity", "compat", "golden")
    record: dict[str, Any] = {"path": str(bundle)}
    if "integrity" in wanted:
        record["integrity"] = {"ok": True, "files": check_integrity(bundle)}
    if "compat" in wanted:
        record["compat"] = _compatibility(bundle)
    if "golden" in wanted and record.get("compat", {"ok": True})["ok"]:
        record["golden"] = _golden(bundle)
    if as_json:
        print_json("aotc.verify/1", record)
    else:
        _print(record)
    if not record.get("compat", {"ok": True})["ok"]:
        return 5
    return 0 if record.get("golden", {"ok": True})["ok"] else 1


def check_integrity(bundle: Path) -> int:
    """Read and digest every listed file; returns how many. Raises the `BundleError` of the first
    that is missing, truncated or altered."""
    with Directory(str(bundle)) as directory:
        manifest, _ = read_manifest(directory)
        for entry in manifest.files:
            directory.read(entry)
        count = len(manifest.files)
        if manifest.weights is not None:
            row = manifest.weights
            mapped = MappedFile(directory.open_sized(row.name, row.nbytes), row.nbytes)
            Digests(mapped.view, row, directory.where(row.name), threads=2).finish()
            count += 1
    return count + len(read_extras(bundle))


def _compatibility(bundle: Path) -> dict[str, Any]:
    with Directory(str(bundle)) as directory:
        rows = mismatches(read_manifest(directory)[0])
    return {"ok": not rows, "mismatches": [row.as_map() for row in rows]}


def _golden(bundle: Path) -> dict[str, Any]:
    try:
        checks = check_golden(bundle)
    except GoldenMissing as error:
        return {"ok": True, "skipped": error.message}
    return {
        "ok": all(check.is_ok for check in checks),
        "outputs": [check_record(check) for check in checks],
    }


def _print(record: dict[str, Any]) -> None:
    if "integrity" in record:
        click.echo(f"integrity  ok, {record['integrity']['files']} files match their digests")
    if "compat" in record:
        click.echo(
            f"compat     {'ok, runs here' if record['compat']['ok'] else 'DOES NOT RUN HERE'}"
        )
        for row in record["compat"]["mismatches"]:
            click.echo(f"           {row['field']} is {row['found']}, expected {row['expected']}")
            click.echo(f"           hint: {row['hint']}")
    golden = record.get("golden", {})
    if "skipped" in golden:
        click.echo(f"golden     skipped: {golden['skipped']}")
    for row in golden.get("outputs", ()):
        word = "ok" if row["ok"] else "DIFFERS"
        click.echo(
            f"golden     {word}, {row['name']} is {row['difference']:.2e} of its scale away "
            f"(tolerance {row['tolerance']:.0e})"
        )
