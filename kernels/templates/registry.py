"""The templates, one row each. Reads the files as text: nothing here imports Triton."""

from __future__ import annotations

import ast
import functools
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


APPROXIMATE = "approximate_math.py"
# Files whose functions the expressions of ops call; a kernel holds a copy of those that it calls.
FUNCTIONS = (APPROXIMATE, "philox.py")
# Kernels that graphs call as they stand.
SCATTER, STATE_COPY, ATTENTION, GROUPED = "scatter", "state_copy", "attention/heads", "grouped"


@functools.cache
def kernel_text(name: str) -> str:
    """Imports and functions of one of these kernels' files."""
    text = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    return text[text.index("from __future__") :]


@functools.cache
def called_functions(*files: str) -> dict[str, str]:
    """Name → source of the functions in these of FUNCTIONS (all, where none is named)."""
    sources: dict[str, str] = {}
    for file in files or FUNCTIONS:
        text = (Path(__file__).parent / file).read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                start = node.decorator_list[0].lineno - 1
                sources[node.name] = "\n".join(lines[start : node.end_lineno])
    return sources


_HOLES = ("load_a", "load_b", "store")
_CONSTANTS = ("M", "N", "K", "ACCUMULATOR")
_GPU_HOLES = ("describe", *_HOLES)
_GPU_CONSTANTS = (*_CONSTANTS, "PRECISION")
_WINDOW_CONSTANTS = ("M", "N", "KERNEL_SIZE", "RUN", "ACCUMULATOR", "PRECISION")

TEMPLATES: dict[str, Template] = {
    row.name: row
    for row in (
        Template("matmul", "matmul.py", "matmul", _HOLES, _CONSTANTS),
        Template("matmul_packed", "matmul_packed.py", "matmul_packed", _HOLES, _CONSTANTS),
        Template("plain", "matmul_plain.py", "matmul_plain", _GPU_HOLES, _GPU_CONSTANTS),
        Template("split", "matmul_split.py", "matmul_split", _GPU_HOLES, _GPU_CONSTANTS),
        Template(
            "persistent", "matmul_persistent.py", "matmul_persistent", _GPU_HOLES, _GPU_CONSTANTS
        ),
        Template("gemv", "gemv.py", "gemv", _HOLES, _CONSTANTS),
        Template("gemv_rows", "gemv_rows.py", "gemv_rows", _HOLES, _CONSTANTS),
        Template("convolution", "convolution.py", "convolution", _HOLES, _WINDOW_CONSTANTS),
        Template(
            "convolution_packed",
            "convolution.py",
            "convolution_packed",
            _HOLES,
            (*_WINDOW_CONSTANTS, "PACK"),
        ),
        Template(
            "convolution_split", "convolution.py", "convolution_split", _HOLES, _WINDOW_CONSTANTS
        ),
    )
}
