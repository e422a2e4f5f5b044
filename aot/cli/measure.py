"""`aotc measure TASK… -o DIR`: measure kernels on the device here, under any scheduler."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from aotc.aot.cli import flags
from aotc.aot.cli.printing import print_json
from aotc.aot.cli.progress import progress_for
from aotc.aot.errors import UnknownTarget
from aotc.aot.measure.processor import devices_here
from aotc.aot.measure.program import Measurement, Rows, Times, ask
from aotc.aot.tasks.errors import DeviceDiffers, TaskFileMissing
from aotc.aot.tasks.files import RESULT, TASK, task_name, write_whole
from aotc.aot.tasks.task import Executor
from aotc.aot.tasks.workers import Workers


@click.command("measure")
@click.argument(
    "tasks", nargs=-1, required=True, metavar="TASK…", shell_complete=flags.complete_files
)
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the results.",
)
@flags.quiet
@flags.as_json
def command(tasks: tuple[str, ...], out: Path | None, quiet: bool, as_json: bool) -> None:
    """Measure each TASK on the device of this machine, and write its times into DIR.

    TASK is a file that `aotc tune --tasks-to` wrote, a folder of them, or - for one on stdin, whose
    result goes to stdout without DIR. Tasks whose results are in DIR are skipped. A task is machine
    code, which runs here: measure tasks that you trust.
    """
    paths = list(_paths(tasks))
    if out is None and paths != ["-"] and not as_json:
        raise click.UsageError("missing option '-o' / '--output'")
    progress = progress_for(quiet)
    results = {}
    try:
        progress.begin("measure")
        with Workers(1) as executor:
            for number, path in enumerate(paths):
                data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
                name = task_name(data)
                if out is not None and (out / (name + RESULT)).exists():
                    continue
                task = Measurement.from_bytes(data, path)
                progress.advance(number, len(paths), task.kernel)
                times = Times.of(_measured(task, executor))
                results[name] = {"kernel": task.kernel, "times_us": _plain(times.values)}
                if out is not None:
                    write_whole(out / (name + RESULT), times.to_bytes())
                elif not as_json:
                    sys.stdout.buffer.write(times.to_bytes())
    finally:
        progress.stop()
    if as_json:
        print_json("aotc.measure/1", {"results": results})
    elif out is not None:
        click.echo(f"measured {len(results)} of {len(paths)} tasks into {out}")


def _paths(tasks: Sequence[str]) -> Iterator[str]:
    for task in tasks:
        if task != "-" and Path(task).is_dir():
            yield from sorted(map(str, Path(task).glob("*" + TASK)))
        else:
            if task != "-" and not Path(task).exists():
                raise TaskFileMissing(path=task)
            yield task


def _measured(task: Measurement, executor: Executor) -> Rows:
    """Raises UnknownTarget, DeviceDiffers."""
    from aotc.aot.targets.families import FAMILIES

    family = FAMILIES.get(task.family)
    if family is None:
        raise UnknownTarget(target=task.family, known=", ".join(FAMILIES))
    _, names = devices_here(task.family)
    if task.device and task.device not in names:
        raise DeviceDiffers(found=", ".join(names) or "no device", expected=task.device)
    asking = ask(task, family.measure)
    try:
        request = next(asking)
        while True:
            (outcome,) = executor.map([request])
            request = asking.send(outcome)
    except StopIteration as ended:
        rows: Rows = ended.value
        return rows


def _plain(rows: Rows) -> list[Any]:
    """Microseconds, or why there are none."""
    return [reason if time_us == float("inf") else time_us for time_us, reason in rows]
