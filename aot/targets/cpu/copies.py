"""Operands of products copied to scratch: as they are, transposed, or widened."""

from __future__ import annotations

from aotc.aot.targets.cpu import memory, root_ops, tiles
from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES, as_f32, shuffled
from aotc.aot.targets.cpu.linear import Int, Linear, integer
from aotc.aot.targets.cpu.memory import Buffer, Index
from aotc.aot.targets.cpu.ttir import Value
from aotc.aot.targets.cpu.writer import Operand, constant

ROUNDED_LANES = (16, 32)  # for which there is an instruction


def copied(kernel: Kernel, value: Value, place: tuple[int, int]) -> Buffer:
    """An operand of rank 2, as it is, in scratch of the shape `place`, which is no smaller."""
    element, (rows, columns) = value.type.element, value.type.shape or (1, 1)
    memory_bytes = ITEMSIZE_BYTES[element] * place[0] * place[1]
    buffer = Buffer(kernel.allocate(memory_bytes), place, element, kernel.writer.depth)
    lane, block = tiles.lane_dimension(kernel, value), kernel.isa.lanes
    if lane == 0 and block <= min(rows, columns):
        write_transposed(kernel, value, buffer, (rows, columns), block, integer(0))
        return buffer._replace(min_depth=kernel.writer.depth)
    filling, wide = root_ops.Filling(kernel, (rows, columns)), _rounded(kernel, value)

    def body(index: Index) -> None:
        filling.enter(index)
        if wide is not None and kernel.lanes.width in ROUNDED_LANES:
            found = _factor(kernel, kernel.lanes.operand(kernel.at(wide, index)))
        else:
            found = kernel.lanes.operand(kernel.at(value, index))
        pointer = memory.buffer_pointer(kernel, buffer, index)
        memory.write(kernel, pointer, found, element, None)

    tiles.run(kernel, (rows, columns), body, lane_dim=lane, vectors=2)
    filling.finish([])
    return buffer._replace(min_depth=kernel.writer.depth)


def _rounded(kernel: Kernel, value: Value) -> Value | None:
    """What is f32 before it is rounded to a factor of bf16, if the processor multiplies that."""
    made, element = value.owner, value.type.element
    if (
        made is None
        or made.name != "arith.truncf"
        or element not in dict(kernel.isa.multiplies_words)
    ):
        return None
    is_stored = value in kernel.pending or value in kernel.buffers or value in kernel.shifted
    is_single = element == "bf16" and made.operands[0].type.element == "f32"
    return made.operands[0] if is_single and not is_stored else None


def _factor(kernel: Kernel, wide: Operand) -> Operand:
    """f32 rounded to bf16 by the processor, which makes subnormal numbers zeros, as the product
    that reads it does."""
    writer, width = kernel.writer, kernel.lanes.width
    half, kind = "<16 x float>", f"<{width} x bfloat>"
    if width == 16:
        name, parts = "cvtneps2bf16", [wide]
    else:
        name = "cvtne2ps2bf16"
        parts = [shuffled(writer, [wide], range(start, start + 16)) for start in (16, 0)]
    assert all(part.type == half for part in parts)
    found = writer.call(f"llvm.x86.avx512bf16.{name}.512", kind, parts)
    return writer.emit(f"bitcast {found} to <{width} x i16>", f"<{width} x i16>", [found])


def write_transposed(
    kernel: Kernel,
    value: Value,
    buffer: Buffer,
    shape: tuple[int, int],
    block: int,
    start: Int,
) -> None:
    """An operand that is contiguous down its columns: read by columns, transposed in registers.

    A block of `block` × `block` elements takes that many reads, shuffles · log2 and writes. A few
    columns are read to their end, one block after the other: the processor sees how they go on.
    """
    rows, columns = shape
    with kernel.width(block):
        lanes = kernel.lanes
        with kernel.writer.loop(constant(columns, "i32"), block, may_skip=False) as across:
            column = lanes.atom(across.counter, "i32", block, natural=True)
            with kernel.writer.loop(constant(rows, "i32"), block, may_skip=False) as down:
                row = lanes.atom(down.counter, "i32", block, natural=True)
                vectors = []
                for i in range(block):
                    place = lanes.add(lanes.add(column, start), integer(i))
                    index = (Int("i32", row.base, Linear((), 1)), place)
                    found = lanes.splat(lanes.operand(kernel.at(value, index)))
                    vectors.append(widen(kernel, found, value, buffer.element))
                for i, vector in enumerate(transposed_block(kernel, vectors)):
                    index = (lanes.add(row, integer(i)), Int("i32", column.base, Linear((), 1)))
                    pointer = memory.buffer_pointer(kernel, buffer, index)
                    memory.write(kernel, pointer, vector, buffer.element, None)


def transposed_block(kernel: Kernel, vectors: list[Operand]) -> list[Operand]:
    """Turns a square block over: exchanges ever larger halves of pairs of vectors."""
    size = len(vectors)
    current = list(vectors)
    step = 1
    while step < size:
        for i in range(size):
            if i & step:
                continue
            a, b = current[i], current[i + step]
            low = [p if not p & step else size + p - step for p in range(size)]
            high = [p + step if not p & step else size + p for p in range(size)]
            current[i], current[i + step] = (
                shuffled(kernel.writer, [a, b], places) for places in (low, high)
            )
        step *= 2
    return current


def widen(kernel: Kernel, operand: Operand, value: Value, wide: str) -> Operand:
    """A lane value of the operand in the type that the microkernel multiplies."""
    narrow = value.type.element
    if narrow == wide:
        return operand
    if wide == "i32":
        return kernel.lanes.cast("sext", operand, "i32")
    found = as_f32(kernel.lanes, operand, narrow)
    return (
        kernel.lanes.cast("fpext", found, "double") if wide == "f64" and narrow != "f64" else found
    )
