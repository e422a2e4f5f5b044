"""Reads and writes of memory at a chunk of lanes: contiguous, masked, or gathered."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, Protocol, TypeAlias

from aotc.aot.targets.cpu.isa import Isa
from aotc.aot.targets.cpu.lanes import (
    ITEMSIZE_BYTES,
    Lanes,
    compare,
    select,
    shuffled,
    type_suffix,
    typed,
)
from aotc.aot.targets.cpu.linear import (
    LLVM_TYPES,
    Int,
    Lane,
    Linear,
    Pointer,
    float_constant,
    integer,
    is_literal,
    is_vector,
    literal_lanes,
)
from aotc.aot.targets.cpu.ttir import Dense, Operation
from aotc.aot.targets.cpu.writer import Operand, Writer, constant

CONTIGUOUS, REVERSED = Linear((), 1), Linear((), -1)
FEWEST_PLAIN = 64  # places of a buffer of indices that are read as any memory is
MOST_PARTS = 4  # vectors that elements at known distances are read as: more cost as much as lookups
Index: TypeAlias = tuple[Int, ...]


class Bound(NamedTuple):
    """The tile was only computed below `upper` in dimension `dim`; part of a buffer's identity."""

    dim: int
    upper: Int


class Buffer(NamedTuple):
    """A tensor that stands in memory, row-major."""

    base: Operand
    shape: tuple[int, ...]
    element: str
    min_depth: int
    """Depth of the scope in which it was last written: reads are not hoisted out of that."""
    bounds: tuple[Bound, ...] = ()


class Guard(Protocol):
    """Leaves out of a mask the lanes that may not be accessed; see `reports`."""

    def within(
        self, operation: Operation, pointer: Lane, element: str, mask: Operand | None
    ) -> Operand: ...


