"""Ops of the model that are functions of a native back end: `aot.native_op`.

    add = aot.native_op("custom_add::add", backend="custom_add",
                        fake=lambda a, b, n: torch.empty_like(a))

ties an op of torch to a function: eager torch calls it through the runtime, and a build puts a call
of it into the plan.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from aotc.aot.capture.custom_ops import IMPORTS, CustomOp
from aotc.aot.capture.imports.call import NotSupported, type_of
from aotc.aot.errors import NativeOpInvalid
from aotc.aot.ir.graph import Node, make, sizes_in
from aotc.aot.ir.size import Shape
from aotc.aot.native.library import TiedLibrary, tie
from aotc.aot.native.twin import triton_attrs
from aotc.runtime import get_backend
from aotc.runtime.arrays.dlpack import HOST
from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.backends import Function, Signature
from aotc.runtime.backends.library import NativeFunction, open_file
from aotc.runtime.backends.steps import BoundNative
from aotc.runtime.bundle.native_plan import NativeLaunch, NativeTensor


@dataclass(frozen=True, slots=True)
class NativeOp:
    """An op of torch and the function that it is, as plans and as Python call it; `fake` gives
    empty results for its arguments."""

    schema: str
    function: NativeFunction
    called: Function
    tied: TiedLibrary
    fake: Callable[..., Any]
    reference: Callable[..., Any] | None = None
    triton: Callable[..., Any] | None = None

    @property
    def signature(self) -> Signature:
        """What the function takes."""
        return self.function.signature


_ops: dict[str, NativeOp] = {}
_libraries: list[torch.library.Library] = []  # an op lives as long as what defined it


def native_op(
    name: str,
    backend: str | os.PathLike[str],
    fake: Callable[..., Any],
    function: str | None = None,
    reference: Callable[..., Any] | None = None,
    triton: Callable[..., Any] | None = None,
) -> Any:
    """Define the op `name` (`library::op`) as a function of a native back end; returns the op.

    backend: its name or path, as `runtime.get_backend` takes it. function: the function's name,
    where it is not the op's. fake: takes the op's arguments, the inputs in their order, then the
    scalars, and returns what its results are like: empty tensors of their shapes and dtypes, on the
    inputs' device. Arguments are copied where they have gaps and the function takes none.
    reference: the op in torch, for tensors on devices that the function has nothing for, such as
    the host's, on which a build computes what a function for GPUs is to give. triton: the same op
    as one Triton kernel behind `torch.library.triton_op`; the tuner measures both, and without it
    the function is taken.

    Raises `NativeOpInvalid`, and the errors of `get_backend`.
    """
    library, separator, op_name = name.partition("::")
    if not separator or not library.isidentifier() or not op_name.isidentifier():
        raise NativeOpInvalid(op=name, detail="the name is not `library::op`")
    opened = get_backend(backend)
    called = opened[function or op_name]
    native = open_file(opened.path).function(function or op_name)
    if not native.signature.outputs:
        raise NativeOpInvalid(op=name, detail="the function has no output")
    schema = f"{op_name}{_schema(native.signature)}"
    known = _ops.get(name)
    if known is None:
        _define(name, schema)
    elif known.schema != schema:
        detail = f"it is `{known.schema}` in this process, and would be `{schema}`"
        raise NativeOpInvalid(op=name, detail=detail)
    tied = tie(native.library)
    op = NativeOp(schema, native, called, tied, fake, reference, triton)
    _ops[name] = op
    digest = f"{tied.entry.name}:{tied.entry.sha256.hex()}"
    IMPORTS[name] = CustomOp(partial(_imported, op), digest)
    return getattr(getattr(torch.ops, library), op_name)


def _define(name: str, schema: str) -> None:
    """Register the op; what it does is looked up at each call, since a model's module may be
    imported more than once in a process."""
    library, _, op = name.partition("::")
    defined = torch.library.Library(library, "FRAGMENT")
    try:
        defined.define(schema)
    except RuntimeError as error:
        raise NativeOpInvalid(op=name, detail=str(error).splitlines()[0]) from error
    run = partial(_run, name)
    defined.impl(op, run, "CompositeExplicitAutograd")
    torch.library.register_fake(name, lambda *given: _ops[name].fake(*given), lib=defined)
    _libraries.append(defined)


def _schema(signature: Signature) -> str:
    kinds = {"whole": "int", "real": "float"}
    arguments = [f"Tensor {slot.name}" for slot in signature.inputs]
    arguments += [f"{kinds[slot.kind]} {slot.name}" for slot in signature.scalars]
    count = len(signature.outputs)
    results = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    return f"({', '.join(arguments)}) -> {results}"


def _run(name: str, *arguments: Any) -> Any:
    """The op on real tensors: results as `fake` makes them, filled by the function."""
    op = _ops[name]
    count = len(op.signature.inputs)
    given = [each.detach() for each in arguments[:count]]
    devices = {each.device.type for each in given}
    if op.reference is not None and not devices <= set(op.signature.devices):
        return op.reference(*given, *arguments[count:])
    results = op.fake(*given, *arguments[count:])
    outputs = (results,) if isinstance(results, torch.Tensor) else tuple(results)
    read = [
        tensor if slot.is_strided else tensor.contiguous()
        for slot, tensor in zip(op.signature.inputs, given, strict=True)
    ]
    op.called(*read, *arguments[count:], out=outputs)
    return results


def _imported(op: NativeOp, node: torch.fx.Node, arguments: Sequence[Any]) -> Any:
    """The call as nodes, one for each result; `arguments` in the op's order, with our nodes."""
    count = len(op.signature.inputs)
    operands = tuple(arguments[:count])
    scalars = tuple(
        (slot.kind, int(value) if slot.kind == "whole" else float(value).hex())
        for slot, value in zip(op.signature.scalars, _numbers(arguments[count:]), strict=True)
    )
    found = node.meta["val"]
    kinds = [type_of(each) for each in (found if isinstance(found, list | tuple) else (found,))]
    results = tuple((kind.dtype, kind.shape) for kind in kinds)
    tensors = _tensors(op.signature, operands, results)
    operands = tuple(
        _aligned(operand, op.signature.inputs[place].alignment_bytes, f"{node.name}.{place}")
        for place, operand in enumerate(operands)
    )
    shared = {
        "backend": op.function.library.name,
        "function": op.signature.name,
        "library": (op.tied.entry.version, op.tied.entry.sha256.hex()),
        "tensors": tensors,
        "scalars": scalars,
        "workspaces": tuple(
            (device, _workspace_bytes(op, device, tensors, scalars))
            for device in op.signature.devices
        ),
        "is_tiled": op.signature.is_tiled,
        "triton": _beside(op, node, results),
        "results": results,
        "updates": (),
    }
    made = [
        _aligned(
            make("native", operands, {**shared, "result": number}),
            slot.alignment_bytes,
            f"{node.name}.out{number}",
        )
        for number, slot in enumerate(op.signature.outputs)
    ]
    return tuple(made) if isinstance(found, list | tuple) else made[0]


