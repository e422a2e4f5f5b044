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
_CPU_HOLES = ("tile_rows", *_HOLES)
_GPU_HOLES = ("describe", *_HOLES)

TEMPLATES: dict[str, Template] = {
    name: Template(name, file, function, holes)
    for name, file, function, holes in (
        ("matmul", "matmul.py", "matmul", _CPU_HOLES),
        ("matmul_packed", "matmul.py", "matmul_packed", _CPU_HOLES),
        ("plain", "matmul.py", "matmul_plain", _GPU_HOLES),
        ("split", "matmul.py", "matmul_split", _GPU_HOLES),
        ("persistent", "matmul.py", "matmul_persistent", _GPU_HOLES),
        ("gemv", "gemv.py", "gemv", _HOLES),
        ("gemv_rows", "gemv.py", "gemv_rows", _HOLES),
        ("convolution", "convolution.py", "convolution", _HOLES),
        ("convolution_packed", "convolution.py", "convolution_packed", _HOLES),
        ("convolution_split", "convolution.py", "convolution_split", _HOLES),
    )
}
