"""The op `native`: one result of a function in a native back end, and what its attributes mean.

    backend          name of the back end
    function         the function in it
    library          (version, sha256) of the library that was there at the build
    tensors          (kind, number, dtype, shape) in the function's order: "read" of an operand,
                     "stored" of a result; the operand counts by its elements in row-major order
    scalars          ("whole", number) or ("real", hexadecimal text)
    workspaces       (device, bytes of one tile) for each device that it runs on
    is_tiled         it does part of its work, whatever the number of parts
    triton           a kernel of the same meaning, as `call.py` has it: source, function, arguments
                     and candidates, each (name, value); empty without one
    results          (dtype, shape) of all results
    updates          none: see `call.py`, whose kind this op has
    result           the number of the one result that this node is

Its kind is `call`: it reads and writes memory, nothing fuses with it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from aotc.aot.ir.infer import AttrMap, Types, require
from aotc.aot.ir.types import TensorType
from aotc.runtime.bundle.native_plan import NativeLaunch, NativeTensor

ATTRIBUTES = (
    "backend",
    "function",
    "library",
    "tensors",
    "scalars",
    "workspaces",
    "is_tiled",
    "triton",
    "results",
    "updates",
    "result",
)


def infer_native(types: Types, attrs: AttrMap) -> TensorType:
    """Type of the result that the node is; operands have as many elements as the function takes."""
    results = [TensorType(dtype, shape) for dtype, shape in attrs["results"]]
    require(0 <= attrs["result"] < len(results), f"there is no result {attrs['result']}")
    for kind, number, dtype, shape in attrs["tensors"]:
        if kind == "stored":
            fits = number < len(results) and results[number] == TensorType(dtype, shape)
            require(fits, f"result {number} is not {dtype}{list(shape)}")
            continue
        require(number < len(types), f"there is no operand {number}")
        expected, found = TensorType(dtype, shape), types[number]
        is_same = found.dtype == dtype and found.numel == expected.numel
        require(is_same, f"operand {number} is {found}, the function takes {expected}")
    return results[attrs["result"]]


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A call as a kernel's text: which function, and which parameter is each of its tensors.

    tensors: (number of the kernel's parameter, dtype, shape, whether it is written).
    """

    backend: str
    function: str
    version: str
    sha256: str
    tensors: tuple[tuple[int, str, tuple[int, ...], bool], ...]
    scalars: tuple[tuple[str, Any], ...]
    workspace_bytes: int

    def __str__(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, text: str) -> NativeCall:
        """The call that a text of this class says."""
        record = json.loads(text)
        tensors = tuple((row[0], row[1], tuple(row[2]), row[3]) for row in record.pop("tensors"))
        scalars = tuple((row[0], row[1]) for row in record.pop("scalars"))
        return cls(tensors=tensors, scalars=scalars, **record)

    def launch(self, number: int) -> NativeLaunch:
        """The call as launch `number` of a plan; the launch has its tensors in this order."""
        tensors = [NativeTensor(dtype, stored, shape) for _, dtype, shape, stored in self.tensors]
        rest = (number, tensors, self.scalars, self.workspace_bytes)
        return NativeLaunch(self.backend, self.function, *rest)
