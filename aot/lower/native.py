"""Calls of native functions → kernels without code of ours: the executor's own calls them."""

from __future__ import annotations

from aotc.aot.errors import UnsupportedError
from aotc.aot.ir.graph import Node
from aotc.aot.ir.native import NativeCall
from aotc.aot.lower import source
from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Scratch
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.traits import TargetTraits
from aotc.runtime.native_plan import SYMBOL

FORM = "native"
TILE_BYTES = 32 << 10  # moved by one tile at least, so that it is worth handing to a thread
TILES_LIMIT = 64


class NativeTargetUnsupported(UnsupportedError):
    """The model calls a native function that is none of the device it is built for."""

    code = "native-target"
    template = "native function `{function}` takes no tensors of device `{device}`{source}"
    hint = (
        "build for one of the function's own devices, or give the op a decomposition into ops or "
        "Triton kernels beside the model (`decompositions`)"
    )


def lower_native(group: Group, traits: TargetTraits) -> KernelSpec:
    """One form, whose text is the call; on the CPU as many tiles as are worth it where the
    function has any. Raises `NativeTargetUnsupported` for a device that it has no function for.
    """
    call = group.anchor
    assert call is not None
    name = f"{call.attr('backend')}::{call.attr('function')}"
    workspaces = dict(call.attr("workspaces"))
    if traits.device not in workspaces:
        place = f"\n  at {call.source}" if call.source else ""
        raise NativeTargetUnsupported(function=name, device=traits.device, source=place)
    nbytes = workspaces[traits.device]
    is_device = traits.device != "cpu"
    is_tiled = call.attr("is_tiled") and not is_device
    tiles = max(1, min(group.bytes // TILE_BYTES, TILES_LIMIT)) if is_tiled else 1
    scratch = (Scratch("workspace", "*i8", nbytes),) if is_device and nbytes else ()
    return KernelSpec(
        name=name.replace("::", "."),
        forms=(Form(FORM, str(_call(group, call, nbytes)), SYMBOL),),
        params=source.parameters(group),
        candidates=(Candidate((), (tiles, 1, 1), FORM, scratch),),
        bytes=group.bytes,
        operations=group.operations,
    )


def _call(group: Group, call: Node, workspace_bytes: int) -> NativeCall:
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
