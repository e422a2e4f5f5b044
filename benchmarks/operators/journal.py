"""What a run has found so far, a line a piece of work, so that a run which was ended goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.operators.drive import Outcome


class Journal:
    """Outcomes by piece. A file of another run, which its head tells, is begun anew."""

    def __init__(self, path: Path, head: Mapping[str, str]) -> None:
        """Read the pieces of the run that `head` describes: its commit, options and versions."""
        self.path = path
        self.found: dict[str, list[Outcome]] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if lines[:1] == [json.dumps(dict(head))]:
            for line in filter(_is_whole, lines[1:]):
                piece, rows = json.loads(line)
                self.found[piece] = [Outcome(**row) for row in rows]
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dict(head)) + "\n", encoding="utf-8")

    def add(self, piece: str, outcomes: Sequence[Outcome]) -> None:
        """Keep the outcomes of a piece that is done."""
        self.found[piece] = list(outcomes)
        with self.path.open("a", encoding="utf-8") as file:
            # The line before may have been cut short.
            file.write("\n" + json.dumps([piece, [asdict(each) for each in outcomes]]) + "\n")


def _is_whole(line: str) -> bool:
    """Whether the run was not ended in the middle of writing the line."""
    return line.startswith("[") and line.endswith("]]")
