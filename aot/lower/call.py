"""Calls of kernels that the user wrote → their text and a kernel that calls them.

The called kernel gets pointers from the launch and all numbers as literals, so that it is a kernel
like ours: parameters are what the group reads, then what it stores.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from aotc.aot.ir.call import CallCandidate
from aotc.aot.ir.graph import Node
from aotc.aot.lower import kernel_file
from aotc.aot.lower.body import INDENT
from aotc.aot.lower.spec import Candidate, Form, KernelSpec
from aotc.aot.schedule.group import Group
from aotc.aot.traits import LAUNCH_OPTIONS, TargetTraits


def lower_call(group: Group, traits: TargetTraits) -> KernelSpec:
    """The user's kernel with its own configs as candidates."""
    call = group.root_op
    assert call is not None
    rows = tuple(_candidate(row, traits) for row in call.attr("candidates"))
    candidates = tuple(dict.fromkeys(rows))
    name = f"{group.label}_call"
    return KernelSpec(
        name=group.label,
        forms=(Form("", _file(group, call, name, candidates), name),),
        params=kernel_file.parameters(group),
        candidates=candidates,
        bytes=group.bytes,
        operations=group.operations,
    )


def _candidate(row: CallCandidate, traits: TargetTraits) -> Candidate:
    config, grid = row
    if not traits.is_gpu:
        config = tuple(pair for pair in config if pair[0] not in LAUNCH_OPTIONS)
    return Candidate(config, grid)


def _file(group: Group, call: Node, name: str, candidates: Sequence[Candidate]) -> str:
    """The text; it tells the grids too, since only they tell some calls apart."""
    names = [param.name for param in kernel_file.parameters(group)]
    names += [f"{constexpr}: tl.constexpr" for constexpr, _ in candidates[0].constexprs]
    arguments = "".join(f"{INDENT}{each},\n" for each in _arguments(group, call))
    body = f"{call.attr('function')}(\n{arguments})"
    called = f"@triton.jit\ndef {name}({', '.join(names)}):\n{textwrap.indent(body, INDENT)}\n"
    runs = "".join(f"{INDENT}{each}\n" for each in candidates)
    title = f"A kernel of the model's own, `{group.label}`, with the arguments of one call:"
    title = f'"""{title}\n\n{runs}"""'
    return f"{title}\n\n{call.attr('source')}\n\n{called}"


def _arguments(group: Group, call: Node) -> list[str]:
    """`x_ptr=in0`, `n=tl.full((), 640, tl.int32)`, `BLOCK=BLOCK` … in the kernel's order."""
    reads = kernel_file.buffer_names(group)
    found = []
    for name, kind, what in call.attr("arguments"):
        text = what
        if kind == "stored":
            text = f"out{what}"
        elif kind == "read":
            operand, start = what
            text = reads[call.inputs[operand]] + (f" + {start}" if start else "")
        found.append(f"{name}={text}")
    return found