def _beside(op: NativeOp, node: torch.fx.Node, results: Sequence[tuple[str, Any]]) -> Any:
    """The Triton kernel beside the function, as attributes; none where there is none."""
    if op.triton is None or sizes_in(tuple(results)):
        return ()
    count = len(op.signature.inputs)
    tensors = [each.meta["val"] for each in node.args[:count]]
    return triton_attrs(op.triton, tensors, node.args[count:], results)


def _numbers(values: Sequence[Any]) -> list[int | float]:
    if not all(isinstance(value, bool | int | float) for value in values):
        raise NotSupported("a number of a native function is known at the build")
    return list(values)


def _tensors(
    signature: Signature, operands: Sequence[Node], results: Sequence[tuple[str, Any]]
) -> tuple[tuple[str, int, str, Shape], ...]:
    """The tensors in the function's order; raises `NotSupported` where one does not fit."""
    read, stored = iter(range(len(operands))), iter(range(len(results)))
    found = []
    for slot in signature.tensors:
        if slot.role == "input":
            number = next(read)
            row = ("read", number, operands[number].dtype, tuple(operands[number].shape))
        else:
            number = next(stored, -1)
            if number < 0:
                raise NotSupported(f"`fake` gives {len(results)} results: {signature}")
            row = ("stored", number, *results[number])
        if row[2] not in slot.dtypes or slot.rank not in (None, len(row[3])):
            raise NotSupported(f"`{slot.name}` is {row[2]}{list(row[3])}: {signature}")
        found.append(row)
    return tuple(found)


def _aligned(node: Node, alignment_bytes: int, tag: str) -> Node:
    """The node, or a copy of its own where the function asks for more than arrays of callers are
    known to have: memory of the arena starts at multiples of 64 bytes."""
    if alignment_bytes <= DTYPES[node.dtype].itemsize_bytes:
        return node
    if alignment_bytes > 64:
        raise NotSupported(f"it asks for memory at multiples of {alignment_bytes} bytes, over 64")
    return make("copy", (node,), {"tag": tag})


def _workspace_bytes(
    op: NativeOp, device: str, tensors: Sequence[tuple[str, int, str, Any]], scalars: Any
) -> int | None:
    """What the function asks for, of one tile; None where sizes depend on the call, so that it is
    asked for each of them."""
    if any(sizes_in(row[3]) for row in tensors):
        return None if op.function.workspace_address else 0
    launch = NativeLaunch(
        op.function.library.name,
        op.signature.name,
        tuple(NativeTensor(dtype, kind == "stored", shape) for kind, _, dtype, shape in tensors),
        scalars,
    )
    state = None if (device, 0) == HOST else 0  # a build needs no device
    return BoundNative(launch, op.function, (device, 0)).workspace_bytes(state)
