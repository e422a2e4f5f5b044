"""The templates, one row each. Reads the files as text: nothing here imports Triton."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Template:
    """A Triton file with a function whose holes are calls of the named functions."""

    name: str
    file: str
    function: str
    holes: tuple[str, ...]
    constants: tuple[str, ...]  # constexprs that `lower` replaces by literals

    def text(self) -> str:
        """The source of the template."""
        return (Path(__file__).parent / self.file).read_text(encoding="utf-8")


_HOLES = ("load_a", "load_b", "store")
_CONSTANTS = ("M", "N", "K", "ACCUMULATOR")

TEMPLATES: dict[str, Template] = {
    row.name: row
    for row in (
        Template("matmul", "matmul.py", "matmul", _HOLES, _CONSTANTS),
        Template("matmul_packed", "matmul_packed.py", "matmul_packed", _HOLES, _CONSTANTS),
    )
}
