"""`aotc build SPEC -o OUT`: compile a model into a bundle."""

from __future__ import annotations

import faulthandler
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aotc.aot.build_extra import require_build_extra
from aotc.aot.cli import flags
from aotc.aot.cli.output import check_place, write_output
from aotc.aot.cli.printing import bytes_text, print_json, time_text
from aotc.aot.cli.progress import progress_for
from aotc.aot.errors import SpecFileMissing
from aotc.aot.pack.staging import check_free
from aotc.aot.project import build_options
from aotc.aot.spec_form import spec_not_understood
from aotc.aot.stages import StageTime

if TYPE_CHECKING:
    from aotc.aot.pipeline import BuildReport, TargetReport


@click.command("build")
@flags.specs
@click.option(
    "-o",
    "--output",
    "out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Bundle to write; with several SPECs, the folder of their bundles.",
)
@flags.targets
@click.option("--force", is_flag=True, help="Replace a bundle that stands at the output path.")
@click.option(
    "--tune",
    type=click.Choice(["off", "quick", "full"]),
    help="Choose kernels by the cost model, or measure some or all candidates [AOTC_TUNE].",
)
@flags.tune_budget
@click.option("--record", type=click.Path(path_type=Path), help="Tuning record, read and written.")
@flags.frozen
@click.option(
    "--allow-mismatch",
    is_flag=True,
    help="Write the bundle even where its numbers differ from the model's.",
)
@flags.quantize
@flags.fallback
@flags.round_intermediates
@flags.unchecked_indices
@click.option(
    "--weights",
    type=click.Choice(["bundled", "external"]),
    default="bundled",
    help="Store the weights in the bundle, or have `load` read the model's own files.",
)
@flags.ranks
@flags.adapters
@click.option("--embed-backends", is_flag=True, help="Keep native libraries in the bundle.")
@flags.rewrites
@click.option("--debug", is_flag=True, help="Keep the text of every stage in the bundle's debug/.")
@click.option(
    "--log",
    type=click.Path(path_type=Path),
    help="Write the build's times, checks and machine as JSON; the bundle holds none of them.",
)
@flags.ray
@flags.measure_on
@flags.jobs
@flags.cache_dir
@flags.remote_cache
@flags.quiet
@flags.as_json
def command(
    specs: tuple[str, ...],
    out: Path,
    targets: tuple[str, ...],
    log: Path | None,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Compile the model that SPEC names into the bundle directory OUT.

    SPEC is FILE.py[:NAME] with `model` or `build_model()` and `example_inputs`, or
    PACKAGE.MODULE:NAME, or a FILE.pt2 that torch.export.save wrote. With several SPECs, OUT is a
    folder with one bundle for each, named after it; if one fails, those before it stay.

    \b
    A causal language model of transformers is two lines (docs/llm.md):
      from aotc.aot.huggingface import causal_lm
      model, entry_points = causal_lm("FOLDER", max_length=2048, batch=8)
    """
    if given["measure_on"] and given["ray"] is None:
        raise click.UsageError("'--on' needs '--ray': this machine measures without it")
    places = bundle_paths(specs, out)
    for spec, place in places.items():
        check_free(str(place), given["force"])
        refuse_missing_file(spec)
    check_place(log)
    require_build_extra("aotc build")
    refuse_unknown_targets(targets)
    started_s = time.perf_counter()
    if sys.__stderr__ and not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__)  # where torch's or LLVM's code dies, say which line ran
    progress = progress_for(quiet)
    try:
        progress.begin("import")
        from aotc.aot.pipeline import build
        from aotc.aot.rewrites.user_rewrites import rewrites_of

        has_weights = given.pop("weights") == "bundled"
        given["tune_budget_seconds"] = given.pop("tune_budget")
        given["rewrites"] = rewrites_of(given["rewrites"])
        options = build_options(**given, has_weights=has_weights)
        progress.end(StageTime("import", time.perf_counter() - started_s, "torch, triton"))
        records = []
        with options.executor() as executor:
            for spec, place in places.items():
                report = build(spec, place, targets, options, progress, executor)
                progress.stop()
                records.append(report.record())
                if as_json:
                    print_json("aotc.build/1", report.record())
                else:
                    _print(report, time.perf_counter() - started_s)
                started_s = time.perf_counter()
    finally:
        progress.stop()
    if log is not None:
        logged = records if len(records) > 1 else records[0]
        write_output(log, json.dumps(logged, indent=2, sort_keys=True).encode() + b"\n")


def bundle_paths(specs: Sequence[str], out: Path) -> dict[str, Path]:
    """SPEC → where its bundle goes; raises UsageError where two would go to one place."""
    if len(specs) == 1:
        return {specs[0]: out}
    places = {}
    for spec in specs:
        path, _, name = spec.partition(":")
        is_file = path.endswith((".py", ".pt2"))
        stem = Path(path).stem if is_file else path.rpartition(".")[2]
        places[spec] = out / "-".join(filter(None, [stem, name]))
    if len(set(places.values())) < len(specs):
        raise click.UsageError("two of the SPECs have the same name, expected different ones")
    return places


def refuse_missing_file(spec: str) -> None:
    """Raise SpecFileMissing and SpecNotUnderstood before the seconds that importing torch takes."""
    path, _, name = spec.partition(":")
    if path.endswith((".py", ".pt2")):
        if not Path(path).is_file():
            raise SpecFileMissing(path=path)
    elif not name or not all(part.isidentifier() for part in path.split(".")):
        raise spec_not_understood(spec)


def refuse_unknown_targets(targets: Sequence[str]) -> None:
    """Raise UnknownTarget and TargetDeviceAbsent before the seconds that importing torch takes."""
    from aotc.aot.targets.families import find_target

    for name in targets:
        find_target(name)


def _print(report: BuildReport, seconds: float) -> None:
    click.echo(f"bundle   {report.path} ({bytes_text(report.bundle_bytes)})")
    click.echo(f"digest   sha256:{report.digest}")
    for line in report.dims:
        click.echo(f"dim      {line}")
    for line in report.specialised:
        click.echo(f"fixed    {line}: the model does not hold for other sizes")
    if report.quantized:
        click.echo(f"weights  {_quantized_text(report.quantized)}")
    for line in report.backends:
        click.echo(f"native   {line}")
    for op in report.torch_ops:
        click.echo(f"torch    runs {op}")
    for target in report.targets:
        _print_target(target)
    click.echo(f"kernels  {report.compiled} compiled, {report.cache_hits} from the cache")
    click.echo(f"time     {time_text(seconds)}")


def _quantized_text(quantized: Mapping[str, Any]) -> str:
    error, share = quantized["output_error"], f"{100 * quantized['share']:.0f} %"
    stored = f"{quantized['weights']} in {quantized['kind']}, {share} of the parameters"
    if error is None:
        return f"{stored}; no output is a float, so their error is not known"
    return f"{stored}; {quantized['measured']} differ by {error:.1e} of their largest"


def _arena_text(target: TargetReport) -> str:
    return "each call's own" if target.arena_bytes is None else bytes_text(target.arena_bytes)


def _print_target(target: TargetReport) -> None:
    calls = "a call" if target.entries == 1 else f"in {target.entries} entries"
    click.echo(
        f"target   {target.target}: {target.kernels} kernels, {target.launches} launches {calls}"
        f", {bytes_text(target.code_bytes)} code, {_arena_text(target)} arena"
    )
    if not target.checks:
        click.echo("golden   not validated: this machine does not run the target")
    for check in target.checks:
        word = "ok" if check.is_ok else "DIFFERS"
        found = f"max error {check.difference:.1e} relative to max |expected|"
        click.echo(f"golden   {word}, {check.name}: {found}")
