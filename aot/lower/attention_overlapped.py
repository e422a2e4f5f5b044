"""The Gluon form of attention: its template with the descriptors of one attention filled in."""

from __future__ import annotations

import ast
import textwrap

from aotc.aot.ir.graph import Node
from aotc.aot.lower import source
from aotc.aot.lower.attention_operands import Attention, Matrix, padded
from aotc.aot.lower.body import INDENT
from aotc.aot.lower.template import fill
from aotc.kernels.templates.registry import Template

HOLES = ("describe_q", "describe_k", "describe_v", "describe_out")
CONSTEXPRS = ("BN", "GROUP", "STAGES")


def overlapped_source(attention: Attention, template: Template, function: str) -> str:
    """The template as it stands, but for its holes and the kernel itself."""
    text = template.text()
    lines = text.splitlines()
    body = ast.parse(text).body
    title = textwrap.fill(f'"""{attention.group}."""', 96, subsequent_indent=INDENT)
    parts = [title]
    for node in body[1:]:
        if isinstance(node, ast.FunctionDef) and node.name in (*HOLES, template.function):
            continue
        first = node.decorator_list[0].lineno if isinstance(node, ast.FunctionDef) else node.lineno
        parts.append("\n".join(lines[first - 1 : node.end_lineno]))
    names = [param.name for param in source.parameters(attention.group)]
    names += [f"{name}: gl.constexpr" for name in CONSTEXPRS]
    filled = fill(template, _holes(attention), attention.constants(), ())
    signature = f"@gluon.jit\ndef {function}({', '.join(names)}):"
    parts.append("\n".join([signature, *(textwrap.indent(line, INDENT) for line in filled)]))
    return "\n\n\n".join(parts) + "\n"


def _holes(attention: Attention) -> dict[str, list[str]]:
    buffers: dict[Node, str] = source.buffer_names(attention.group)
    result = attention.result()
    assert result is not None
    rows = (
        ("describe_q", "queries", attention.matrix(0), "64", "ROWS"),
        ("describe_k", "keys", attention.matrix(1), "BN", "KEYS"),
        ("describe_v", "values", attention.matrix(2), "BN", "VALUES"),
        ("describe_out", "result", result, "64", "ROWS"),
    )
    found = {}
    for hole, name, matrix, block, layout in rows:
        assert matrix is not None
        memory = "out0" if matrix is result else buffers[matrix.memory]
        found[hole] = _described(name, memory, matrix, block, layout)
    return found


def _described(name: str, memory: str, matrix: Matrix, block: str, layout: str) -> list[str]:
    start = str(matrix.start)
    address = memory + (f" + {start}" if start != "0" else "")
    shape = ", ".join(map(str, matrix.extents))
    return [
        f"{name} = tma.make_tensor_descriptor(",
        f"{INDENT}{address}, [{shape}], [{matrix.stride}, 1],",
        f"{INDENT}[{block}, {padded(matrix.extents[1])}], {layout},",
        ")",
    ]
