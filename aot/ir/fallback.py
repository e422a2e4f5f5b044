"""The op `torch`: one result of an op that torch runs at each call, and what its attributes mean.

    operator    the op's name in torch's registry: `aten::sort.stable`
    arguments   (name, kind, value), as the plan has them (`runtime/bundle/torch_calls.py`)
    operands    (dtype, shape) of each operand as the op sees it
    results     (dtype, shape) of all results, () of one that has no memory
    result      the number of the one result that this node is

The op reads memory: an operand counts by its elements in row-major order, whatever its shape. Nodes
that are equal but for `result` are one call.
"""

from __future__ import annotations

from math import prod

from aotc.aot.ir.infer import AttrMap, Types, require
from aotc.aot.ir.types import TensorType

ATTRIBUTES = ("operator", "arguments", "operands", "results", "result")


def infer_torch(types: Types, attrs: AttrMap) -> TensorType:
    """Type of the result that the node is."""
    operands, results = attrs["operands"], attrs["results"]
    require(len(types) == len(operands), f"{len(types)} operands, expected {len(operands)}")
    for number, (found, (dtype, shape)) in enumerate(zip(types, operands, strict=True)):
        fits = found.dtype == dtype and prod(found.shape) == prod(shape)
        require(fits, f"operand {number} is {found}, expected {TensorType(dtype, shape)}")
    number = attrs["result"]
    require(0 <= number < len(results) and results[number], f"there is no result {number}")
    dtype, shape = results[number]
    return TensorType(dtype, shape)
