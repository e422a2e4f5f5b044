"""Functions beside the kernel's own: those that it calls, and regions mapped over elements.

    tt.call @f(scalar, tensor)   →   call void @f(scalar, ptr tensor, ptr result, …)

Scalars are passed as they are, tensors and results in memory. A region mapped over elements is a
function of their values and of what it takes from around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aotc.aot.targets.cpu import memory, root_ops
from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.graph import RETURN
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES, compare, typed
from aotc.aot.targets.cpu.linear import LLVM_TYPES, Int, Pointer, integer
from aotc.aot.targets.cpu.memory import Buffer, Index
from aotc.aot.targets.cpu.ttir import Function, Operation, Value, unsupported
from aotc.aot.targets.cpu.writer import Operand, constant

PROGRAM = "i32 %x, i32 %y, i32 %z, ptr %grid"


@dataclass(frozen=True, slots=True)
class Subroutine:
    """A function that was lowered."""

    name: str
    scratch_bytes: int


Lower = Callable[[Function, str], Subroutine]
"""Lowers a function under a name of its own."""


def returned(kernel: Kernel, terminator: Operation) -> None:
    """Writes what a function gives to where its caller wants it."""
    for place, value in enumerate(terminator.operands):
        into = Operand(f"%result{place}", "ptr")
        if value.type.is_tensor:
            shape, depth = value.type.shape or (), kernel.writer.depth
            root_ops.materialize(kernel, value, Buffer(into, shape, value.type.element, depth))
        else:
            kind = memory.stored_element(value.type.element)
            found = kernel.lanes.operand(kernel.scalar(value))
            found = kernel.lanes.cast("zext", found, "i8") if found.type == "i1" else found
            kernel.writer.effect(f"store {found}, {into}, align {ITEMSIZE_BYTES[kind]}")


def call(kernel: Kernel, operation: Operation, lower: Lower) -> None:
    """`tt.call`: the results are scalars, or tensors in memory."""
    symbol = str(operation.attributes.get("callee", "")).removeprefix("@")
    function = kernel.functions.get(symbol)
    if function is None:
        raise unsupported(f"operation `tt.call` of `@{symbol}`")
    routine = _lowered(kernel, symbol, function, lower)
    buffers = [root_ops.new_buffer(kernel, x) for x in operation.results]
    given = [_passed(kernel, x) for x in operation.operands]
    _write(kernel, routine, [*given, *(x.base for x in buffers)])
    for value, buffer in zip(operation.results, buffers, strict=True):
        written = buffer._replace(min_depth=kernel.writer.depth)
        if value.type.is_tensor:
            kernel.buffers[value] = written
        else:
            kernel.scalars[value] = _loaded(kernel, value, written)


def _passed(kernel: Kernel, value: Value) -> Operand:
    if not value.type.is_tensor:
        return kernel.lanes.operand(kernel.scalar(value))
    if value in kernel.pending:
        root_ops.force(kernel, value)
    known = kernel.buffers.get(value)
    return (known if known and not known.bounds else root_ops.materialize(kernel, value)).base


def _loaded(kernel: Kernel, value: Value, buffer: Buffer) -> Int | Operand | Pointer:
    kind = memory.stored_element(value.type.element)
    found = memory.read(kernel, buffer.base, kind, None, None, buffer.min_depth)
    if value.type.is_pointer:
        return Pointer(found, integer(0, "i64"), value.type.pointee)
    if value.type.element == "i1":
        return compare(kernel.lanes, "icmp ne", found, constant(0, "i8"))
    return typed(kernel.lanes, found, value.type.element)


def _lowered(kernel: Kernel, symbol: str, function: Function, lower: Lower) -> Subroutine:
    if symbol not in kernel.routines:
        kernel.routines[symbol] = lower(function, f"routine{len(kernel.routines)}")
    found: Subroutine = kernel.routines[symbol]
    return found


def _write(kernel: Kernel, routine: Subroutine, given: Sequence[Operand]) -> None:
    scratch = kernel.allocate(routine.scratch_bytes) if routine.scratch_bytes else None
    rest = f"{PROGRAM}, {scratch or 'ptr %scratch'}{kernel.report_argument}"
    passed = "".join(f"{each}, " for each in given)
    kernel.writer.effect(f"call void @{routine.name}({passed}{rest})")


def map_elementwise(kernel: Kernel, operation: Operation, lower: Lower) -> None:
    """`tt.map_elementwise`: a function of scalars, called for every `pack` neighbours."""
    pack = operation.integer("pack", 1)
    outer = _outer_values(operation)
    blocks = operation.regions[0]
    function = Function(
        [*blocks[0].arguments, *outer],
        [replace(block, operations=_ended(block.operations)) for block in blocks],
        [block.label for block in blocks],
        kernel.functions,
    )
    routine = _lowered(kernel, f"region {operation.position}", function, lower)
    buffers = [root_ops.new_buffer(kernel, x) for x in operation.results]
    shape = operation.results[0].type.shape or ()
    lanes = kernel.lanes

    def body(index: Index) -> None:
        first = lanes.multiply(index[-1], integer(pack))
        places = [(*index[:-1], lanes.add(first, integer(i))) for i in range(pack)]
        given = [
            kernel.lanes.operand(kernel.at(x, place))
            for x in operation.operands
            for place in places
        ]
        given += [kernel.lanes.operand(kernel.scalar(x)) for x in outer]
        given += [
            kernel.lanes.operand(memory.buffer_pointer(kernel, x, place))
            for x in buffers
            for place in places
        ]
        _write(kernel, routine, given)

    if shape[-1] % pack:
        raise unsupported(f"`map_elementwise` of {pack} neighbours in rows of {shape[-1]}")
    root_ops.each_element(kernel, (*shape[:-1], shape[-1] // pack), body)
    for value, buffer in zip(operation.results, buffers, strict=True):
        kernel.buffers[value] = buffer._replace(min_depth=kernel.writer.depth)


def _ended(operations: Sequence[Operation]) -> list[Operation]:
    """A block's operations with the region's end as a function's."""
    last = operations[-1]
    if not last.name.endswith(".return"):
        return list(operations)
    return [*operations[:-1], replace(last, name=RETURN)]


def _outer_values(operation: Operation) -> list[Value]:
    """Scalars that a region takes from around it."""
    inside = {x for block in operation.regions[0] for x in block.arguments}
    found: dict[Value, None] = {}
    for each in (x for block in operation.regions[0] for op in block.operations for x in op.walk()):
        inside.update(each.results)
        inside.update(x for region in each.regions for block in region for x in block.arguments)
        found.update(dict.fromkeys(each.operands))
    return [x for x in found if x not in inside]


def parameter(value: Value, name: str) -> Operand:
    """A function's argument as an LLVM value."""
    kind = "ptr" if value.type.is_tensor else LLVM_TYPES[value.type.element]
    return Operand(name, kind)
