"""What a kernel reports to the host: elements that it prints, assertions that fail, accesses beyond
a tensor, accesses of two programs to one place.

A launch passes a buffer that begins with three numbers of 64 bits: how many reports were made, how
many there is room for, and where in the buffer the first stands. A report is 32 bytes:

    site, x, y, z : i32      place, value : i64

`site` is a row of the kernel's sites, which say what the place and the value are. Behind the header
stand the first address and the bytes of what each argument points into, where accesses are checked,
and where its history is, or 0: for each byte the last access that wrote there, the first that read
there, and the first of another program that did. An access is a number of 64 bits:

    1, is atomic : 1 bit each      site : 18 bits      x : 20      y, z : 12 each
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotc.aot.targets.cpu import memory, root_ops, tiles
from aotc.aot.targets.cpu.evaluate import Kernel, linear_index
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES, as_f32, compare, select
from aotc.aot.targets.cpu.linear import Lane, is_vector
from aotc.aot.targets.cpu.memory import Index
from aotc.aot.targets.cpu.ttir import Function, Operation, Value, unsupported
from aotc.aot.targets.cpu.usage import root_of
from aotc.aot.targets.cpu.writer import Operand, constant

ARGUMENT = ", ptr %report"
REPORT_BYTES = 32
HEADER_BYTES = 24
SPAN_BYTES = 24
HISTORY_BYTES = 24  # for each byte of a tensor
SITE_BITS, X_BITS, Y_BITS, Z_BITS = 18, 20, 12, 12
ATOMICS = ("tt.atomic_rmw", "tt.atomic_cas")
ACCESSES = {
    "tt.load": "reads", "tt.store": "writes",
    "tt.atomic_rmw": "changes", "tt.atomic_cas": "changes",
}  # fmt: skip
OPERATIONS = ("tt.print", "tt.assert")
FUNCTION = f"""\
define internal void @report(ptr %report, i32 %site, i32 %x, i32 %y, i32 %z, i64 %place, \
i64 %value) #0 {{
entry:
  %number = atomicrmw add ptr %report, i64 1 monotonic
  %room.at = getelementptr i64, ptr %report, i64 1
  %room = load i64, ptr %room.at
  %fits = icmp ult i64 %number, %room
  br i1 %fits, label %write, label %done
write:
  %first.at = getelementptr i64, ptr %report, i64 2
  %first = load i64, ptr %first.at
  %skip = mul i64 %number, {REPORT_BYTES}
  %from = add i64 %skip, %first
  %at = getelementptr i8, ptr %report, i64 %from
  store i32 %site, ptr %at
  %x.at = getelementptr i32, ptr %at, i64 1
  store i32 %x, ptr %x.at
  %y.at = getelementptr i32, ptr %at, i64 2
  store i32 %y, ptr %y.at
  %z.at = getelementptr i32, ptr %at, i64 3
  store i32 %z, ptr %z.at
  %place.at = getelementptr i64, ptr %at, i64 2
  store i64 %place, ptr %place.at
  %value.at = getelementptr i64, ptr %at, i64 3
  store i64 %value, ptr %value.at
  br label %done
done:
  ret void
}}

define internal void @report_if(i1 %is, ptr %report, i32 %site, i32 %x, i32 %y, i32 %z, \
i64 %place, i64 %value) #0 {{
entry:
  br i1 %is, label %write, label %done
write:
  call void @report(ptr %report, i32 %site, i32 %x, i32 %y, i32 %z, i64 %place, i64 %value)
  br label %done
done:
  ret void
}}"""

HISTORY = f"""\
define internal void @clash(ptr %report, i32 %site, i32 %x, i32 %y, i32 %z, i64 %address, i64 %me, \
i64 %other) #0 {{
entry:
  %is.access = icmp ne i64 %other, 0
  %differs = xor i64 %me, %other
  %program = lshr i64 %differs, {SITE_BITS + 2}
  %is.another = icmp ne i64 %program, 0
  %both = and i64 %me, %other
  %atomic = and i64 %both, 2
  %is.plain = icmp eq i64 %atomic, 0
  %counts = and i1 %is.another, %is.plain
  %is = and i1 %is.access, %counts
  call void @report_if(i1 %is, ptr %report, i32 %site, i32 %x, i32 %y, i32 %z, i64 %address, \
i64 %other)
  ret void
}}

