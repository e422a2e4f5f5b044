"""Calls of native functions → kernels without code of ours: the executor's own calls them."""

from __future__ import annotations

from aotc.aot.errors import UnsupportedError
from aotc.aot.ir.graph import Node
from aotc.aot.ir.native import NativeCall
from aotc.aot.lower import source
from aotc.aot.lower.spec import Candidate, Form, KernelSpec
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.traits import TargetTraits
from aotc.runtime.native_plan import SYMBOL

FORM = "native"
TILE_BYTES = 32 << 10  # moved by one tile at least, so that it is worth handing to a thread
TILES_LIMIT = 64


class NativeTargetUnsupported(UnsupportedError):
    """The model calls a native function and is built for a device whose plans cannot."""

    code = "native-target"
    template = "`{function}` is a native function, which target `{device}` cannot call{source}"
    hint = (
        "build for `cpu`, or give the op a decomposition into ops or Triton kernels beside the "
        "model (`decompositions`)"
    )


def lower_native(group: Group, traits: TargetTraits) -> KernelSpec:
    """One form, whose text is the call; as many tiles as are worth it where the function has any.

    Raises `NativeTargetUnsupported` for devices other than the CPU.
    """
    call = group.anchor
    assert call is not None
    name = f"{call.attr('backend')}::{call.attr('function')}"
    if traits.device != "cpu":
        place = f"\n  at {call.source}" if call.source else ""
        raise NativeTargetUnsupported(function=name, device=traits.device, source=place)
    tiles = max(1, min(group.bytes // TILE_BYTES, TILES_LIMIT)) if call.attr("is_tiled") else 1
    return KernelSpec(
        name=name.replace("::", "."),
        forms=(Form(FORM, str(_call(group, call)), SYMBOL),),
        params=source.parameters(group),
        candidates=(Candidate((), (tiles, 1, 1), FORM),),
        bytes=group.bytes,
        operations=group.operations,
    )


def _call(group: Group, call: Node) -> NativeCall:
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
        workspace_bytes=call.attr("workspace_bytes"),
    )
