"""`aotc run BUNDLE`: run a bundle on numpy files, its golden input or random numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aotc.aot.call_sizes import resized_each, sizes_beside
from aotc.aot.cli import flags
from aotc.aot.cli.output import write_output
from aotc.aot.cli.printing import print_json, time_text
from aotc.aot.errors import InputArgumentError
from aotc.aot.host_array import (
    HostArray,
    difference,
    draw,
    host_arrays,
    npy_bytes,
    outputs_of,
    read_npy,
)
from aotc.runtime.bundle.opened import Bundle, read_bundle
from aotc.runtime.comparison import Comparison
from aotc.runtime.errors import GoldenMissing, InputMissing
from aotc.runtime.extras import Golden, golden_of
from aotc.runtime.loading import load_open

if TYPE_CHECKING:
    from aotc.runtime import Program, TensorSpec
    from aotc.runtime.programs.entry import EntryFunction

SHOWN_VALUES = 6
DEFAULT_TOLERANCE = 1e-4


@click.command("run")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=@X.npy",
    help="Read this input from a file; may be given repeatedly.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="NAME=@Y.npy",
    help="Write this output to a file; may be given repeatedly.",
)
@click.option(
    "--expect",
    "expected",
    multiple=True,
    metavar="NAME=@R.npy",
    help="Compare this output with a file's; may be given repeatedly.",
)
@click.option(
    "--tolerance",
    type=flags.Amount(),
    help="Largest error of --expect, relative to max |expected|.",
)
@click.option("--seed", type=int, help="Draw inputs at random; else the golden input is used.")
@click.option("--device", help="cpu, cuda or cuda:1; else the first target that runs here.")
@click.option("--threads", type=int, help="Threads for one call [AOTC_THREADS].")
@flags.sizes
@flags.entry
@flags.digest
@flags.imports
@flags.as_json
def command(
    bundle: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    expected: Sequence[str],
    tolerance: float | None,
    seed: int | None,
    device: str | None,
    threads: int | None,
    sizes: Mapping[str, int],
    entry: str | None,
    digest: str | None,
    as_json: bool,
) -> int:
    """Run BUNDLE once and print its outputs. Exit 1 when one differs from its --expect."""
    if tolerance is not None and not expected:
        raise click.UsageError("'--tolerance' needs '--expect': nothing is compared without it")
    began_s = time.perf_counter()
    program, golden = read_bundle(
        bundle,
        lambda opened: (load_open(opened, device, threads), _golden(opened, entry, bool(sizes))),
        digest,
    )
    with program:
        loaded_s = time.perf_counter()
        called = program.entry(entry)
        files = _assignments("--input", inputs, called.inputs)
        examples = host_arrays(called.inputs, golden.inputs) if golden.inputs else {}
        if sizes:
            at = sizes_beside(called.signature, program.manifest.session, examples, sizes)
            examples = resized_each(examples, at.shapes)
            if at.session:
                called = program.session(**at.session)[called.name]
        arrays = input_arrays(called, examples, files, seed)
        targets = _assignments("--output", outputs, called.outputs)
        references = _assignments("--expect", expected, called.outputs)
        started_s = time.perf_counter()
        found = outputs_of(called, {name: array.buffer() for name, array in arrays.items()})
        ended_s = time.perf_counter()
        results = host_arrays(called.outputs, found)
    for name, path in targets.items():
        write_output(path, npy_bytes(results[name]))
    checks = []
    types = {}
    for name, path in references.items():
        limit = golden.tolerances.get(name, DEFAULT_TOLERANCE) if tolerance is None else tolerance
        reference = read_npy(path)
        types[name] = reference.type_text
        checks.append(Comparison(name, difference(results[name], reference), limit))
    if as_json:
        print_json("aotc.run/1", _record(results, checks, loaded_s - began_s, ended_s - started_s))
    else:
        _print(results, checks, types)
        times = f"load {time_text(loaded_s - began_s)}, call {time_text(ended_s - started_s)}"
        click.echo(times, err=True)
    return 0 if all(check.is_ok for check in checks) else 1


def input_arrays(
    program: Program | EntryFunction,
    examples: Mapping[str, HostArray],
    files: dict[str, Path],
    seed: int | None,
) -> dict[str, HostArray]:
    """Every input: from its file, else drawn with the seed, else the example.

    What is drawn has the sizes of the files where they show them, else those of the examples.
    Raises InputMissing when there is no example and no seed, or a size is not known.
    """
    arrays = {name: read_npy(path) for name, path in files.items()}
    sizes: dict[str, int] = {}
    for shown in (examples, arrays):
        for spec in program.inputs:
            if spec.name in shown:
                sizes |= zip(map(str, spec.shape), shown[spec.name].shape, strict=False)
    for spec in program.inputs:
        if spec.name in arrays:
            continue
        example = examples.get(spec.name)
        known = [size if isinstance(size, int) else sizes.get(str(size)) for size in spec.shape]
        if seed is not None and None not in known:
            fixed = spec.replace(shape=tuple(known))
            arrays[spec.name] = draw(fixed, seed, like=example)
        elif example is not None:
            arrays[spec.name] = example
        else:
            raise InputMissing(name=spec.name, expected=f"`--input {spec.name}=@FILE.npy`")
    return arrays


def _golden(opened: Bundle, entry: str | None, is_needed: bool) -> Golden:
    try:
        return golden_of(opened, entry)
    except GoldenMissing:
        if is_needed:
            raise
        return Golden({}, {}, {})


def _assignments(option: str, texts: Sequence[str], specs: Sequence[TensorSpec]) -> dict[str, Path]:
    """`NAME=@FILE` arguments as name → path; the name must be one of the program's."""
    known = [spec.name for spec in specs]
    found: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not path or name not in known:
            names = ", ".join(f"`{each}`" for each in known)
            form = f"NAME=@FILE.npy, with NAME one of {names}"
            raise InputArgumentError(argument=f"{option} {text}", expected=form)
        if name in found:
            form = f"another name than `{name}`, which was given before"
            raise InputArgumentError(argument=f"{option} {text}", expected=form)
        found[name] = Path(path.removeprefix("@"))
    return found


def _print(
    results: dict[str, HostArray], checks: Sequence[Comparison], types: Mapping[str, str]
) -> None:
    """The outputs and how far they are from what was expected; types: those of the files."""
    for name, array in results.items():
        values = array.values()
        shown = ", ".join(f"{value:.6g}" for value in values[:SHOWN_VALUES])
        dots = ", …" if len(values) > SHOWN_VALUES else ""
        click.echo(f"{name}: {array.type_text} = {shown}{dots}")
    for check in checks:
        found = results[check.name].type_text
        if found != types[check.name]:
            click.echo(f"{check.name}: DIFFERS, is {found}, expected {types[check.name]}")
            continue
        word = "ok" if check.is_ok else "DIFFERS"
        click.echo(
            f"{check.name}: {word}, max error {check.difference:.3g} relative to max |expected| "
            f"(tolerance {check.tolerance:.3g})"
        )


def _record(
    results: dict[str, HostArray], checks: Sequence[Comparison], load_s: float, call_s: float
) -> dict[str, object]:
    return {
        "outputs": [
            {"name": name, "dtype": array.dtype, "shape": list(array.shape)}
            for name, array in results.items()
        ],
        "checks": [check.as_map() for check in checks],
        "load_seconds": load_s,
        "call_seconds": call_s,
    }
