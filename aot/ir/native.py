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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aotc.aot.ir.call import results_of
from aotc.aot.ir.infer import AttrMap, Types, require
from aotc.aot.ir.size import Dim, Shape
from aotc.aot.ir.size_table import SizeTable, extents_of
from aotc.aot.ir.types import TensorType
from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.bundle.extent import reader
from aotc.runtime.bundle.native_plan import (
    SCALAR,
    WORKSPACE_LIMIT_BYTES,
    NativeLaunch,
    NativeTensor,
)
from aotc.runtime.bundle.schema import BOOL, Choice, Fields, Integer, List, Optional, Row, Text
from aotc.runtime.bundle.torch_calls import SHAPE

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
    results = results_of(types, attrs)
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

    tensors: (number of the kernel's parameter, dtype, shape, whether it is written);
    workspace_bytes: None where the function is asked at each call's sizes.
    """

    backend: str
    function: str
    version: str
    sha256: str
    tensors: tuple[tuple[int, str, Shape, bool], ...]
    scalars: tuple[tuple[str, Any], ...]
    workspace_bytes: int | None

    def __str__(self) -> str:
        """Dynamic sizes are numbers of values, as in a plan, with dims and rows."""
        sizes = {size for row in self.tensors for size in row[2] if not isinstance(size, int)}
        dims = sorted({dim for size in sizes for dim in size.dims()}, key=lambda dim: dim.name)
        table = SizeTable(dims)
        record = CALL.write(CALL.at(self, table.numbered))
        if dims:
            record["dims"] = [[dim.name, dim.low, dim.high, dim.typical] for dim in dims]
            record["sizes"] = [list(row) for row in table.rows]
        return json.dumps(record, indent=1, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, text: str) -> NativeCall:
        """The call that a text of this class says."""
        record = json.loads(text)
        dims = [Dim(*row) for row in record.pop("dims", ())]
        values = extents_of(dims, record.pop("sizes", ()))
        call: NativeCall = CALL.at(CALL.read(record, len(values)), reader(values))
        return call

    def step(
        self, memory: Sequence[tuple[str, Any]], tiles: Any, workspace: tuple[str, Any] | None
    ) -> NativeLaunch:
        """The call as a step of a plan, its sizes as here. memory: (space, value) of each parameter
        of the kernel; workspace: that of the workspace, where it has a place."""
        tensors = tuple(
            NativeTensor(dtype, stored, shape, memory[place])  # type: ignore[arg-type]
            for place, dtype, shape, stored in self.tensors
        )
        rest = (self.workspace_bytes, tiles, workspace)
        return NativeLaunch(self.backend, self.function, tensors, self.scalars, *rest)


CALL = Fields(
    NativeCall,
    {
        **{name: Text(256) for name in ("backend", "function", "version", "sha256")},
        "tensors": List(Row(Integer(0, 255), Choice(*DTYPES), SHAPE, BOOL), limit=64),
        "scalars": List(SCALAR, limit=64),
        "workspace_bytes": Optional(Integer(0, WORKSPACE_LIMIT_BYTES)),
    },
)
