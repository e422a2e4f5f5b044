"""`reduce`: build ever smaller parts of a model until only what fails is left.

Every part is tried as what it will be in the end: a spec file that `build` takes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aotc.aot.capture.exporting import export
from aotc.aot.capture.spec import load_spec
from aotc.aot.errors import NothingToReduce, OutputExists
from aotc.aot.folders import owned
from aotc.aot.host_kernels import host_kernels
from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import build
from aotc.aot.reduce.piece import Piece, piece
from aotc.aot.reduce.recording import Recording, record
from aotc.aot.reduce.search import shrink
from aotc.aot.reduce.spec_file import write_spec
from aotc.aot.tasks.workers import Workers
from aotc.runtime.errors import AotcError

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Failure:
    """How a build failed: the code of its error, and its first line."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ReduceReport:
    """What was found: the spec written, how many operations it has, and how it fails."""

    path: str
    failure: Failure
    operations: int
    total: int
    builds: int
    has_values: bool  # whether it needs the recorded values, which lie beside it

    def as_map(self) -> dict[str, Any]:
        """The report as plain data, for `--json`."""
        return asdict(self)


def reduce(
    spec: str,
    out: str | os.PathLike[str],
    targets: Sequence[str],
    options: BuildOptions,
    tries: int,
    progress: Progress,
) -> ReduceReport:
    """Write the smallest part found of the model that fails as the whole does to `out`, a `.py`.

    At most `tries` parts are built. Raises `NothingToReduce` when the model builds and agrees, and
    what torch.export raises where there is no graph to take parts of.
    """
    path = Path(out)
    if path.exists() and not options.force:
        raise OutputExists(path=str(path))
    with Workers(options.jobs) as workers:
        bench = _Bench(tuple(targets), options, workers)
        wanted = bench.failure(spec)
        if wanted is None:
            raise NothingToReduce(spec=spec)
        trials = _Trials(_recorded(spec), bench, wanted, spec)
        left = shrink(len(trials.recording.operations), trials.fails, tries, progress)
        return trials.write(left, path)


def _recorded(spec: str) -> Recording:
    loaded = load_spec(spec)
    with warnings.catch_warnings(), host_kernels(loaded):
        warnings.simplefilter("ignore")  # torch's about itself
        return record(export(loaded), loaded.arguments, dict(loaded.keyword_arguments))


@dataclass(frozen=True, slots=True)
class _Bench:
    """Where parts are built: what for, how, and by whom."""

    targets: tuple[str, ...]
    options: BuildOptions
    workers: Workers

    def failure(self, spec: str) -> Failure | None:
        """How a build of the spec fails; None when it does not."""
        options = replace(self.options, force=True)
        with owned("reduce") as folder:
            try:
                build(spec, Path(folder) / "bundle", self.targets, options, executor=self.workers)
            except AotcError as error:
                return Failure(error.code, " ".join(str(error).split("\nhint:")[0].split()))
            except Exception as error:  # a bug of ours that no error names yet
                return Failure(type(error).__name__, (str(error).splitlines() or [""])[0])
        return None


def _title(spec: str, failure: Failure) -> str:
    return f"What is left of {Path(spec).name} by `aotc reduce`; fails with `{failure.code}`."


def _source(spec: str) -> str:
    """What Python code a spec names, as something to import from any folder; empty for none."""
    location, _, name = spec.partition(":")
    if location.endswith(".py"):
        return str(Path(location).resolve())
    return location if name else ""


class _Trials:
    """Builds of parts of one recording."""

    def __init__(self, recording: Recording, bench: _Bench, wanted: Failure, spec: str) -> None:
        self.recording, self.bench, self.wanted = recording, bench, wanted
        self.title, self.source = _title(spec, wanted), _source(spec)
        self.builds = 0

    def fails(self, places: Sequence[int]) -> bool:
        """Whether the operations at these places, on their recorded values, fail as the whole."""
        part = piece(self.recording, places)
        return part is not None and self._fails(part, has_values=True)

    def _fails(self, part: Piece, has_values: bool) -> bool:
        self.builds += 1
        with owned("reduce") as folder:
            path = Path(folder) / "reduced.py"
            self._write(part, path, has_values)
            found = self.bench.failure(str(path))
        return found is not None and found.code == self.wanted.code

    def _write(self, part: Piece, path: Path, has_values: bool) -> None:
        total = len(self.recording.operations)
        write_spec(part, path, self.title, total, has_values, self.source)

    def write(self, places: Sequence[int], path: Path) -> ReduceReport:
        """Write what is left, without its values where random ones fail too."""
        part = piece(self.recording, places)
        assert part is not None
        has_values = not self._fails(part, has_values=False)
        self._write(part, path, has_values)
        return ReduceReport(
            path=str(path),
            failure=self.wanted,
            operations=part.operations,
            total=len(self.recording.operations),
            builds=self.builds,
            has_values=has_values,
        )