define internal void @touch(i1 %is, ptr %report, i32 %site, i32 %x, i32 %y, i32 %z, i64 %slot, \
i64 %address, i1 %writes, i64 %atomic) #0 noinline {{
entry:
  br i1 %is, label %look, label %done
look:
  %slot.skip = mul i64 %slot, {SPAN_BYTES}
  %slot.from = add i64 %slot.skip, {HEADER_BYTES}
  %span = getelementptr i8, ptr %report, i64 %slot.from
  %start = load i64, ptr %span
  %history.at = getelementptr i8, ptr %span, i64 16
  %history = load ptr, ptr %history.at
  %is.kept = icmp ne ptr %history, null
  br i1 %is.kept, label %mark, label %done
mark:
  %place = sub i64 %address, %start
  %skip = mul i64 %place, {HISTORY_BYTES}
  %written = getelementptr i8, ptr %history, i64 %skip
  %read = getelementptr i64, ptr %written, i64 1
  %read.too = getelementptr i64, ptr %written, i64 2
  %x.wide = zext i32 %x to i64
  %y.wide = zext i32 %y to i64
  %z.wide = zext i32 %z to i64
  %x.low = and i64 %x.wide, {(1 << X_BITS) - 1}
  %y.low = and i64 %y.wide, {(1 << Y_BITS) - 1}
  %x.at = shl i64 %x.low, {SITE_BITS + 2}
  %y.at = shl i64 %y.low, {SITE_BITS + X_BITS + 2}
  %z.at = shl i64 %z.wide, {SITE_BITS + X_BITS + Y_BITS + 2}
  %site.wide = zext i32 %site to i64
  %site.at = shl i64 %site.wide, 2
  %xy = or i64 %x.at, %y.at
  %xyz = or i64 %xy, %z.at
  %flags = or i64 %atomic, 1
  %known = or i64 %site.at, %flags
  %me = or i64 %xyz, %known
  br i1 %writes, label %write, label %note
write:
  %before = atomicrmw xchg ptr %written, i64 %me seq_cst
  call void @clash(ptr %report, i32 %site, i32 %x, i32 %y, i32 %z, i64 %address, i64 %me, \
i64 %before)
  %reader = load atomic i64, ptr %read seq_cst, align 8
  call void @clash(ptr %report, i32 %site, i32 %x, i32 %y, i32 %z, i64 %address, i64 %me, \
i64 %reader)
  %reader.too = load atomic i64, ptr %read.too seq_cst, align 8
  call void @clash(ptr %report, i32 %site, i32 %x, i32 %y, i32 %z, i64 %address, i64 %me, \
i64 %reader.too)
  br label %done
note:
  %taken = cmpxchg ptr %read, i64 0, i64 %me seq_cst seq_cst
  %first = extractvalue {{ i64, i1 }} %taken, 0
  %differs = xor i64 %first, %me
  %program = lshr i64 %differs, {SITE_BITS + 2}
  %is.another = icmp ne i64 %program, 0
  %is.taken = icmp ne i64 %first, 0
  %is.second = and i1 %is.taken, %is.another
  br i1 %is.second, label %note.too, label %compare
note.too:
  %taken.too = cmpxchg ptr %read.too, i64 0, i64 %me seq_cst seq_cst
  br label %compare
compare:
  %writer = load atomic i64, ptr %written seq_cst, align 8
  call void @clash(ptr %report, i32 %site, i32 %x, i32 %y, i32 %z, i64 %address, i64 %me, \
i64 %writer)
  br label %done
