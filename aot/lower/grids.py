"""Folds grids for GPUs: every axis but the first has at most 65,535 programs.

The second and third axis of a longer grid are folded into lines of that length, and the kernel
computes both indices from its line and position; programs beyond the end of the last line do
nothing. That is done if the example has such a grid; if only some call of dynamic sizes has one,
the call raises `SizeInvalid`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

from aotc.aot.ir.size import smallest, typical
from aotc.aot.lower.kernel_file import Draft
from aotc.aot.lower.spec import Candidate
from aotc.aot.lower.tiles import blocks
from aotc.kernels.templates.registry import Axes, Template
from aotc.runtime.bundle.plan_rules import GRID_LIMITS

LINE = GRID_LIMITS[1]  # programs
WHICH = "program"


def is_too_long(candidate: Candidate) -> bool:
    """Whether no GPU starts the grid, at the example's sizes."""
    return any(typical(extent) > LINE for extent in candidate.grid[1:])


def folded(
    drafts: Sequence[Draft],
    candidates: Sequence[Candidate],
    axes: Mapping[str, Axes],
) -> tuple[list[Draft], list[Candidate]]:
    """The same, with the forms folded of which some candidate has such a grid.

    axes: of each form the extents of the second and third axis, as its lines have them.
    """
    names = {each.form for each in candidates if is_too_long(each)}
    return (
        [
            replace(each, lines=_folded_lines(each.lines, *axes[each.name]))
            if each.name in names
            else each
            for each in drafts
        ],
        [_folded_grid(each) if each.form in names else each for each in candidates],
    )


def axes_of(template: Template, constants: Mapping[str, str]) -> Axes:
    """What `folded` is to know of a template filled with constants."""
    second, third = (
        re.sub(r"\b[A-Z]+\b", lambda match: f"({constants.get(match[0], match[0])})", text)
        for text in template.axes
    )
    return second, third


def _folded_grid(candidate: Candidate) -> Candidate:
    """The same programs, the second and third axis in lines."""
    first, second, third = candidate.grid
    count = second * third
    return replace(candidate, grid=(first, smallest(count, LINE), blocks(count, LINE)))


def _folded_lines(lines: Sequence[str], second: str, third: str) -> list[str]:
    """A kernel's lines for such a grid."""
    own = {
        "tl.program_id(1)": f"({WHICH} % ({second}))" if third != "1" else WHICH,
        "tl.program_id(2)": f"({WHICH} // ({second}))",
        "tl.num_programs(1)": f"({second})",
    }
    text = "\n".join(lines)
    for name, place in own.items():
        text = text.replace(name, place)
    return [
        f"{WHICH} = tl.program_id(1) + tl.program_id(2) * {LINE}",
        f"if {WHICH} < ({second}) * ({third}):",
        *textwrap.indent(text, "    ").splitlines(),
    ]
