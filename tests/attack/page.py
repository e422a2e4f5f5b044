"""The table of attacks as Markdown."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence

from .systems import System

WORDS = {
    "used": "**altered bytes used**",
    "right": "right result",
    "sound": "whole",
    "refused": "refused",
    "crashed": "**crashed**",
    "hung": "**hung**",
}
Cells = Mapping[str, "Counter[tuple[str, str]] | None"]

HEAD = """# The same attacks on several formats

Written by `{command}` on {date} (Python {python}, {versions}, {machine}).

Somebody who may write the files alters them; then an ordinary user uses them, in a process of its
own with 15 s and 3 GiB. The numbers count trials. What each system claims, by which it is judged:

{claims}

What a cell says:

- *refused*: an error, by its class. *missed*: a cache gives nothing; the artifact is made again.
- *right result*: no error, and the result of the untouched artifact: the altered byte was not read,
  or does not matter for this input.
- *whole*: every entry that can be read is one writer's, all of it.
- **altered bytes used**: another result, without a word. Of Triton's cache it is the cubin and the
  facts of the launch that would go to the driver, which was not there and may refuse some cubins.
- **crashed**: the process was ended by a signal. **hung**: 15 s without an end.
- –: the system has nothing of the kind, or it was not tried (a package takes a minute to write).

"""


def cell(found: Counter[tuple[str, str]] | None) -> str:
    """One cell: kinds with their counts, the errors' classes behind them."""
    if found is None:
        return "–"
    total = sum(found.values())
    texts = []
    for kind in WORDS:
        notes = Counter({note: count for (each, note), count in found.items() if each == kind})
        count = sum(notes.values())
        if not count:
            continue
        names = [note for note, _ in notes.most_common(3) if note]
        said = WORDS[kind] + (f" ({', '.join(names)})" if names else "")
        said = said.replace("refused (Missed)", "missed")
        texts.append(said if total == 1 else f"{said} {count}/{total}")
    return "; ".join(texts) or "nothing was read"


def page(systems: Sequence[System], columns: Mapping[str, Cells], command: str, date: str) -> str:
    """The whole page."""
    claims = "\n".join(f"- {each.name}: {each.claims}." for each in systems)
    versions = ", ".join(
        f"{each.name.split()[0]} {each.version}" for each in systems if each.version
    )
    head = HEAD.format(
        command=command,
        date=date,
        python=platform.python_version(),
        versions=versions,
        machine=platform.machine(),
        claims=claims,
    )
    names = [each.name for each in systems]
    lines = ["| attack | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in next(iter(columns.values())):
        cells = [cell(columns[name][row]) for name in names]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return head + "\n".join(lines) + "\n" + FOOT


FOOT = """
Digests beside the bytes protect against damage, races and careless copies, not against somebody who
may rewrite both: the row of the artifact that is consistent. What protects then is kept elsewhere:
owner and mode of the cache's folder, the key of the remote cache, the digest that
`load(…, digest=…)` pins, a signature ([signing.md](signing.md)). Of these systems safetensors alone
runs nothing of a file, whoever wrote it.
"""