done:
  ret void
}}"""


def waits_for_others(function: Function) -> bool:
    """Whether a result of an atomic operation is used: it may order what programs do."""
    functions = [function, *function.functions.values()]
    operations = (op for each in functions for op in each.walk() if op.name in ATOMICS)
    return any(result.uses for op in operations for result in op.results)


def are_needed(function: Function) -> bool:
    """Whether the function, or one that it may call, prints or asserts."""
    functions = [function, *function.functions.values()]
    return any(op.name in OPERATIONS for each in functions for op in each.walk())


def _site(kernel: Kernel, operation: Operation, **facts: Any) -> int:
    if kernel.sites is None:
        hint = ": compile the kernel without `debug=True`, which leaves device assertions out"
        message = operation.attributes.get("message")
        if operation.name == "tt.assert":
            raise unsupported(f"operation `tt.assert` (`{message}`) in a bundle", hint)
        raise unsupported(f"operation `{operation.name}` in a bundle")
    kernel.sites.append({"line": operation.line, **facts})
    return len(kernel.sites) - 1


def _report(kernel: Kernel, site: int, place: Operand, value: Operand) -> None:
    given = f"ptr %report, i32 {site}, i32 %x, i32 %y, i32 %z, {place}, {value}"
    kernel.writer.effect(f"call void @report({given})")


# ----------------------------------------------------------------------- prints


def print_(kernel: Kernel, operation: Operation) -> None:
    """`tt.print`: a report for each element of each operand, or one where there are none."""
    signed = operation.integers("isSigned")
    nothing = constant(0, "i64")
    common = {
        "kind": "print",
        "prefix": str(operation.attributes.get("prefix", "")),
        "is_hex": bool(operation.attributes.get("hex", False)),
        "operands": len(operation.operands),
    }
    if not operation.operands:
        _report(kernel, _site(kernel, operation, **common), nothing, nothing)
    for number, value in enumerate(operation.operands):
        is_signed = not signed or bool(signed[number])
        facts = {
            "operand": number, "type": value.type.element, "is_signed": is_signed,
            "shape": list(value.type.shape or ()),
        }  # fmt: skip
        site = _site(kernel, operation, **common, **facts)
        _print_operand(kernel, site, value, is_signed=is_signed)


def _print_operand(kernel: Kernel, site: int, value: Value, *, is_signed: bool) -> None:
    def body(index: Index) -> None:
        lane = kernel.at(value, index)
        bits = _as_word(kernel, lane, value.type.element, is_signed=is_signed)
        place = linear_index(kernel.lanes, value.type.shape or (), index)
        _report(kernel, site, kernel.lanes.operand(kernel.lanes.extend(place, "i64")), bits)

    root_ops.each_element(kernel, value.type.shape or (), body)


def _as_word(kernel: Kernel, lane: Lane, element: str, *, is_signed: bool) -> Operand:
    """A scalar in 64 bits: floats as f64, integers widened."""
    lanes, operand = kernel.lanes, kernel.lanes.operand(lane)
    if element == "ptr":
        return lanes.cast("ptrtoint", operand, "i64")
    if element[0] in "fb":
        wide = as_f32(lanes, operand, element)
        wide = wide if element == "f64" else lanes.cast("fpext", wide, "double")
        return lanes.cast("bitcast", wide, "i64")
    if operand.text in ("true", "false"):
        return constant(int(operand.text == "true"), "i64")
    return lanes.cast("sext" if is_signed and element != "i1" else "zext", operand, "i64")


# ------------------------------------------------------------------- assertions


def assert_(kernel: Kernel, operation: Operation) -> None:
    """`tt.assert`: the last element that is false is reported, and the program ends there."""
    condition = operation.operands[0]
    shape = list(condition.type.shape or ())
    message = str(operation.attributes.get("message", ""))
    site = _site(kernel, operation, kind="assert", message=message, shape=shape)
    cell = kernel.allocate(64)
    kernel.writer.effect(f"store i64 0, {cell}")

    def body(index: Index) -> None:
        bad = _negated(kernel, kernel.lanes.operand(kernel.at(condition, index)))
        flat = kernel.lanes.extend(linear_index(kernel.lanes, tuple(shape), index), "i64")
        lane = first_lane(kernel, bad)
        base = kernel.lanes.sum(flat.base, "i64")
        stride = kernel.lanes.sum(flat.stride, "i64")
        place = kernel.lanes.binary("add", base, kernel.lanes.binary("mul", stride, lane))
        place = kernel.lanes.binary("add", place, constant(1, "i64"))
        old = kernel.writer.effect(f"load i64, {cell}", "i64")
        kept = select(kernel.lanes, is_any(kernel, bad), place, old)
        kernel.writer.effect(f"store {kept}, {cell}")

    if shape:
        lane_dim = tiles.lane_dimension(kernel, condition)
        tiles.run(kernel, shape, body, lane_dim=lane_dim)
    else:
        body(())
    found = kernel.writer.effect(f"load i64, {cell}", "i64")
    _end_if(kernel, found, lambda: _report(kernel, site, found, constant(0, "i64")))


def assert_lanes(kernel: Kernel, operation: Operation, condition: Lane) -> None:
    """`tt.assert` in a combination, as a sum of integers has one of its overflow: where a lane is
    false that is reported, and the program ends there."""
    message = str(operation.attributes.get("message", ""))
    site = _site(kernel, operation, kind="assert", message=message, shape=[])
    is_failed = is_any(kernel, _negated(kernel, kernel.lanes.operand(condition)))
    found = kernel.lanes.cast("zext", is_failed, "i64")
    _end_if(kernel, found, lambda: _report(kernel, site, found, constant(0, "i64")))


def _end_if(kernel: Kernel, found: Operand, write: Callable[[], None]) -> None:
    """Where `found` is not 0: writes the report and ends the program, or the function's part."""
    writer = kernel.writer
    failed = writer.effect(f"icmp ne {found}, 0", "i1")
    name = writer.fresh("failed")
    writer.effect(f"br i1 {failed.text}, label %{name}, label %{name}.not")
    writer.scope.lines.append(f"{name}:")
    write()
    writer.effect(f"br label %{name}.not" if kernel.is_routine else "br label %done")
    writer.scope.lines.append(f"{name}.not:")
    writer.scope.label = f"{name}.not"
    writer.scope.may_skip = True