@dataclass(eq=False, kw_only=True)
class Code:
    """Where the code of a kernel goes, and the memory that it has."""

    isa: Isa
    writer: Writer = field(default_factory=Writer)
    lanes: Lanes = field(init=False)
    min_depths: dict[Operation | None, int] = field(default_factory=dict)
    """Scope depth of the body of each region's operation."""
    scratch_bytes: int = 0
    constants: dict[str, str] = field(default_factory=dict)
    """Global constants: definition → name."""
    guard: Guard | None = None
    """What checks accesses, where they are checked."""
    _bin: Operand | None = None

    def __post_init__(self) -> None:
        self.lanes = Lanes(self.writer, 1, self.isa.function_lanes)

    @contextmanager
    def width(self, lanes: int) -> Iterator[None]:
        kept, self.lanes = self.lanes, Lanes(self.writer, lanes, self.isa.function_lanes)
        try:
            yield
        finally:
            self.lanes = kept

    def allocate(self, size_bytes: int) -> Operand:
        """Scratch memory of this thread, 64-byte aligned, for the length of the program."""
        offset = self.scratch_bytes
        self.scratch_bytes += -(-size_bytes // 64) * 64
        return self.writer.emit(f"getelementptr i8, ptr %scratch, i64 {offset}", "ptr")

    def bin(self) -> Operand:
        """Memory for stores that are masked off."""
        if self._bin is None:
            self._bin = self.allocate(64)
        return self._bin

    def min_depth(self, operation: Operation) -> int:
        return self.min_depths.get(operation.parent, 0)


def is_contiguous(pointer: Lane) -> bool:
    """Neighbouring lanes point at neighbouring elements."""
    return (
        isinstance(pointer, Pointer)
        and pointer.offset.stride == CONTIGUOUS
        and not pointer.offset.base.is_vector
    )


def has_steps(kernel: Code, pointer: Lane) -> bool:
    """Whether lanes point at elements at known distances."""
    return is_contiguous(pointer) or _steps_of(kernel, pointer) is not None


def is_covered(kernel: Code, pointer: Lane, mask: Operand) -> bool:
    """Whether a few vectors hold what the lanes point at, where a literal mask holds."""
    parted = _steps_of(kernel, pointer)
    if is_contiguous(pointer) or parted is None:
        return is_contiguous(pointer)
    taken = literal_lanes(mask) if is_vector(mask) else (1,) * kernel.lanes.width
    if taken is None or len(taken) != kernel.lanes.width:
        return False
    wanted = [step for step, is_taken in zip(parted[1], taken, strict=True) if is_taken]
    return bool(_cover(wanted, kernel.lanes.width)[1])


def _steps_of(kernel: Code, pointer: Lane) -> tuple[Linear, tuple[int, ...]] | None:
    """The offset that all lanes have in common and what each adds to it; None where that varies."""
    if not isinstance(pointer, Pointer) or is_vector(pointer.base):
        return None
    return kernel.lanes.steps_of(kernel.lanes.extend(pointer.offset, "i64"))


def _is_reversed(pointer: Pointer) -> bool:
    """Neighbouring lanes point at neighbouring elements, the last lane at the first of these."""
    return pointer.offset.stride == REVERSED and not pointer.offset.base.is_vector


def load(
    kernel: Code, operation: Operation, operands: Sequence[Lane], common: Operand | None = None
) -> Lane:
    """`tt.load(pointer, mask?, other?)` at the current lanes; common: what the mask asks of all
    lanes alike, where the operand `mask` is only what it asks of each."""
    sizes = operation.integers("operandSegmentSizes") or [1, 0, 0]
    rest = list(operands[1:])
    mask = kernel.lanes.operand(rest.pop(0)) if sizes[1] else None
    other = kernel.lanes.operand(rest.pop(0)) if sizes[2] else None
    kind = operation.results[0].type.element
    min_depth = kernel.min_depth(operation)
    if operation.integer("isVolatile"):
        # Another program may have written: read now, and anew each time.
        kernel.writer.effect("fence seq_cst")
        min_depth = kernel.writer.depth
    if kernel.guard is not None:
        mask = kernel.guard.within(operation, operands[0], kind, mask)
    if common is not None:
        return typed(
            kernel.lanes,
            _read_where(kernel, operands[0], kind, common, (mask, other), min_depth),
            kind,
        )
    found = read(kernel, operands[0], kind, mask, other, min_depth)
    return typed(kernel.lanes, found, kind)


_ZEROS = frozenset({"0", "0x0000000000000000", "0xH0000", "zeroinitializer"})


def _read_where(
    kernel: Code,
    pointer: Lane,
    element: str,
    common: Operand,
    rest: tuple[Operand | None, Operand | None],
    min_depth: int,
) -> Operand:
    """Elements in a few vectors of which all lanes or none are read, but for a mask of their own:
    else zeros that lie elsewhere, or none where elements lie far apart. Masked reads of addresses
    where there is no page take a processor hundreds of cycles, and this needs no mask."""
    lanes, (mask, other) = kernel.lanes, rest
    first, steps = pointer, tuple(range(lanes.width))
    parted = None if is_contiguous(pointer) else _steps_of(kernel, pointer)
    if parted is not None and isinstance(pointer, Pointer):
        first, steps = pointer.at(Int("i64", parted[0])), parted[1]
    if min(steps) < 0 or max(steps) >= lanes.width * MOST_PARTS:
        nothing = Operand("zeroinitializer", lanes.vector_type(LLVM_TYPES[element]))
        none = nothing if other is None else lanes.splat(other)
        sides = (lambda: [read(kernel, pointer, element, mask, other, min_depth)], lambda: [none])
        return kernel.writer.branch(common, sides)[0]
    nbytes = -(-(max(steps) + 1) * ITEMSIZE_BYTES[element] // 64) * 64
    base = Operand(zeros(kernel, nbytes), "ptr")
    address = select(lanes, common, lanes.operand(first), base)
    chosen = Pointer(address, lanes.stepped(steps, "i64"), element)
    found = read(kernel, chosen, element, mask, other, min_depth)
    if other is None or other.text in _ZEROS:
        return found
    return select(lanes, common, found, lanes.splat(other))


def read(
    kernel: Code,
    pointer: Lane,
    element: str,
    mask: Operand | None,
    other: Operand | None,
    min_depth: int,
) -> Operand:
    """Elements behind `pointer`; lanes that `mask` leaves out give `other` (or anything)."""
    lanes, writer = kernel.lanes, kernel.writer
    kind = LLVM_TYPES[element]
    if mask is not None and mask.text == "true":
        mask = None
    if mask is not None and mask.text == "false":
        is_integer = kind.startswith("i")
        return other or constant(0 if is_integer else "zeroinitializer", kind)
    uniform = isinstance(pointer, Pointer) and pointer.offset.is_uniform
    if isinstance(pointer, Operand):
        uniform = not is_vector(pointer)
    if uniform and (mask is None or not is_vector(mask)):
        return _read_scalar(kernel, lanes.operand(pointer), kind, mask, other, min_depth)
    vector = lanes.vector_type(kind)
    align = ITEMSIZE_BYTES[element]
    address = lanes.operand(pointer)
    if is_contiguous(pointer) and mask is None:
        return writer.load(f"load {vector}, {address}, align {align}", vector, [address], min_depth)
    filler = lanes.splat(other) if other is not None else Operand("zeroinitializer", vector)
    test = lanes.splat(mask) if mask is not None else lanes.splat(constant("true", "i1"))
    name = f"v{lanes.width}{type_suffix(kind)}"
    if is_contiguous(pointer):
        return _read_masked(kernel, address, element, test, filler, min_depth)
    if isinstance(pointer, Pointer) and _is_reversed(pointer):
        found = read(kernel, _from_last(pointer, lanes.width), element,
                     mask and _reversed(kernel, mask), other and _reversed(kernel, other),
                     min_depth)  # fmt: skip
        return _reversed(kernel, found)
    near = _read_near(kernel, pointer, element, mask, min_depth)
    if near is not None:
        is_whole = mask is None or other is None
        return near if is_whole else select(lanes, test, near, filler)
    address = lanes.splat(address)
    text = (
        f"call {vector} @llvm.masked.gather.{name}.v{lanes.width}p0"
        f"({address}, i32 {align}, {test}, {filler})"
    )
    return writer.load(text, vector, [address, test, filler], min_depth)


def _read_near(
    kernel: Code, pointer: Lane, element: str, mask: Operand | None, min_depth: int
) -> Operand | None:
    """Elements at known distances that a few vectors hold, read as these and put in order; None
    where they are not such. Nothing is read before the first element or behind the last one."""
    lanes, writer, kind = kernel.lanes, kernel.writer, LLVM_TYPES[element]
    taken = (1,) * lanes.width if mask is None else literal_lanes(mask)
    parted = _steps_of(kernel, pointer)
    if parted is None or taken is None or len(taken) != lanes.width or element == "i1":
        return None
    assert isinstance(pointer, Pointer)
    common, steps = parted
    wanted = [step for step, is_taken in zip(steps, taken, strict=True) if is_taken]
    size, starts = _cover(wanted, lanes.width)
    if not starts:
        return None
    address = lanes.advance(pointer.base, common.plus(Linear((), starts[0])), element)
    vector, align = f"<{size} x {kind}>", ITEMSIZE_BYTES[element]
    parts = []
    for start in starts:
        place = _moved(writer, address, kind, start - starts[0])
        text = f"load {vector}, {place}, align {align}"
        parts.append(writer.load(text, vector, [place], min_depth))
    # Lanes that the mask leaves out have an element that another takes: their own where one does,
    # so that masks which divide pairs among parts give one value.
    held = set(wanted)
    places = [step if step in held else wanted[0] for step in steps]
    part_of = [bisect_right(starts, place) - 1 for place in places]
    pairs = []
    for pair in range(0, len(parts), 2):
        order = [
            (part - pair) * size + place - starts[part] if part // 2 * 2 == pair else 0
            for part, place in zip(part_of, places, strict=True)
        ]
        pairs.append(shuffled(writer, parts[pair : pair + 2], order))
    if len(pairs) == 1:
        return pairs[0]
    order = [part // 2 * lanes.width + lane for lane, part in enumerate(part_of)]
    return shuffled(writer, pairs, order)


def _cover(wanted: Sequence[int], width: int) -> tuple[int, list[int]]:
    """The fewest vectors of one size between the least and the largest of some places that hold all
    of them, and where each begins; none where they would be more than MOST_PARTS."""
    size, found = width, (0, [0] * (MOST_PARTS + 1))
    while wanted and size:
        starts: list[int] = []
        for place in sorted(set(wanted)):
            if not starts or place >= starts[-1] + size:
                starts.append(min(place, max(wanted) + 1 - size))
        if starts[0] >= min(wanted) and len(starts) < len(found[1]):
            found = size, starts
        size //= 2
    return found if found[0] else (0, [])


def _from_last(pointer: Pointer, width: int) -> Pointer:
    """The same elements from the last lane's on."""
    base = pointer.offset.base.plus(Linear((), width - 1), -1)
    return pointer.at(pointer.offset._replace(base=base, stride=CONTIGUOUS))


def _reversed(kernel: Code, value: Operand) -> Operand:
    if not is_vector(value) or kernel.lanes.uniform_source(value) is not None:
        return value
    return shuffled(kernel.writer, [value], range(kernel.lanes.width - 1, -1, -1))


def _read_masked(
    kernel: Code, address: Operand, element: str, test: Operand, filler: Operand, min_depth: int
) -> Operand:
    """Neighbouring elements from `address` on where `test` holds, in reads of legal width."""
    writer, width = kernel.writer, kernel.lanes.width
    kind, align, size = LLVM_TYPES[element], ITEMSIZE_BYTES[element], _masked_lanes(kernel, element)
    vector = f"<{size} x {kind}>"
    parts = []
    for start in range(0, width, size):
        mask, other = (_part(writer, each, start, size) for each in (test, filler))
        place = _moved(writer, address, kind, start)
        name = _access_by_sign(kernel, "maskload", element, size)
        if name:
            signs = _signs(writer, mask, align)
            text = f"call {vector} @{name}({place}, {signs})"
            found = writer.load(text, vector, [place, signs], min_depth)
            is_filled = other.text == "zeroinitializer"  # as the processor does
            parts.append(found if is_filled else select(kernel.lanes, mask, found, other))
            continue
        text = f"call {vector} @llvm.masked.load.v{size}{type_suffix(kind)}.p0"
        text += f"({place}, i32 {align}, {mask}, {other})"
        parts.append(writer.load(text, vector, [place, mask, other], min_depth))
    while len(parts) > 1:
        size *= 2
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [shuffled(writer, pair, range(size)) for pair in pairs]
    return parts[0]


def _write_masked(
    kernel: Code, address: Operand, element: str, value: Operand, test: Operand
) -> None:
    """Neighbouring elements from `address` on where `test` holds, in writes of legal width."""
    writer, width = kernel.writer, kernel.lanes.width
    kind, align, size = LLVM_TYPES[element], ITEMSIZE_BYTES[element], _masked_lanes(kernel, element)
    for start in range(0, width, size):
        part, mask = (_part(writer, each, start, size) for each in (value, test))
        place = _moved(writer, address, kind, start)
        name = _access_by_sign(kernel, "maskstore", element, size)
        if name:
            writer.effect(f"call void @{name}({place}, {_signs(writer, mask, align)}, {part})")
            continue
        text = f"call void @llvm.masked.store.v{size}{type_suffix(kind)}.p0"
        writer.effect(f"{text}({part}, {place}, i32 {align}, {mask})")


# Element → the instruction set and the suffix of LLVM's functions for accesses by signs.
_BY_SIGN = {"f32": "avx.{}.ps", "f64": "avx.{}.pd", "i32": "avx2.{}.d", "i64": "avx2.{}.q"}


def _access_by_sign(kernel: Code, access: str, element: str, size: int) -> str:
    """LLVM's function of the processor's own access to so many elements; empty: there is none."""
    bits = 8 * ITEMSIZE_BYTES[element] * size
    if not kernel.isa.masks_by_sign or element not in _BY_SIGN or bits not in (128, 256):
        return ""
    return f"llvm.x86.{_BY_SIGN[element].format(access)}{'.256' if bits == 256 else ''}"


def _signs(writer: Writer, mask: Operand, itemsize_bytes: int) -> Operand:
    """Integers as wide as the elements, below zero where the mask holds.

    Not -1: LLVM would make its own general access of that.
    """
    count, kind = mask.type[1 : mask.type.index(" ")], f"i{8 * itemsize_bytes}"
    vector, lowest = f"<{count} x {kind}>", -(1 << (8 * itemsize_bytes - 1))
    text = f"select {mask}, {vector} splat ({kind} {lowest}), {vector} zeroinitializer"
    return writer.emit(text, vector, [mask])


def _masked_lanes(kernel: Code, element: str) -> int:
    """Elements of one read or write with a mask."""
    width, nbytes = kernel.lanes.width, ITEMSIZE_BYTES[element]
    if nbytes < 4:  # LLVM takes these one by one
        return width
    return min(width, max(1, kernel.isa.widest_masked_bits // (8 * nbytes)))


def _moved(writer: Writer, address: Operand, kind: str, elements: int) -> Operand:
    """The address so many elements further."""
    if not elements:
        return address
    return writer.emit(f"getelementptr {kind}, {address}, i64 {elements}", "ptr", [address])


def _part(writer: Writer, whole: Operand, start: int, size: int) -> Operand:
    """`size` lanes of a vector."""
    count, _, kind = whole.type.strip("<>").partition(" x ")
    if int(count) == size:
        return whole
    if whole.text == "zeroinitializer":
        return Operand(whole.text, f"<{size} x {kind}>")
    return shuffled(writer, [whole], range(start, start + size))


def _read_scalar(
    kernel: Code,
    address: Operand,
    kind: str,
    mask: Operand | None,
    other: Operand | None,
    min_depth: int,
) -> Operand:
    if mask is None:
        return kernel.writer.load(f"load {kind}, {address}", kind, [address], min_depth)
    # a masked-off address may not be touched: read a zero instead of branching
    zero = Operand(zeros(kernel), "ptr")
    safe = select(kernel.lanes, mask, address, zero)
    found = kernel.writer.load(f"load {kind}, {safe}", kind, [safe], min_depth)
    return found if other is None else select(kernel.lanes, mask, found, other)


def zeros(kernel: Code, nbytes: int = 8) -> str:
    name = "@zeros" if nbytes == 8 else f"@zeros{nbytes}"
    definition = f"[{nbytes} x i8] zeroinitializer, align {min(64, nbytes)}"
    return kernel.constants.setdefault(definition, name)


def write(kernel: Code, pointer: Lane, value: Operand, element: str, mask: Operand | None) -> None:
    """Stores the lanes of `value` that `mask` lets through."""
    lanes, writer = kernel.lanes, kernel.writer
    kind = LLVM_TYPES[element]
    if mask is not None and mask.text == "true":
        mask = None
    if mask is not None and mask.text == "false":
        return
    address = lanes.operand(pointer)
    align = ITEMSIZE_BYTES[element]
    if lanes.width == 1:
        if mask is not None:  # a masked-off store goes to scratch that nobody reads
            address = select(lanes, mask, address, kernel.bin())
        writer.effect(f"store {value}, {address}, align {align}")
        return
    value = lanes.splat(value)
    if is_contiguous(pointer) and mask is None:
        writer.effect(f"store {value}, {address}, align {align}")
        return
    test = lanes.splat(mask) if mask is not None else lanes.splat(constant("true", "i1"))
    if is_contiguous(pointer):
        _write_masked(kernel, address, element, value, test)
        return
    if not is_vector(address):
        _write_last(kernel, address, value, align, test)
        return
    name = f"v{lanes.width}{type_suffix(kind)}"
    writer.effect(
        f"call void @llvm.masked.scatter.{name}.v{lanes.width}p0"
        f"({value}, {address}, i32 {align}, {test})"
    )


def _write_last(kernel: Code, address: Operand, value: Operand, align: int, test: Operand) -> None:
    """Stores the last lane that the mask lets through, where all lanes name one address; rarely one
    is, such as an index that is wrong."""
    lanes, writer = kernel.lanes, kernel.writer
    count, kind = lanes.width, f"i{lanes.width}"
    element = value.type.partition(" x ")[2].rstrip(">")
    bits = writer.emit(f"bitcast {test} to {kind}", kind, [test])
    is_any = writer.emit(f"icmp ne {bits}, 0", "i1", [bits])

    def store() -> list[Operand]:
        # The writer puts what is computed before the branch, so that it must be some lane's number
        # where the mask lets none through, too: else the lane is read from anywhere.
        above = writer.emit(f"call {kind} @llvm.ctlz.{kind}({bits}, i1 false)", kind, [bits])
        below = writer.emit(f"sub {kind} {count - 1}, {above.text}", kind, [above])
        last = writer.emit(f"and {below}, {count - 1}", kind, [below])
        chosen = writer.emit(f"extractelement {value}, {last}", element, [value, last])
        writer.effect(f"store {chosen}, {address}, align {align}")
        return []

    writer.branch(is_any, [store, list])


# ---------------------------------------------------------------------- buffers


def stored_element(element: str) -> str:
    """Element type in a buffer: booleans take a byte."""
    return "i8" if element == "i1" else element


def buffer_pointer(kernel: Code, buffer: Buffer, index: Index) -> Pointer:
    flat = integer(0, "i64")
    for size, place in zip(buffer.shape, index, strict=True):
        flat = kernel.lanes.multiply(flat, integer(size, "i64"))
        flat = kernel.lanes.add(flat, kernel.lanes.extend(place, "i64"))
    return Pointer(buffer.base, flat, stored_element(buffer.element))


def read_buffer(kernel: Code, buffer: Buffer, index: Index) -> Lane:
    pointer, element = buffer_pointer(kernel, buffer, index), stored_element(buffer.element)
    if pointer.offset.is_uniform and element == "i32" and prod(buffer.shape) < FEWEST_PLAIN:
        found = _read_apart(kernel, pointer, element, buffer.min_depth)
    else:
        found = read(kernel, pointer, element, None, None, buffer.min_depth)
    if buffer.element == "i1":
        zero = constant(0, "i8")
        return compare(kernel.lanes, "icmp ne", found, zero)
    return typed(kernel.lanes, found, buffer.element)


def _read_apart(kernel: Code, pointer: Pointer, element: str, min_depth: int) -> Operand:
    """One of few places of i32, by a load that LLVM's code generator does not take out of the
    register of the vector that was stored there: of <2 x i32> it took both elements as an i64."""
    address, kind = kernel.lanes.operand(pointer), LLVM_TYPES[element]
    text = f"load atomic {kind}, {address} unordered, align {ITEMSIZE_BYTES[element]}"
    return kernel.writer.load(text, kind, [address], min_depth)


def write_buffer(kernel: Code, buffer: Buffer, index: Index, lane: Lane) -> None:
    value = kernel.lanes.values(lane)
    if buffer.element == "i1":
        value = (
            kernel.lanes.cast("zext", value, "i8")
            if not is_literal(value) or is_vector(value)
            else (constant(int(value.text == "true"), "i8"))
        )
    write(
        kernel, buffer_pointer(kernel, buffer, index), value, stored_element(buffer.element), None
    )


def read_table(kernel: Code, table: Dense, element: str, flat: Int) -> Lane:
    """An element of a tensor constant that differs from place to place."""
    kind = LLVM_TYPES[element]
    items = ", ".join(
        f"{kind} {float_constant(float(x), element).text if element[0] in 'fb' else int(x)}"
        for x in table.values
    )
    definition = f"[{len(table.values)} x {kind}] [{items}], align 64"
    name = kernel.constants.setdefault(definition, f"@table{len(kernel.constants)}")
    pointer = Pointer(Operand(name, "ptr"), kernel.lanes.extend(flat, "i64"), element)
    return typed(kernel.lanes, read(kernel, pointer, element, None, None, 0), element)
