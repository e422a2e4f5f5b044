"""Integer division that never traps: by 0, or of the least number by -1.

Lanes that a mask leaves out hold zeros, and a trap in one of them would end the process. On a GPU
such a quotient is unspecified, so it may be anything: here the divisor is 1 instead.
"""

from __future__ import annotations

from aotc.aot.targets.cpu.writer import Operand, Writer


def divide(writer: Writer, name: str, a: Operand, b: Operand) -> Operand:
    """`sdiv`, `udiv`, `srem` or `urem` of operands of one type."""
    is_vector = b.type.startswith("<")
    element = b.type[b.type.index(" x ") + 3 : -1] if is_vector else b.type
    flags = b.type.replace(element, "i1")

    def literal(value: int) -> str:
        return f"splat ({element} {value})" if is_vector else str(value)

    def equals(value: int) -> Operand:
        return writer.emit(f"icmp eq {b.type} {b.text}, {literal(value)}", flags, [b])

    unfit = equals(0)
    if name in ("sdiv", "srem"):
        is_minus_one = equals(-1)
        unfit = writer.emit(f"or {flags} {unfit.text}, {is_minus_one.text}", flags, [b])
    divisor = writer.emit(
        f"select {flags} {unfit.text}, {b.type} {literal(1)}, {b.type} {b.text}", b.type, [unfit, b]
    )
    made = writer.emit(f"{name} {a.type} {a.text}, {divisor.text}", a.type, [a, divisor])
    if name != "sdiv":  # a remainder by -1 is 0, as by 1
        return made
    negative = writer.emit(f"sub {a.type} {literal(0)}, {a.text}", a.type, [a])
    return writer.emit(
        f"select {flags} {is_minus_one.text}, {a.type} {negative.text}, {a.type} {made.text}",
        a.type,
        [is_minus_one, negative, made],
    )