def _negated(kernel: Kernel, flags: Operand) -> Operand:
    return kernel.lanes.binary("xor", kernel.lanes.splat(flags), constant("true", "i1"))


def _mask(kernel: Kernel, flags: Operand) -> Operand:
    """Flags as the bits of one integer."""
    if not is_vector(flags):
        return kernel.lanes.cast("zext", flags, "i64") if flags.text[0] == "%" else flags
    kind = f"i{kernel.lanes.width}"
    bits = kernel.writer.emit(f"bitcast {flags} to {kind}", kind, [flags])
    return kernel.lanes.cast("zext", bits, "i64")


def is_any(kernel: Kernel, flags: Operand) -> Operand:
    """Whether any lane is true."""
    if not is_vector(flags):
        return flags
    bits = _mask(kernel, flags)
    return kernel.writer.emit(f"icmp ne {bits}, 0", "i1", [bits])


def first_lane(kernel: Kernel, flags: Operand) -> Operand:
    """The first lane that is true, of those that there are."""
    if not is_vector(flags):
        return constant(0, "i64")
    bits = _mask(kernel, flags)
    found = kernel.writer.call("llvm.cttz.i64", "i64", [bits, constant("false", "i1")])
    last = constant(kernel.lanes.width - 1, "i64")
    return kernel.writer.call("llvm.umin.i64", "i64", [found, last])


# --------------------------------------------------------------------- accesses


