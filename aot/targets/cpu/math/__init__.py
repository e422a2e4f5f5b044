"""Vector math as LLVM IR text: functions of f32 and f64 without a library.

`functions(lanes, names)` defines `@aotc.<name>.v16f32(<16 x float>) -> <16 x float>` (one lane:
`@aotc.<name>.f32(float) -> float`), internal and always inlined. `FUNCTIONS` is the table of what
there is, by element. Subnormal inputs and results, infinities, NaN and signs follow IEEE 754 unless
a row's note says otherwise. The results need round-to-nearest and no flush-to-zero, the state in
which a thread starts.
"""

from __future__ import annotations

from collections.abc import Iterable

from aotc.aot.targets.cpu.math.angles import WIDE
from aotc.aot.targets.cpu.math.device import DEVICE
from aotc.aot.targets.cpu.math.functions import FUNCTIONS
from aotc.aot.targets.cpu.math.vector_ir import DeviceFunction, Text, Value, mangled

DEVICE_FUNCTION = "device"  # in place of an element: the function is one of `DEVICE`
WIDTHS = (1, 8, 16, 32)  # lanes; those that an instruction set takes: `Isa.function_lanes`


def symbol(name: str, lanes: int, element: str = "float") -> str:
    """The function's name in LLVM IR without `@`: `aotc.exp.v16f32`, `aotc.popc.v16device`."""
    return f"aotc.{name}.{mangled(element, lanes)}"


def functions(lanes: int, names: Iterable[str] = FUNCTIONS["float"], element: str = "float") -> str:
    """LLVM IR definitions of the named functions for lanes of `WIDTHS`; KeyError on other names."""
    return module((element, name, lanes) for name in names)


def module(called: Iterable[tuple[str, str, int]]) -> str:
    """LLVM IR definitions of functions given as (element, name, lanes), each of them once.

    Forms of one function for several numbers of lanes share its scalar cold form. Intrinsics are
    used without declarations, which LLVM allows.
    """
    parts = dict[str, None]()
    for element, name, lanes in sorted(set(called)):
        is_device = element == DEVICE_FUNCTION
        row = DEVICE[name] if is_device else FUNCTIONS[element][name]
        elements = row.operands if isinstance(row, DeviceFunction) else (element,) * row.arity
        text = Text(lanes)
        operands = [Value(text, f"%x{index}", kind) for index, kind in enumerate(elements)]
        result = row.build(*operands)
        parameters, frozen = ", ".join(map(str, operands)), list[str]()
        if any(line.startswith("  br i1 ") for line in text.lines):
            # Lanes that nobody asked for decide branches too: each must be one number, whatever it
            # is. LLVM took two numbers for such a lane of fmod's divisor, and its loop had no end.
            parameters = ", ".join(f"{each.type} %given{at}" for at, each in enumerate(operands))
            frozen = [
                f"  {each.name} = freeze {each.type} %given{at}" for at, each in enumerate(operands)
            ]
        is_apart = isinstance(row, DeviceFunction) and row.is_apart
        inlining = "noinline strictfp" if is_apart else "alwaysinline"
        head = f"define internal {result.type} @{symbol(name, lanes, element)}({parameters})"
        attributes = f"{inlining} nounwind {WIDE}"
        lines = [f"{head} {attributes} {{", "entry:", *frozen, *text.lines, f"  ret {result}", "}"]
        parts["\n".join(lines)] = None
        if row.cold is not None:
            parts |= dict.fromkeys(row.cold(lanes))
    return "\n\n".join(parts) + "\n"
