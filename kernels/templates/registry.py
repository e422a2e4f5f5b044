"""The templates, one row each. Reads the files as text: nothing here imports Triton."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

Axes = tuple[str, str]
HERE = "aotc.kernels.templates."


@dataclass(frozen=True, slots=True)
class Template:
    """A Triton file with a function whose holes are calls of the named functions.

    axes: extents of the second and third axis of its grid in its own words, and BATCH; none for
    one that never runs on GPUs, or on one axis.
    """

    name: str
    file: str
    function: str
    holes: tuple[str, ...]
    axes: Axes = ("1", "1")

    def text(self) -> str:
        """The source of the template."""
        return _text(self.file)

    def tree(self) -> ast.Module:
        """The source of the template, parsed; not to be changed."""
        return _tree(self.file)


@functools.cache
def _text(file: str) -> str:
    return (Path(__file__).parent / file).read_text(encoding="utf-8")


@functools.cache
def _tree(file: str) -> ast.Module:
    return ast.parse(_text(file))


APPROXIMATE = "approximate_math.py"
# Files whose functions the expressions of ops call; a kernel holds a copy of those that it calls.
LAUNCHES = "launches.py"
FUNCTIONS = (APPROXIMATE, "processor_math.py", "philox.py", "codes.py", LAUNCHES)
# Kernels that are called as they stand, by graphs and by what loads weights.
WHOLE = (
    "scatter", "state_copy", "attention/heads", "grouped", "adapter", "order", "scan", "exchange",
    "fourier/registers", "fourier/passes", "fourier/rows",
)  # fmt: skip
SCATTER, STATE_COPY, ATTENTION, GROUPED, ADAPTER, ORDER, SCAN, EXCHANGE, *_ = WHOLE
FOURIER_REGISTERS, FOURIER_PASSES, FOURIER_ROWS = WHOLE[-3:]


@functools.cache
def kernel_text(name: str) -> str:
    """Imports and functions of one of these kernels' files, behind those of the templates that it
    imports."""
    text = _text(f"{name}.py")
    body = text[text.index("from __future__") :]
    imported = [
        (node.module, ast.get_source_segment(text, node) or "")
        for node in _tree(f"{name}.py").body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(HERE)
    ]
    for module, line in imported:
        base = kernel_text((module or "").removeprefix(HERE).replace(".", "/"))
        body = base + body.replace(line, "").split("import triton.language as tl\n", 1)[1]
    return body


@functools.cache
def called_functions(*files: str) -> dict[str, str]:
    """Name → source of the functions in these of FUNCTIONS (all, where none is named)."""
    sources: dict[str, str] = {}
    for file in files or FUNCTIONS:
        lines = _text(file).splitlines()
        for node in _tree(file).body:
            if isinstance(node, ast.FunctionDef):
                start = node.decorator_list[0].lineno - 1
                sources[node.name] = "\n".join(lines[start : node.end_lineno])
    return sources


_HOLES = ("load_a", "load_b", "store")
_AHEAD_HOLES = ("ahead", "next_b", *_HOLES)
_CPU_HOLES = ("tile_rows", *_HOLES)
_GPU_HOLES = ("describe", "multiply", "load_early", *_HOLES)

TEMPLATES: dict[str, Template] = {
    name: Template(name, file, function, holes, *axes)
    for name, file, function, holes, *axes in (
        ("matmul", "matmul.py", "matmul", _CPU_HOLES),
        ("matmul_packed", "matmul.py", "matmul_packed", _CPU_HOLES),
        ("plain", "matmul.py", "matmul_plain", _GPU_HOLES, ("BATCH", "1")),
        ("split", "matmul.py", "matmul_split", _GPU_HOLES, ("SPLIT", "BATCH")),
        ("persistent", "matmul.py", "matmul_persistent", _GPU_HOLES),
        ("gemv", "gemv.py", "gemv", _AHEAD_HOLES, ("BATCH", "1")),
        ("gemv_walk", "gemv.py", "gemv_walk", ("ahead", "load_early", *_HOLES)),
        ("gemv_rows", "gemv.py", "gemv_rows", _HOLES, ("BATCH", "tl.cdiv(M, BM)")),
        (
            "decoding",
            "decoding.py",
            "decoding",
            ("multiply", *_AHEAD_HOLES),
            ("BATCH", "tl.cdiv(M, BM)"),
        ),
        (
            "fragments",
            "fragments.py",
            "fragments",
            ("ahead", "multiply", *_HOLES),
            ("1", "tl.cdiv(N, BN)"),
        ),
        ("convolution", "convolution.py", "convolution", _HOLES, ("tl.cdiv(N, BN)", "BATCH")),
        (
            "convolution_packed",
            "convolution.py",
            "convolution_packed",
            _HOLES,
            ("tl.cdiv(N, BN)", "BATCH"),
        ),
        (
            "convolution_split",
            "convolution.py",
            "convolution_split",
            _HOLES,
            ("tl.cdiv(N, BN)", "BATCH * SPLIT"),
        ),
    )
}
