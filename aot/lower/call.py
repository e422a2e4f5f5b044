"""Kernels of the user's → their text and a kernel that calls them; so for ours that work on memory.

The called kernel gets pointers from the launch and all numbers as literals, so that it is a kernel
like others: parameters are what the group reads, then what it stores.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from aotc.aot.ir.call import CallArgument, CallCandidate
from aotc.aot.ir.size import KERNEL_PREFIX, Dim, Extent, kernel_text
from aotc.aot.lower import kernel_file
from aotc.aot.lower.emit import INDENT
from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Scratch
from aotc.aot.schedule.group import Group
from aotc.aot.traits import LAUNCH_OPTIONS, TargetTraits


@dataclass(frozen=True, slots=True)
class Called:
    """A kernel that stands by itself, as the op `call` describes one."""

    source: str
    function: str
    arguments: tuple[CallArgument, ...]
    candidates: tuple[CallCandidate, ...]
    scratch: tuple[Scratch, ...] = ()  # of every candidate
    ranks: int = 0  # GPUs whose memory it reaches


def lower_call(group: Group, traits: TargetTraits) -> KernelSpec:
    """The user's kernel with its own configs as candidates."""
    call = group.root_op
    assert call is not None
    names = ("source", "function", "arguments", "candidates")
    return kernel_of(group, Called(*(call.attr(name) for name in names)), traits)


def kernel_of(group: Group, called: Called, traits: TargetTraits) -> KernelSpec:
    """The kernel of a group that calls another one."""
    candidates = tuple(dict.fromkeys(_candidate(row, called, traits) for row in called.candidates))
    name = f"{group.label}_call"
    arguments = _arguments(group, called)
    sizes = kernel_file.sizes_of(group, "\n".join(arguments))
    return KernelSpec(
        name=group.label,
        forms=(Form("", _file(group, called, name, candidates, sizes), name),),
        params=kernel_file.parameters(group),
        candidates=candidates,
        bytes=group.bytes,
        operations=group.operations,
        sizes=sizes,
    )


def _candidate(row: CallCandidate, called: Called, traits: TargetTraits) -> Candidate:
    config, grid = row
    if not traits.is_gpu:
        config = tuple(pair for pair in config if pair[0] not in LAUNCH_OPTIONS)
    return Candidate(config, grid, scratch=called.scratch, ranks=called.ranks)


def _file(
    group: Group,
    called: Called,
    name: str,
    candidates: Sequence[Candidate],
    sizes: Sequence[Dim],
) -> str:
    """The text; it tells the grids too, since only they tell some calls apart."""
    names = [param.name for param in kernel_file.parameters(group)]
    names += [KERNEL_PREFIX + dim.name for dim in sizes]
    names += [each.name for each in called.scratch]
    names += [f"peer_{rank}" for rank in range(called.ranks)]
    names += [f"{constexpr}: tl.constexpr" for constexpr, _ in candidates[0].constexprs]
    arguments = "".join(f"{INDENT}{each},\n" for each in _arguments(group, called))
    body = f"{called.function}(\n{arguments})"
    kernel = f"@triton.jit\ndef {name}({', '.join(names)}):\n{textwrap.indent(body, INDENT)}\n"
    runs = "".join(f"{INDENT}{each}\n" for each in candidates)
    title = f"The kernel `{called.function}` with the arguments of one call:"
    title = f'"""{title}\n\n{runs}"""'
    return f"{title}\n\n{called.source}\n\n{kernel}"


def _arguments(group: Group, called: Called) -> list[str]:
    """`x_ptr=in0`, `n=tl.full((), 640, tl.int32)`, `BLOCK=BLOCK` … in the kernel's order."""
    assert group.root_op is not None
    reads = kernel_file.buffer_names(group)
    found = []
    for name, kind, what in called.arguments:
        text = what
        if kind == "stored":
            text = f"out{what}"
        elif kind == "read":
            operand, start = what
            begin = f" + {kernel_text(start)}" if start != 0 else ""
            text = reads[group.root_op.inputs[operand]] + begin
        elif kind == "size":
            text = _size_text(*what)
        found.append(f"{name}={text}")
    return found


def _size_text(extent: Extent, dtype: str) -> str:
    """A number that a kernel of the user's is given, of the type that a launch gives it."""
    if not dtype:
        return str(extent)
    if isinstance(extent, int):
        return f"tl.full((), {extent}, tl.{dtype})"
    return f"{kernel_text(extent)}.to(tl.{dtype})"
