"""Root operations: they run over the elements of lazy tensors and write them to memory."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.targets.cpu import interleave, memory, tiles
from aotc.aot.targets.cpu.evaluate import Kernel, Pending
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES
from aotc.aot.targets.cpu.memory import Bound, Buffer, Index
from aotc.aot.targets.cpu.ttir import Operation, Value


def new_buffer(kernel: Kernel, value: Value, bounds: tuple[Bound, ...] = ()) -> Buffer:
    """Scratch for a tensor, to be written in the current scope."""
    shape = value.type.shape or ()
    size_bytes = ITEMSIZE_BYTES[value.type.element]
    for size in shape:
        size_bytes *= size
    return Buffer(
        kernel.allocate(size_bytes), shape, value.type.element, kernel.writer.depth, bounds
    )


def materialize(kernel: Kernel, value: Value, into: Buffer | None = None) -> Buffer:
    """Computes all elements of a tensor into memory."""
    buffer = into or new_buffer(kernel, value)

    def body(index: Index) -> None:
        memory.write_buffer(kernel, buffer, index, kernel.at(value, index))

    lane = tiles.lane_dimension(kernel, value)
    tiles.run(kernel, buffer.shape, body, lane_dim=lane)
    return buffer._replace(min_depth=kernel.writer.depth)


def defer(kernel: Kernel, value: Value) -> None:
    """Marks a tensor to be written to memory by the first root that runs over all of it."""
    kernel.pending[value] = Pending(kernel, new_buffer(kernel, value))


def _settle(kernel: Kernel, shape: Sequence[int]) -> list[Value]:
    """Pending tensors that a root over `shape` may write as it goes."""
    return [v for v in kernel.pending if v.type.shape == tuple(shape)]


class Filling:
    """While a root runs, the pending tensors of its shape are written at the root's own index."""

    def __init__(self, kernel: Kernel, shape: Sequence[int]) -> None:
        self.kernel = kernel
        self.values = _settle(kernel, shape)

    def enter(self, index: Index) -> None:
        for value in self.values:
            self.kernel.pending[value].index = index

    def finish(self, bounds: Sequence[Bound]) -> None:
        kernel = self.kernel
        for value in self.values:
            pending = kernel.pending[value]
            pending.index = None
            if pending.written:
                del kernel.pending[value]
                depth = kernel.writer.depth
                kernel.buffers[value] = pending.buffer._replace(
                    bounds=tuple(bounds), min_depth=depth
                )


def force(kernel: Kernel, value: Value) -> None:
    """Computes a pending tensor now."""
    pending = kernel.pending.pop(value)
    kernel.buffers[value] = materialize(
        kernel, value, pending.buffer._replace(min_depth=kernel.writer.depth)
    )


# ------------------------------------------------------------------------ store


def store(kernel: Kernel, run: Sequence[Operation]) -> None:
    """`tt.store(pointer, value, mask?)`, one or several in a loop that ends where the mask does."""
    first = run[0]
    mask = first.operands[2] if len(first.operands) > 2 else None
    shape = first.operands[0].type.shape or ()
    cuts = tiles.conjuncts(kernel, mask, shape) if mask is not None and shape else []
    filling = Filling(kernel, shape)

    def body(index: Index) -> None:
        filling.enter(index)
        write(kernel, run, mask, index)

    lane = tiles.lane_dimension(kernel, first.operands[0]) if shape else None
    vectors = interleave.vectors_of(kernel, [operation.operands[1] for operation in run], lane)
    tiles.run(kernel, shape, body, lane_dim=lane, cuts=cuts, vectors=vectors)
    filling.finish([cut.bound for cut in cuts])


def write(kernel: Kernel, run: Sequence[Operation], mask: Value | None, index: Index) -> None:
    """What the stores of a run write at one index, where their mask lets them."""
    test = kernel.lanes.operand(kernel.at(mask, index)) if mask is not None else None
    for operation in run:
        pointer, value = operation.operands[:2]
        element = pointer.type.pointee
        address = kernel.at(pointer, index)
        found = kernel.lanes.operand(kernel.at(value, index))
        if element == "i1":
            found = kernel.lanes.cast("zext", found, "i8")
        memory.write(kernel, address, found, memory.stored_element(element), test)
