"""Run-time arguments of a launch as the 8-byte slots that a kernel reads.

One function is written for each signature, since Triton launches kernels thousands of times.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from aotc.aot.targets import toolchain
from aotc.runtime.errors import DriverFault

_DESCRIPTOR = re.compile(r"tensordesc<[^\[>]*\[([^\]]*)\]")
_FLOATS = {"fp32": "f4x", "f32": "f4x", "fp64": "d", "f64": "d", "fp16": "e6x", "f16": "e6x"}
_LIMITS = {"f4x": "<f", "e6x": "<e"}


class Slot(NamedTuple):
    """One 8-byte slot: its layout as `struct` writes it, and the expression of its value."""

    layout: str
    expression: str
    name: str = ""
    """Of a pointer's parameter, as messages write it."""
    tensor: str = ""
    """The expression of what a pointer points into."""


def slots(kind: Any, value: str, name: str) -> Iterator[Slot]:
    """The slots of an argument of Triton type `kind`; tuples and descriptors take several.

    A tensor descriptor is base, shape, strides and its flags (`toolchain.descriptor_flags`), then
    shape and strides once more, as Triton's front end takes it apart.
    """
    if isinstance(kind, tuple):
        for place, part in enumerate(kind):
            yield from slots(part, f"{value}[{place}]", f"{name}[{place}]")
    elif not isinstance(kind, str) or kind == "constexpr":
        return
    elif kind.startswith("*"):
        is_ready = f"{value}.__class__ is Tensor and {value}.is_cpu"
        text = f"{value}.data_ptr() if {is_ready} else address({value})"
        yield Slot("Q", text, name, value)
    elif kind.startswith("tensordesc"):
        found = _DESCRIPTOR.match(kind)
        assert found is not None, kind
        rank = found[1].count(",") + 1
        sizes = [Slot("q", f"{value}.{x}[{d}]") for x in ("shape", "strides") for d in range(rank)]
        yield Slot("Q", f"address({value}.base)", name, f"{value}.base")
        yield from sizes
        for flag in toolchain.descriptor_flags():
            yield Slot("q", flag.format(value))
        yield from sizes
    elif kind == "bf16":
        yield Slot("Q", f"bfloat({value})")
    elif kind in _FLOATS:
        yield Slot(_FLOATS[kind], value)
    else:
        yield Slot("Q" if kind == "u64" else "q", value)


class Packer(NamedTuple):
    """`pack(into, arguments)` writes the slots' bytes, for all arguments of a call in order."""

    pack: Callable[[memoryview, tuple[Any, ...]], None]
    slots: tuple[Slot, ...]
    tensors: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    """What the pointer of each slot points into; None where it is no pointer."""


def packer(signature: Mapping[str, Any], constants: Mapping[Any, Any]) -> Packer:
    """Writes the function for a kernel's signature: parameter name → Triton type."""
    found: list[Slot] = []
    for place, (name, kind) in enumerate(signature.items()):
        if (place,) not in constants:
            found += slots(kind, f"a[{place}]", str(name))
    layout = struct.Struct("<" + "".join(slot.layout for slot in found))
    from torch import Tensor

    names = {"Tensor": Tensor, "address": address, "bfloat": bfloat, "layout": layout.pack_into}
    values = ", ".join(slot.expression for slot in found)
    careful = ", ".join(
        f"within({slot.expression}, {_LIMITS[slot.layout]!r})"
        if slot.layout in _LIMITS
        else slot.expression
        for slot in found
    )
    tensors = "".join(f"{slot.tensor or None}, " for slot in found)
    text = f"""
def tensors(a):
    return ({tensors})

def pack(into, a):
    try:
        layout(into, 0, {values})
    except OverflowError:
        layout(into, 0, {careful})
"""
    scope: dict[str, Any] = {**names, "within": within}
    exec(compile(text, "<arguments of a triton kernel>", "exec"), scope)
    return Packer(scope["pack"], tuple(found), scope["tensors"])


def within(value: float, layout: str) -> float:
    """A number as it is, infinite where the format is too small for it."""
    try:
        struct.pack(layout, value)
    except OverflowError:
        return math.copysign(math.inf, value)
    return value


def bfloat(value: float) -> int:
    """The bits of a bf16, the upper half of an f32, as CUDA's launcher cuts it off."""
    number: int = struct.unpack("<I", struct.pack("<f", within(value, "<f")))[0]
    return number >> 16


def address(value: Any) -> int:
    """Where a tensor, or whatever has a `data_ptr`, begins; None is 0.

    Raises DriverFault for a tensor on another device, TypeError for what is neither.
    """
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if not getattr(value, "is_cpu", True):
        detail = f"a tensor is on `{value.device}`, expected it on the cpu"
        raise DriverFault(driver="cpu", detail=detail)
    if not hasattr(value, "data_ptr"):
        message = "Pointer argument must be either uint64 or have data_ptr method"
        raise TypeError(f"{message}, got {type(value).__name__}")
    found: int = value.data_ptr()
    return found


def span(value: Any) -> tuple[int, int]:
    """Where a tensor's elements begin and how many bytes they take up; all memory for an address.

    Between the first and the last element, which of a view are not all its own.
    """
    if value is None:
        return 0, 0
    value = getattr(value, "base", value)  # `triton.reinterpret`
    if isinstance(value, int) or not hasattr(value, "stride"):
        return 0, (1 << 64) - 1
    rows = [(size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True)]
    count = 0 if 0 in value.shape else 1 + sum(rows)
    return value.data_ptr(), count * value.element_size()
