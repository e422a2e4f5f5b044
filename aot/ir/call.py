"""The op `call`: one result of a kernel that the user wrote, and what its attributes mean.

    source      the text of a Triton file, which stands by itself
    function    the name of the kernel in it
    arguments   (parameter, kind, what) in the kernel's order:
                "read", (operand, element at which it begins); "stored", number of a result;
                "value", the text of a number; "config", the text of a value of the candidate
    candidates  (config, grid in programs), the first of which is taken without measuring
    results     (dtype, shape) of all results, in the order of the elements in memory
    updates     (result, operand): the operand is what a result's memory holds before the call
    result      the number of the one result that this node is

A kernel reads memory: an operand counts by its elements in row-major order, whatever its shape.
Nodes that are equal but for `result` are one call.
"""

from __future__ import annotations

from math import prod
from typing import Any

from aotc.aot.ir.infer import AttrMap, Types, require
from aotc.aot.ir.types import TensorType

ATTRIBUTES = ("source", "function", "arguments", "candidates", "results", "updates", "result")

CallArgument = tuple[str, str, Any]
CallCandidate = tuple[tuple[tuple[str, int], ...], tuple[int, int, int]]


def infer_call(types: Types, attrs: AttrMap) -> TensorType:
    """Type of the result that the node is; what is updated has the type of what was there."""
    results = [TensorType(dtype, shape) for dtype, shape in attrs["results"]]
    require(0 <= attrs["result"] < len(results), f"there is no result {attrs['result']}")
    require(bool(attrs["candidates"]), "there is no candidate")
    for _, kind, what in attrs["arguments"]:
        if kind == "read":
            require(what[0] < len(types), f"there is no operand {what[0]}")
    for result, operand in attrs["updates"]:
        before, after = types[operand], results[result]
        fits = before.dtype == after.dtype and prod(before.shape) == prod(after.shape)
        require(fits, f"result {result} is {after}, and {before} before the call")
    return results[attrs["result"]]
