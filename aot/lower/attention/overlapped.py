"""The Gluon form of attention: its template with the descriptors of one attention filled in."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence

from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import fixed
from aotc.aot.lower import kernel_file
from aotc.aot.lower.attention.operands import Attention, Matrix, padded
from aotc.aot.lower.body import INDENT
from aotc.aot.lower.template import fill
from aotc.kernels.templates.registry import Template

DESCRIPTIONS = ("describe_q", "describe_k", "describe_v", "describe_out")
HEADS = ("head_q", "head_k", "head_v", "head_out")
HOLES = (*DESCRIPTIONS, *HEADS)
CONSTEXPRS = ("BN", "GROUP", "STAGES")


def overlapped_source(attention: Attention, template: Template, function: str) -> str:
    """The template as it stands, but for its holes and the kernel itself."""
    text = template.text()
    lines = text.splitlines()
    body = ast.parse(text).body
    title = textwrap.fill(f'"""{attention.group}."""', 96, subsequent_indent=INDENT)
    parts = [title]
    matrices = _matrices(attention)
    for node in body[1:]:
        if isinstance(node, ast.FunctionDef) and node.name in (*DESCRIPTIONS, template.function):
            continue
        if isinstance(node, ast.FunctionDef) and node.name in HEADS:
            parts.append(_placed(node.name, matrices[HEADS.index(node.name)]))
            continue
        first = node.decorator_list[0].lineno if isinstance(node, ast.FunctionDef) else node.lineno
        parts.append("\n".join(lines[first - 1 : node.end_lineno]))
    names = [param.name for param in kernel_file.parameters(attention.group)]
    names += [f"{name}: gl.constexpr" for name in CONSTEXPRS]
    filled = fill(template, _described(attention, matrices), attention.constants(), ())
    signature = f"@gluon.jit\ndef {function}({', '.join(names)}):"
    parts.append("\n".join([signature, *(textwrap.indent(line, INDENT) for line in filled)]))
    return "\n\n\n".join(parts) + "\n"


def _matrices(attention: Attention) -> tuple[Matrix, ...]:
    """q, k, v and the result; `Problem.may_overlap` has said that they are there."""
    found = (*(attention.matrix(place) for place in range(3)), attention.result())
    return tuple(matrix for matrix in found if matrix is not None)


def _placed(function: str, matrix: Matrix) -> str:
    """The function that gives the place of head z on the two axes of heads."""
    heads = matrix.heads()
    assert heads is not None
    return (
        f"@gluon.jit\ndef {function}(z, RATIO: gl.constexpr):\n"
        f"{INDENT}return {', '.join(heads.places)}"
    )


def _described(attention: Attention, matrices: Sequence[Matrix]) -> dict[str, list[str]]:
    """The lines that make the four descriptors."""
    buffers: dict[Node, str] = kernel_file.buffer_names(attention.group)
    memories = [*(buffers[matrix.memory] for matrix in matrices[:-1]), "out0"]
    names = ("queries", "keys", "values", "result")
    rows = ("64", "BN", "BN", "64")
    layouts = ("QUERIES", "KEYS", "VALUES", "RESULTS")
    found = {}
    for hole, name, memory, matrix, block, layout in zip(
        DESCRIPTIONS, names, memories, matrices, rows, layouts, strict=True
    ):
        heads = matrix.heads()
        assert heads is not None
        first = matrix.start.constant
        address = memory + (f" + {first}" if first else "")
        shape = ", ".join(map(str, (*heads.extents, *matrix.extents)))
        strides = ", ".join(map(str, (*heads.strides, matrix.stride, 1)))
        found[hole] = [
            f"{name} = tma.make_tensor_descriptor(",
            f"{INDENT}{address}, [{shape}], [{strides}],",
            f"{INDENT}[1, 1, {block}, {padded(fixed(matrix.extents[1]))}], {layout},",
            ")",
        ]
    return found
