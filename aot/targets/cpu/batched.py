"""`tt.dot` of rank 3: one product for each element of the first dimension.

The operands stand in memory in the accumulator's type; a row of the result is added up in a
register along the inner dimension, apart from the accumulator if it may be (`operands.is_apart`).
"""

from __future__ import annotations

from aotc.aot.targets.cpu import memory, operands, root_ops, tiles
from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.lanes import typed
from aotc.aot.targets.cpu.memory import Index
from aotc.aot.targets.cpu.ttir import Operation
from aotc.aot.targets.cpu.writer import constant


def dot(kernel: Kernel, operation: Operation) -> None:
    """a[B, M, K] · b[B, K, N] + c[B, M, N] into a buffer; all of one element type."""
    result = operation.results[0]
    for value in operation.operands:
        if value in kernel.pending:
            root_ops.force(kernel, value)
    a, b = (root_ops.materialize(kernel, x) for x in operation.operands[:2])
    start = operation.operands[2]
    into = kernel.in_place.get(result) or root_ops.new_buffer(kernel, result)
    kind, depth = result.type.element, a.shape[2]
    is_apart = operands.is_apart(operation)

    def body(index: Index) -> None:
        batch, row, column = index
        before = kernel.lanes.splat(kernel.lanes.operand(kernel.at(start, index)))
        first = constant("zeroinitializer", before.type) if is_apart else before
        with kernel.writer.loop(constant(depth, "i32"), 1, [first], may_skip=False) as loop:
            inner = kernel.lanes.atom(loop.counter, "i32", natural=True)
            left = kernel.lanes.operand(memory.read_buffer(kernel, a, (batch, row, inner)))
            right = kernel.lanes.operand(memory.read_buffer(kernel, b, (batch, inner, column)))
            left, right = kernel.lanes.splat(left), kernel.lanes.splat(right)
            (total,) = loop.carried
            if kind == "i32":
                product = kernel.lanes.binary("mul", left, right)
                loop.next_values = [kernel.lanes.binary("add", product, total)]
            else:
                width = kernel.lanes.width
                name = f"llvm.fma.v{width}{kind}" if width > 1 else f"llvm.fma.{kind}"
                loop.next_values = [kernel.writer.call(name, total.type, [left, right, total])]
        (total,) = loop.results
        total = kernel.lanes.binary("fadd", before, total) if is_apart else total
        lane = typed(kernel.lanes, total, kind)
        memory.write_buffer(kernel, into, index, lane)

    tiles.run(kernel, into.shape, body, lane_dim=2)
    kernel.buffers[result] = into._replace(min_depth=kernel.writer.depth)
