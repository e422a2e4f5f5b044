"""Calls of native functions → kernels without code of ours: the executor's own calls them."""

from __future__ import annotations

from dataclasses import replace

from aotc.aot.errors import UnsupportedError
from aotc.aot.ir.graph import Node, sizes_in
from aotc.aot.ir.native import NativeCall
from aotc.aot.lower import kernel_file
from aotc.aot.lower.call import Called, kernel_of
from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Scratch
from aotc.aot.schedule.group import Group
from aotc.aot.traits import TargetTraits
from aotc.runtime.bundle.native_plan import SYMBOL

FORM, TRITON_FORM = "native", "triton"
TILE_BYTES = 32 << 10  # moved by one tile at least, so that it is worth handing to a thread
TILES_LIMIT = 64


class NativeTargetUnsupported(UnsupportedError):
    """The model calls a native function that has no form for the device it is built for."""

    code = "native-target"
    template = "native function `{function}` takes no tensors of device `{device}`{source}"
    hint = (
        "build for one of the function's own devices, or give `aot.native_op` the op as a Triton "
        "kernel too (`triton=`)"
    )


def lower_native(group: Group, traits: TargetTraits) -> KernelSpec:
    """The function as one form, and the model's Triton kernel of the same op as another.

    Both are candidates, the function the first, where it has something for the device. Raises
    `NativeTargetUnsupported` where there is neither.
    """
    call = group.root_op
    assert call is not None
    name = f"{call.attr('backend')}::{call.attr('function')}"
    workspaces = dict(call.attr("workspaces"))
    forms, candidates = _beside(group, call, traits)
    if traits.device in workspaces:
        own = Form(FORM, str(_call(group, call, workspaces[traits.device])), SYMBOL)
        forms = (own, *forms)
        first = _candidate(group, call, traits, workspaces[traits.device])
        candidates = (first, *candidates)
    elif not forms:
        place = f"\n  at {call.source}" if call.source else ""
        raise NativeTargetUnsupported(function=name, device=traits.device, source=place)
    return KernelSpec(
        name=name.replace("::", "."),
        forms=forms,
        params=kernel_file.parameters(group),
        candidates=candidates,
        bytes=group.bytes,
        operations=group.operations,
    )


def _candidate(group: Group, call: Node, traits: TargetTraits, nbytes: int | None) -> Candidate:
    """As many tiles as are worth it, where the function has any and the CPU runs it."""
    is_device = traits.is_gpu
    is_tiled = call.attr("is_tiled") and not is_device
    tiles = max(1, min(group.bytes // TILE_BYTES, TILES_LIMIT)) if is_tiled else 1
    scratch = (Scratch("workspace", "*i8", nbytes),) if is_device and nbytes else ()
    return Candidate((), (tiles, 1, 1), FORM, scratch)


def _beside(
    group: Group, call: Node, traits: TargetTraits
) -> tuple[tuple[Form, ...], tuple[Candidate, ...]]:
    """The Triton kernel of the same op, where the model gives one: its form and candidates."""
    own_attrs = dict(call.attr("triton"))
    if not own_attrs or sizes_in(call.attr("results")):
        return (), ()
    kernel = kernel_of(group, Called(**own_attrs), traits)
    (form,) = kernel.forms
    rows = (replace(row, form=TRITON_FORM) for row in kernel.candidates)
    return (Form(TRITON_FORM, form.source, form.function),), tuple(rows)


def _call(group: Group, call: Node, workspace_bytes: int | None) -> NativeCall:
    """The call, with its tensors by the numbers of the kernel's parameters: reads, then stores."""
    version, sha256 = call.attr("library")
    tensors = [
        (
            group.reads.index(call.inputs[number]) if kind == "read" else len(group.reads) + number,
            dtype,
            shape,
            kind == "stored",
        )
        for kind, number, dtype, shape in call.attr("tensors")
    ]
    return NativeCall(
        backend=call.attr("backend"),
        function=call.attr("function"),
        version=version,
        sha256=sha256,
        tensors=tuple(tensors),
        scalars=call.attr("scalars"),
        workspace_bytes=workspace_bytes,
    )
