"""Attention groups → filled templates: heads read straight through views, masks on the scores."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import KERNEL_PREFIX, Dim, fixed, kernel_text
from aotc.aot.lower import kernel_file
from aotc.aot.lower.attention.candidates import candidates
from aotc.aot.lower.attention.lines import DESCRIPTORS, Lines, PieceLines
from aotc.aot.lower.attention.operands import Attention, Matrix, padded
from aotc.aot.lower.emit import INDENT
from aotc.aot.lower.grids import axes_of, folded
from aotc.aot.lower.kernel_file import fill
from aotc.aot.lower.spec import Candidate, Form, KernelSpec
from aotc.aot.schedule.group import Group
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import Axes, Template, called_functions

_LOADS = ("load_q", "load_k", "load_v", "load_mask", "last_k", "last_v", "last_mask")
HEADS = ("head_q", "head_k", "head_v", "head_out")  # of the Gluon form
CONSTEXPRS = ("BN", "GROUP", "STAGES")


@dataclass(frozen=True, slots=True)
class _Form:
    """A template, and the functions it shares with others."""

    template: Template
    functions: tuple[str, ...]


def _form_row(
    name: str, function: str, holes: tuple[str, ...], functions: tuple[str, ...], *axes: Axes
) -> _Form:
    file = "plain" if name == TF32X3 else name
    template = Template(name, f"attention/{file}.py", function, (*holes, "hide", "store"), *axes)
    return _Form(template, functions)


OVERLAPPED = "overlapped"
KEY_RANGE = "key_range"
_TILED = ("place", "last_seen", KEY_RANGE, "edge_block", "capped", "weigh", "attend", "finish")
_IN_PIECES = (*_TILED[:-2], "join_keys", "finish")
TF32X3 = "tf32x3"
_PIECES = (*_LOADS, "last_seen", "y", "acc", "attend", "result")
FORMS: dict[str, _Form] = {
    row.template.name: row
    for row in (
        _form_row("plain", "attention", (*_LOADS, "last_seen"), _TILED),
        _form_row(TF32X3, "attention", _PIECES, _IN_PIECES),
        _form_row(
            "descriptor",
            "attention_descriptor",
            (*DESCRIPTORS[:3], "load_mask", "last_mask"),
            _TILED,
        ),
        _form_row("overlapped", "attention_overlapped", (*DESCRIPTORS, *HEADS), ()),
        _form_row(
            "split",
            "attention_split",
            ("ahead", *_LOADS, "last_seen"),
            ("share_of", "capped", "weigh", "attend", "finish", "join"),
            ("HEADS", "1"),
        ),
    )
}


def lower_attention(group: Group, traits: TargetTraits) -> KernelSpec:
    """The attention of the group in every form that its operands allow."""
    attention = Attention(group, traits)
    found = candidates(attention.problem(), traits)
    names = tuple(dict.fromkeys(candidate.form for candidate in found))
    drafts = [_draft(attention, name, found) for name in names if name != OVERLAPPED]
    axes = {name: axes_of(FORMS[name].template, attention.constants()) for name in names}
    overlapped = _overlapped_lines(attention) if OVERLAPPED in names else []
    spec = kernel_file.kernel_of(group, *folded(drafts, found, axes), overlapped)
    spec = replace(spec, are_most=attention.ends is not None)
    if not overlapped:
        return spec
    function = kernel_file.function_name(group)
    text = overlapped_source(attention, function, overlapped, spec.sizes)
    form = Form(OVERLAPPED, text, function)
    forms = sorted((*spec.forms, form), key=lambda each: names.index(each.name))
    return replace(spec, forms=tuple(forms))


def _draft(attention: Attention, name: str, found: Sequence[Candidate]) -> kernel_file.Draft:
    """One source, right for all the candidates of the form."""
    row = FORMS[name]
    form = PieceLines if name == TF32X3 else Lines
    lines = form(attention, name == "split", [each for each in found if each.form == name])
    has_loads = "load_q" in row.template.holes
    holes = lines.loading() if has_loads else lines.describing()
    if KEY_RANGE in row.functions and lines.is_one_block:
        holes[KEY_RANGE] = ["near, full, edge, end = 0, 0, 0, BN"]  # so that no loop is left
    elif KEY_RANGE in row.functions and lines.is_masked_throughout:
        known = attention.constants()
        given = f"low, high, {known['S']}, {known['WINDOW']}, BN, {known['CAUSAL']}"
        holes[KEY_RANGE] = [
            f"near, full, edge, end = {KEY_RANGE}({given})",
            "edge = edge - (full - near)",
            "near, full = 0, 0",
        ]
    lines_of_body = fill(row.template, holes, attention.constants(), ())
    texts = {
        each: text
        for each, text in called_functions("attention/blocks.py").items()
        if each in row.functions
    }
    everything = [*lines_of_body, *texts.values()]
    called = [each for each in texts if sum(f"{each}(" in text for text in everything) > 1]
    shared = "\n\n\n".join(texts[each] for each in called)
    return kernel_file.Draft(name, lines_of_body, shared, waits=bool(holes.get("ahead")))


def _overlapped_lines(attention: Attention) -> list[str]:
    """The body of the Gluon form's kernel."""
    described = _described(attention, _matrices(attention))
    return fill(FORMS[OVERLAPPED].template, described, attention.constants(), ())


def overlapped_source(
    attention: Attention, function: str, filled: Sequence[str], sizes: Sequence[Dim]
) -> str:
    """The Gluon form, a file of its own kind: its template as it stands, but for the places of
    heads and the kernel itself, whose body is `filled`."""
    template = FORMS[OVERLAPPED].template
    lines = template.text().splitlines()
    body = template.tree().body
    title = textwrap.fill(f'"""{attention.group}."""', 96, subsequent_indent=INDENT)
    parts = [title]
    matrices = _matrices(attention)
    for node in body[1:]:
        if isinstance(node, ast.FunctionDef) and node.name in ("describe", template.function):
            continue
        if isinstance(node, ast.FunctionDef) and node.name in HEADS:
            parts.append(_placed(node.name, matrices[HEADS.index(node.name)]))
            continue
        first = node.decorator_list[0].lineno if isinstance(node, ast.FunctionDef) else node.lineno
        parts.append("\n".join(lines[first - 1 : node.end_lineno]))
    names = [param.name for param in kernel_file.parameters(attention.group)]
    names += [KERNEL_PREFIX + dim.name for dim in sizes]
    names += [f"{name}: gl.constexpr" for name in CONSTEXPRS]
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
    rows = ("64", "BN", "BN", "64")
    layouts = ("QUERIES", "KEYS", "VALUES", "RESULTS")
    found = {}
    for name, memory, matrix, block, layout in zip(
        DESCRIPTORS, memories, matrices, rows, layouts, strict=True
    ):
        heads = matrix.heads()
        assert heads is not None
        first = matrix.start.constant
        address = memory + (f" + {kernel_text(first)}" if first else "")
        shape = ", ".join(map(kernel_text, (*heads.extents, *matrix.extents)))
        strides = ", ".join(map(kernel_text, (*heads.strides, matrix.stride, 1)))
        found[name] = [
            f"{name} = tma.make_tensor_descriptor(",
            f"{INDENT}{address}, [{shape}], [{strides}],",
            f"{INDENT}[1, 1, {block}, {padded(fixed(matrix.extents[1]))}], {layout},",
            ")",
        ]
    return found