class Guard:
    """Leaves out of a mask the lanes whose access is beyond what its pointer points into."""

    def __init__(
        self,
        kernel: Kernel,
        arguments: Sequence[Value],
        slots: Sequence[int],
        *,
        checks_races: bool,
    ) -> None:
        """`slots` are the places of the kernel's pointers among its arguments."""
        self.kernel = kernel
        self.slots = slots
        self.checks_races = checks_races
        self.known = {value: at for at, value in enumerate(arguments) if value.type.is_pointer}
        self.sites: dict[tuple[Operation, str], int] = {}

    def within(
        self, operation: Operation, pointer: Lane, element: str, mask: Operand | None
    ) -> Operand:
        """The lanes of `mask` that may be accessed; the first of the others is reported."""
        lanes = self.kernel.lanes
        wanted = constant("true", "i1") if mask is None else mask
        if wanted.text == "false":
            return wanted
        nbytes = ITEMSIZE_BYTES[element]
        address = self._addresses(pointer, nbytes)
        slot = self.known.get(root_of(operation.operands[0]), -1)
        slots = [slot] if slot >= 0 else self.slots
        fits = [self._fits(address, x, nbytes) for x in slots]
        inside = fits[0] if fits else constant("true", "i1")
        for each in fits[1:]:
            inside = lanes.binary("or", inside, each)
        outside = lanes.binary("and", wanted, lanes.binary("xor", inside, constant("true", "i1")))
        self._report(operation, nbytes, slot, outside, address)
        if self.checks_races:
            for place, fit in zip(slots, fits, strict=True):
                self._touch(operation, nbytes, place, lanes.binary("and", wanted, fit), address)
        return lanes.binary("and", wanted, inside)

    def _touch(
        self, operation: Operation, nbytes: int, slot: int, touched: Operand, address: Operand
    ) -> None:
        """Notes each lane's access in its place's history, which reports what it races with."""
        kernel, lanes = self.kernel, self.kernel.lanes
        site = self._site(operation, "race", nbytes)
        given = f"ptr %report, i32 {site}, i32 %x, i32 %y, i32 %z, i64 {slot}"
        is_write = "false" if operation.name == "tt.load" else "true"
        kind = f"i1 {is_write}, i64 {2 if operation.name in ATOMICS else 0}"
        if not is_vector(address):
            is_touched = is_any(kernel, touched)
            kernel.writer.effect(f"call void @touch({is_touched}, {given}, {address}, {kind})")
            return
        touched = lanes.splat(touched)
        for lane in range(lanes.width):
            text = f"extractelement {touched}, i64 {lane}"
            is_touched = kernel.writer.emit(text, "i1", [touched])
            each = kernel.writer.emit(f"extractelement {address}, i64 {lane}", "i64", [address])
            kernel.writer.effect(f"call void @touch({is_touched}, {given}, {each}, {kind})")

    def _site(self, operation: Operation, kind: str, nbytes: int) -> int:
        if (operation, kind) not in self.sites:
            facts = {"kind": kind, "access": ACCESSES[operation.name], "nbytes": nbytes}
            self.sites[operation, kind] = _site(self.kernel, operation, **facts)
        return self.sites[operation, kind]

    def _addresses(self, pointer: Lane, nbytes: int) -> Operand:
        lanes = self.kernel.lanes
        first = lanes.cast("ptrtoint", lanes.operand(pointer), "i64")
        if lanes.width == 1 or not memory.is_contiguous(pointer):
            return first
        kind = lanes.vector_type("i64")
        steps = Operand(lanes.literal([nbytes * i for i in range(lanes.width)], "i64"), kind)
        return lanes.binary("add", lanes.splat(first), steps)

    def _fits(self, address: Operand, slot: int, nbytes: int) -> Operand:
        """address − start < bytes and address − start + nbytes ≤ bytes, without signs."""
        lanes, writer = self.kernel.lanes, self.kernel.writer
        span = []
        for place in (0, 8):
            offset = HEADER_BYTES + SPAN_BYTES * slot + place
            at = writer.emit(f"getelementptr i8, ptr %report, i64 {offset}", "ptr")
            span.append(writer.load(f"load i64, {at}", "i64", [at], 0))
        offset_of = lanes.binary("sub", address, span[0])
        end = lanes.binary("add", offset_of, constant(nbytes, "i64"))
        is_in = compare(lanes, "icmp ult", offset_of, span[1])
        return lanes.binary("and", is_in, compare(lanes, "icmp ule", end, span[1]))

    def _report(
        self, operation: Operation, nbytes: int, slot: int, outside: Operand, address: Operand
    ) -> None:
        kernel = self.kernel
        site = self._site(operation, "access", nbytes)
        first = address
        if is_vector(address):
            outside = kernel.lanes.splat(outside)
            lane = first_lane(kernel, outside)
            text = f"extractelement {address}, {lane}"
            first = kernel.writer.emit(text, "i64", [address, lane])
        given = f"ptr %report, i32 {site}, i32 %x, i32 %y, i32 %z"
        is_outside = is_any(kernel, outside)
        kernel.writer.effect(f"call void @report_if({is_outside}, {given}, i64 {slot}, {first})")
