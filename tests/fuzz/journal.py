"""What a run has found so far, a line a program, so that a run which was ended goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from fuzz.trial import Outcome


class Journal:
    """Outcomes by task. A file of another run, which its head tells, is begun anew."""

    def __init__(self, path: Path, head: Mapping[str, str]) -> None:
        """Read the outcomes of the run that `head` describes."""
        self.path = path
        self.found: dict[str, list[Outcome]] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if lines[:1] == [json.dumps(dict(head))]:
            for line in lines[1:]:
                if line.startswith("[") and line.endswith("]]"):  # it was written to its end
                    task, rows = json.loads(line)
                    self.found[task] = [Outcome(**row) for row in rows]
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dict(head)) + "\n", encoding="utf-8")

    def add(self, task: str, outcomes: Sequence[Outcome]) -> None:
        """Keep the outcomes of a task that is done."""
        self.found[task] = list(outcomes)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps([task, [asdict(each) for each in outcomes]]) + "\n")
