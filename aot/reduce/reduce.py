"""`reduce`: build ever smaller parts of a model until only what fails is left.

Every part is tried as what it will be in the end: a spec file that `build` takes.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aotc.aot.build import build
from aotc.aot.capture.capture import export
from aotc.aot.capture.spec import load_spec
from aotc.aot.errors import NothingToReduce, OutputExists
from aotc.aot.options import BuildOptions
from aotc.aot.reduce.piece import Piece, piece
from aotc.aot.reduce.recording import Recording, record
from aotc.aot.reduce.search import shrink
from aotc.aot.reduce.spec_file import write_spec
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
    wanted = _failure(spec, targets, options)
    if wanted is None:
        raise NothingToReduce(spec=spec)
    loaded = load_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's about itself
        recording = record(export(loaded), loaded.arguments, dict(loaded.keyword_arguments))
    trials = _Trials(recording, targets, options, wanted, _title(spec, wanted))
    left = shrink(len(recording.operations), trials.fails, tries, progress)
    return trials.write(left, path)


def _failure(spec: str, targets: Sequence[str], options: BuildOptions) -> Failure | None:
    """How a build of the spec fails; None when it does not."""
    with tempfile.TemporaryDirectory(prefix="aotc-reduce-") as folder:
        try:
            build(spec, Path(folder) / "bundle", targets, replace(options, force=True))
        except AotcError as error:
            return Failure(error.code, " ".join(str(error).split("\n\n")[0].split()))
        except Exception as error:  # a bug of ours that no error names yet
            return Failure(type(error).__name__, (str(error).splitlines() or [""])[0])
    return None


def _title(spec: str, failure: Failure) -> str:
    return f"What is left of {Path(spec).name} by `aotc reduce`; fails with `{failure.code}`."


class _Trials:
    """Builds of parts of one recording."""

    def __init__(
        self,
        recording: Recording,
        targets: Sequence[str],
        options: BuildOptions,
        wanted: Failure,
        title: str,
    ) -> None:
        self.recording, self.targets, self.options = recording, targets, options
        self.wanted, self.title, self.builds = wanted, title, 0

    def fails(self, places: Sequence[int]) -> bool:
        """Whether the operations at these places, on their recorded values, fail as the whole."""
        part = piece(self.recording, places)
        return part is not None and self._fails(part, has_values=True)

    def _fails(self, part: Piece, has_values: bool) -> bool:
        self.builds += 1
        with tempfile.TemporaryDirectory(prefix="aotc-reduce-") as folder:
            path = Path(folder) / "reduced.py"
            self._write(part, path, has_values)
            found = _failure(str(path), self.targets, self.options)
        return found is not None and found.code == self.wanted.code

    def _write(self, part: Piece, path: Path, has_values: bool) -> None:
        write_spec(part, path, self.title, len(self.recording.operations), has_values)

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
