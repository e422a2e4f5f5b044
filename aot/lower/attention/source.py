"""Attention groups → filled templates: heads read straight through views, masks on the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aotc.aot.lower import kernel_file
from aotc.aot.lower.attention.candidates import candidates
from aotc.aot.lower.attention.operands import Attention
from aotc.aot.lower.attention.overlapped import HOLES, overlapped_source
from aotc.aot.lower.attention.template_lines import Lines
from aotc.aot.lower.spec import Candidate, Form, KernelSpec
from aotc.aot.lower.template import fill
from aotc.aot.schedule.group import Group
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import Template, called_functions

_LOADS = ("load_q", "load_k", "load_v", "load_mask", "last_k", "last_v", "last_mask")
_DESCRIPTIONS = ("describe_q", "describe_k", "describe_v")
_SIZES = (
    "HEADS", "RATIO", "T", "ROWS", "BR", "S", "BD", "BV", "SCALE", "CAUSAL", "OFFSET", "PRECISION",
    "SAFE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Form:
    """A template, and the functions it shares with others."""

    template: Template
    functions: tuple[str, ...]


def _form_row(
    name: str, function: str, holes: tuple[str, ...], functions: tuple[str, ...]
) -> _Form:
    template = Template(name, f"attention/{name}.py", function, (*holes, "hide", "store"), _SIZES)
    return _Form(template, functions)


OVERLAPPED = "overlapped"
KEY_RANGE = "key_range"
_TILED = ("place", KEY_RANGE, "attend", "finish")
FORMS: dict[str, _Form] = {
    row.template.name: row
    for row in (
        _form_row("plain", "attention", _LOADS, _TILED),
        _form_row("descriptor", "attention_descriptor", _DESCRIPTIONS, _TILED),
        _form_row("overlapped", "attention_overlapped", HOLES, ()),
        _form_row("split", "attention_split", _LOADS, ("attend", "finish", "join")),
    )
}


def lower_attention(group: Group, traits: TargetTraits) -> KernelSpec:
    """The attention of the group in every form that its operands allow."""
    attention = Attention(group, traits)
    found = candidates(attention.problem(), traits)
    names = tuple(dict.fromkeys(candidate.form for candidate in found))
    drafts = [_draft(attention, name, found) for name in names if name != OVERLAPPED]
    spec = kernel_file.kernel_of(group, drafts, found)
    if OVERLAPPED not in names:
        return spec
    forms = sorted((*spec.forms, _overlapped(attention)), key=lambda form: names.index(form.name))
    return replace(spec, forms=tuple(forms))


def _overlapped(attention: Attention) -> Form:
    """The Gluon form, a file of its own kind."""
    function = kernel_file.function_name(attention.group)
    text = overlapped_source(attention, FORMS[OVERLAPPED].template, function)
    return Form(OVERLAPPED, text, function)


def _draft(attention: Attention, name: str, found: Sequence[Candidate]) -> kernel_file.Draft:
    """One source, right for all the candidates of the form."""
    row = FORMS[name]
    lines = Lines(attention, name == "split", [each for each in found if each.form == name])
    has_loads = "load_q" in row.template.holes
    holes = lines.loading() if has_loads else lines.describing()
    functions = row.functions
    if KEY_RANGE in functions and lines.is_one_block:
        holes[KEY_RANGE] = ["full, end = 0, BN"]  # numbers, so that no loop is left
        functions = tuple(each for each in functions if each != KEY_RANGE)
    lines_of_body = fill(row.template, holes, attention.constants(), ())
    shared = "\n\n\n".join(
        text for each, text in called_functions("attention/blocks.py").items() if each in functions
    )
    return kernel_file.Draft(name, lines_of_body, shared)
