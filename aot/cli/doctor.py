"""`aotc doctor`: this machine, the installed parts, the cache and every setting with its origin."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from aotc.aot.cli import flags
from aotc.aot.cli.printing import bytes_text, print_json, print_table
from aotc.aot.project import cache_folder, project_table, remote_layer, setting
from aotc.aot.version import TESTED, installed_version, tested_text, untested
from aotc.runtime import settings

DISTRIBUTIONS = ("aotc", "click", "filelock", "torch", "triton", "numpy")
INSTALL = 'pip install "aotc[build]" (in a checkout of aotc: pip install ".[build]")'


@click.command("doctor")
@flags.as_json
def command(as_json: bool) -> None:
    """Show this machine, the installed parts and every setting with its origin."""
    record: dict[str, Any] = {
        "machine": _machine(),
        "devices": _devices(),
        "assemblers": _assemblers(),
        "versions": {name: installed_version(name) for name in DISTRIBUTIONS},
        "tested": {name: tested_text(name) for name in TESTED},
        "cache": _cache(),
        "settings": _settings(),
        "advice": _advice(),
    }
    if as_json:
        print_json("aotc.doctor/1", record)
        return
    _print_map("machine", record["machine"])
    _print_map("devices", record["devices"])
    _print_map("assemblers", record["assemblers"])
    _print_map("versions", _with_tested(record["versions"], record["tested"]))
    _print_map("cache", record["cache"])
    click.echo("settings")
    print_table(
        ("  name", "value", "origin", "meaning"),
        [(f"  {r['name']}", r["value"], r["origin"], r["meaning"]) for r in record["settings"]],
    )
    for line in record["advice"]:
        click.echo(f"\nadvice: {line}")


def _machine() -> dict[str, Any]:
    from aotc.aot.measure.processor import cpu_name
    from aotc.runtime.drivers.cpu import driver
    from aotc.runtime.drivers.cpu.pool import default_threads

    features = driver.features()
    sets = [name for name, needed in driver.ISA_FEATURES.items() if needed <= features]
    return {
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": cpu_name(),
        "cpus": default_threads(),
        "instruction sets": ", ".join(sets) or "none that aotc has a target for",
        "python": platform.python_version(),
        "executable": sys.executable,
    }


def _devices() -> dict[str, Any]:
    """The NVIDIA driver and its devices, or why there are none."""
    from aotc.runtime.drivers.cuda import driver as cuda
    from aotc.runtime.drivers.cuda import libcuda

    try:
        version = libcuda.version_text(libcuda.driver_version(libcuda.library()))
    except libcuda.LibraryAbsent as absent:
        return {"cuda": str(absent)}
    rows = {
        f"cuda:{ordinal}": f"{name}, {architecture}, {bytes_text(nbytes)}"
        for ordinal, name, architecture, nbytes in cuda.describe()
    }
    return {"driver": f"for CUDA {version}", **(rows or {"cuda": cuda.why_absent()})}


def _assemblers() -> dict[str, Any]:
    """What compiles for GPUs here, device or not."""
    from aotc.aot.targets.cuda.machines import assembler_versions
    from aotc.aot.targets.cuda.target import known

    versions = assembler_versions()
    if not versions:
        return {"ptxas": "none: it comes with triton"}
    return {**versions, "targets": " ".join(name for name in known() if name != "cuda")}


def _with_tested(versions: dict[str, str], tested: dict[str, str]) -> dict[str, str]:
    """Each version, with the tested releases behind it where aotc depends on the release."""
    width = max(len(version) for version in versions.values())
    return {
        name: f"{version:<{width}}  tested: {tested[name]}" if name in tested else version
        for name, version in versions.items()
    }


def _cache() -> dict[str, Any]:
    from aotc.cache import Store
    from aotc.cache.collect import rows
    from aotc.cache.errors import CacheError

    folder = cache_folder()
    record: dict[str, Any] = {"folder": str(folder), "remote": _remote()}
    try:
        found = list(rows(Store(folder)))
    except CacheError as error:
        return {**record, "state": error.message}
    size = bytes_text(sum(row.size_bytes for row in found))
    free = bytes_text(shutil.disk_usage(_existing(folder)).free)
    return {**record, "state": f"{len(found)} entries, {size}", "free on its disk": free}


def _remote() -> str:
    """The remote cache and what may be done there; the server is not asked."""
    url = setting("AOTC_REMOTE_CACHE")
    if not url:
        return "none"
    from aotc.cache.errors import CacheError

    try:
        layer = remote_layer(url)
    except CacheError as error:
        return error.message
    how = "written" if layer.is_writable else "only read"
    return f"{url}, {how}, {'authenticated' if layer.is_authenticated else 'not authenticated'}"


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def _settings() -> list[dict[str, Any]]:
    rows = []
    for name, row in settings.SETTINGS.items():
        if name == "AOTC_CACHE_DIR":
            reading = settings.cache_dir(None, project_table())
        else:
            reading = settings.read(name, None, project_table())
        value = ",".join(reading.value) if isinstance(reading.value, tuple) else str(reading.value)
        if row.kind == "secret" and value:
            value = "(set)"
        rows.append(
            {"name": name, "value": value, "origin": reading.origin, "meaning": row.meaning}
        )
    return rows


def _advice() -> list[str]:
    lines = []
    missing = [name for name in ("torch", "triton", "numpy") if not installed_version(name, "")]
    if missing:
        lines.append(f"`aotc build` needs {', '.join(missing)}: {INSTALL}")
    lines += untested()
    if platform.machine() != "x86_64":
        lines.append("bundles for the CPU run on x86-64 only")
    return lines


def _print_map(title: str, record: dict[str, Any]) -> None:
    click.echo(title)
    width = max(len(name) for name in record)
    for name, value in record.items():
        click.echo(f"  {name:<{width}}  {value}")
    click.echo("")
