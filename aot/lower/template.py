"""Fills the holes of a template by its syntax tree, keeping the text around them as it is."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping, Sequence

from aotc.kernels.templates.registry import Template


def fill(
    template: Template,
    holes: Mapping[str, Sequence[str]],
    constants: Mapping[str, str],
    before_loop: Sequence[str],
) -> list[str]:
    """Lines of the template's function body.

    Each statement that calls a hole gives way to the lines given for it, each constant to its
    text; `before_loop` goes before the first loop. Assignments that nothing reads are dropped.
    """
    text = template.text()
    function = next(
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == template.function
    )
    lines: list[str] = []
    source = text.splitlines()
    waiting = list(before_loop)
    for statement in function.body:
        if isinstance(statement, ast.For):
            lines += waiting
            waiting = []
        lines += _filled(statement, source, holes, constants)
    return _without_unread(lines)


def _filled(
    statement: ast.stmt,
    source: Sequence[str],
    holes: Mapping[str, Sequence[str]],
    constants: Mapping[str, str],
) -> list[str]:
    if isinstance(statement, ast.For | ast.If):
        lines = _replaced([statement], source, constants, 0)[:1]
        for inner in statement.body:
            lines += [
                textwrap.indent(line, "    ") for line in _filled(inner, source, holes, constants)
            ]
        return lines
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in holes:
        return list(holes[value.func.id])
    last = statement.end_lineno or statement.lineno
    return _replaced([statement], source, constants, last - statement.lineno)


def _replaced(
    statements: Sequence[ast.stmt], source: Sequence[str], constants: Mapping[str, str], more: int
) -> list[str]:
    """The statement's own lines with the constants put in."""
    first = statements[0].lineno - 1
    lines = [line[statements[0].col_offset :] for line in source[first : first + more + 1]]
    pattern = re.compile(rf"\b({'|'.join(constants)})\b")
    return [pattern.sub(lambda match: constants[match[1]], line) for line in lines]


def _without_unread(lines: list[str]) -> list[str]:
    while True:
        text = "\n".join(lines)
        kept = [
            line
            for line in lines
            if not (match := re.match(r" *(\w+) = ", line))
            or len(re.findall(rf"\b{match[1]}\b", text)) > 1
        ]
        if len(kept) == len(lines):
            return kept
        lines = kept
