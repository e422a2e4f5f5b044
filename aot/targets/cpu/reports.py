"""What a kernel reports to the host: elements that it prints, assertions that fail, accesses beyond
a tensor.

A launch passes a buffer that begins with three numbers of 64 bits: how many reports were made, how
many there is room for, and where in the buffer the first stands. A report is 32 bytes:

    site, x, y, z : i32      place, value : i64

`site` is a row of the kernel's sites, which say what the place and the value are. Behind the header
stand the first address and the bytes of what each argument points into, where accesses are checked.
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
SPAN_BYTES = 16
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

    def __init__(self, kernel: Kernel, arguments: Sequence[Value], slots: Sequence[int]) -> None:
        """`slots` are the places of the kernel's pointers among its arguments."""
        self.kernel = kernel
        self.slots = slots
        self.known = {value: at for at, value in enumerate(arguments) if value.type.is_pointer}
        self.sites: dict[Operation, int] = {}

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
        fits = [self._fits(address, x, nbytes) for x in ([slot] if slot >= 0 else self.slots)]
        inside = fits[0] if fits else constant("true", "i1")
        for each in fits[1:]:
            inside = lanes.binary("or", inside, each)
        outside = lanes.binary("and", wanted, lanes.binary("xor", inside, constant("true", "i1")))
        self._report(operation, nbytes, slot, outside, address)
        return lanes.binary("and", wanted, inside)

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
        if operation not in self.sites:
            facts = {"kind": "access", "access": ACCESSES[operation.name], "nbytes": nbytes}
            self.sites[operation] = _site(kernel, operation, **facts)
        first = address
        if is_vector(address):
            outside = kernel.lanes.splat(outside)
            lane = first_lane(kernel, outside)
            text = f"extractelement {address}, {lane}"
            first = kernel.writer.emit(text, "i64", [address, lane])
        given = f"ptr %report, i32 {self.sites[operation]}, i32 %x, i32 %y, i32 %z"
        is_outside = is_any(kernel, outside)
        kernel.writer.effect(f"call void @report_if({is_outside}, {given}, i64 {slot}, {first})")
