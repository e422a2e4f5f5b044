"""`tt.atomic_rmw` and `tt.atomic_cas`, one element at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aotc.aot.errors import CompileError
from aotc.aot.targets.cpu import memory, root_ops, tiles
from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.linear import Lane
from aotc.aot.targets.cpu.literals import LLVM_TYPES
from aotc.aot.targets.cpu.memory import Index
from aotc.aot.targets.cpu.operands import typed
from aotc.aot.targets.cpu.ttir import Operation
from aotc.aot.targets.cpu.writer import Operand

_ATOMICS = {
    1: "and",
    2: "or",
    3: "xor",
    4: "add",
    5: "fadd",
    6: "max",
    7: "min",
    8: "umax",
    9: "umin",
    10: "xchg",
}
"""Code of `atomic_rmw_op` → LLVM's name."""


def atomic(kernel: Kernel, operation: Operation) -> None:
    """`tt.atomic_rmw` and `tt.atomic_cas`, one element at a time; the old values are kept."""
    result = operation.results[0]
    shape = result.type.shape or ()
    buffer = root_ops.new_buffer(kernel, result) if shape else None

    def body(index: Index) -> None:
        operands = [kernel.at(x, index) for x in operation.operands]
        old = _atomic_element(kernel, operation, operands)
        lane = typed(kernel.lanes, old, result.type.element)
        if buffer is None:
            kernel.scalars[result] = lane
        else:
            memory.write_buffer(kernel, buffer, index, lane)

    _each_element(kernel, shape, body)
    if buffer is not None:
        kernel.buffers[result] = buffer._replace(min_depth=kernel.writer.depth)


def _each_element(kernel: Kernel, shape: tuple[int, ...], body: Callable[[Index], None]) -> None:
    """Scalar loops over a tile: an extra dimension of one takes the lanes."""
    if not shape:
        body(())
        return
    tiles.run(kernel, (*shape, 1), lambda index: body(index[:-1]), lane_dim=len(shape))


def _atomic_element(kernel: Kernel, operation: Operation, operands: Sequence[Lane]) -> Operand:
    lanes = kernel.lanes
    address = lanes.operand(operands[0])
    kind = LLVM_TYPES[operation.results[0].type.element]
    if operation.name == "tt.atomic_cas":
        expected, wanted = (lanes.operand(x) for x in operands[1:3])
        pair = kernel.writer.effect(
            f"cmpxchg {address}, {expected}, {wanted} seq_cst seq_cst", f"{{ {kind}, i1 }}"
        )
        return kernel.writer.effect(f"extractvalue {pair} , 0", kind)
    code = operation.integer("atomic_rmw_op")
    if code not in _ATOMICS:
        raise CompileError(message=f"atomic operation {code} is not supported by the cpu target")
    value = lanes.operand(operands[1])
    if len(operands) > 2:
        mask = lanes.operand(operands[2])
        if mask.text != "true":
            safe = kernel.bin()
            address = kernel.writer.emit(
                f"select {mask}, {address}, {safe}", "ptr", [mask, address, safe]
            )
    return kernel.writer.effect(f"atomicrmw {_ATOMICS[code]} {address}, {value} seq_cst", kind)
