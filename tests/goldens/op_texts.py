"""Each pointwise op and each reduction as kernels write it, for each element type: equal texts
once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from case_graphs import graph_of, op, operand
from source_table import TARGETS, normalised

from aotc.aot.errors import TypeRuleError
from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import KernelSpec, lower
from aotc.aot.schedule import schedule

POINTWISE = [name for name, row in OPS.items() if row.kind == "pointwise" and name != "copy"]
REDUCED = [name for name, row in OPS.items() if row.kind == "reduce"]
SHAPES = {  # by device: what a reduction is of, its axis, and the form wanted
    "cpu": {
        "rows": ((37, 197), 1, ""),
        "rows in chunks": ((2, 70001), 1, ""),
        "columns": ((3, 33, 40), 1, ""),
        "columns in chunks": ((70001, 40), 0, ""),
    },
    "sm_90": {
        "rows": ((37, 197), 1, ""),
        "rows, streamed": ((2, 30001), 1, "streamed"),
        "rows, parts": ((2, 30001), 1, "parts"),
        "columns": ((3, 33, 40), 1, ""),
        "columns, streamed": ((2, 3000, 40), 1, "streamed"),
        "columns, parts": ((2, 3000, 40), 1, "parts"),
    },
}
_ATTRS = {"philox": {"site": 3, "word": 1}}
Row = tuple[str, str]  # what the text is of, the text


def pointwise_text(name: str, target: str) -> str:
    """Lines between loads and store of one op, by the types of its operands."""
    return grouped(_pointwise_rows(name, target))


def reduction_text(name: str, target: str) -> str:
    """Bodies of one reduction, by the way in which rows are read and the element type."""
    parts = []
    for way, (shape, axis, form) in SHAPES[target].items():
        rows = _reduction_rows(name, target, shape, axis, form)
        parts.append(f"== {way}\n\n{grouped(rows)}")
    return "\n".join(parts)


def grouped(rows: Iterator[Row]) -> str:
    """Texts, each behind what it is of: equal ones once, of others the lines unlike the first's."""
    found: dict[str, list[str]] = {}
    for title, text in rows:
        found.setdefault(text, []).append(title)
    parts: list[str] = []
    for text, titles in found.items():
        lines, first = text.splitlines(), next(iter(found)).splitlines()
        unlike = [line for line, other in zip(lines, first, strict=False) if line != other]
        is_alike = lines != first and len(lines) == len(first) and len(unlike) < len(lines) // 2
        how = f", unlike {found[next(iter(found))][0]}" if is_alike else ""
        shown = "\n".join(unlike if is_alike else lines)
        parts.append(f"{', '.join(titles)}{how}:\n{shown}\n")
    return "\n".join(parts)


def _pointwise_rows(name: str, target: str) -> Iterator[Row]:
    around = re.compile(r" *([xy](_mask)? =|tl\.store|v\d+ = tl\.load)")
    for dtypes, node in _nodes(name):
        lines = [line for line in _body(_spec(node, target), "") if not around.match(line)]
        yield dtypes, "\n".join(lines) or "    (nothing)"


def _nodes(name: str) -> Iterator[tuple[str, Node]]:
    """The op of operands of each type that its rule allows; conversions to each type."""
    for dtype in DTYPES:
        if name in ("cast", "bitcast"):
            for target in DTYPES:
                try:
                    if target != dtype:
                        yield f"{dtype} to {target}", make(name, (_x(dtype),), {"dtype": target})
                except TypeRuleError:
                    continue
            continue
        count = OPS[name].operands
        operands = [_x(dtype, place) for place in range(count)]
        operands[:1] = [_x("bool")] if name == "where" else operands[:1]
        try:
            yield dtype, op(name, *operands, **_ATTRS.get(name, {}))
        except TypeRuleError:
            continue


def _x(dtype: str, place: int = 0) -> Node:
    return operand("xyz"[place], 640, dtype=dtype)


def _reduction_rows(
    name: str, target: str, shape: Sequence[int], axis: int, form: str
) -> Iterator[Row]:
    for dtype in ("f32", "f64", "bf16", "i64", "u8", "bool"):
        try:
            node = b.reduce(name, operand("x", *shape, dtype=dtype), [axis])
        except TypeRuleError:
            continue
        spec = _spec(node, target)
        if form in (row.name for row in spec.forms):
            yield dtype, "\n".join(_body(spec, form))


def _spec(node: Node, target: str) -> KernelSpec:
    (spec,) = lower(schedule(graph_of([node]), TARGETS[target]), TARGETS[target])
    return spec


def _body(spec: KernelSpec, form: str) -> list[str]:
    """Lines of the kernel's body."""
    found = next(row for row in spec.forms if row.name == form)
    lines = normalised(found.source, found.function).splitlines()
    return lines[lines.index("):") + 1 :]
