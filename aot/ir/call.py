"""Ops that work on memory: `call`, of a kernel of the user's, `placed`, of ours, `torch`, and
`control`.

A kernel reads memory: an operand counts by its elements in row-major order, whatever its shape.
All have several results, and a node is one of them: nodes that are equal but for `result` are one
call.

    results     (dtype, shape) of all results, in the order of the elements in memory
    updates     (result, operand): the operand is what a result's memory holds before the call
    result      the number of the one result that this node is

A `call` has the kernel itself:

    source      the text of a Triton file, which stands by itself
    function    the name of the kernel in it
    arguments   (parameter, kind, what) in the kernel's order:
                "read", (operand, element at which it begins); "stored", number of a result;
                "value", the text of a number; "size", a number that may depend on dynamic sizes
                and its Triton type, none of a constant; "config", the text of a value of the
                candidate
    candidates  (config, grid in programs), the first of which is taken without measuring

`placed` says which tensors of that memory other ops of the table read and store; a place is (number
of an operand or result, first element, shape, step along each dim):

    function    the op that its kernel is named by
    operands    the places of the ops' operands
    stored      (op, attributes, which of the operands it is computed of, place) of each result

`torch` is an op that torch runs at each call; `results` has () for one that has no memory:

    operator    the op's name in torch's registry: `aten::sort.stable`
    arguments   (name, kind, value), as the plan has them (`runtime/bundle/torch_calls.py`)
    operands    (dtype, shape) of each operand as the op sees it

`control` runs graphs, its bodies, whose inputs are what stands in the brackets, and which read
nothing else. What is carried is the states of the graph that changes it (`Graph.states`): each
result of such a node is the last value of one of them, and its memory holds the first one before.

    form        "branch" (condition, given…): results of the first body where the condition, a bool
                of one element, holds, else those of the second; both (given…)
                "while" (given…, carried…): as long as the first body, a bool of one element, holds,
                the second one changes what is carried; both (given…, carried…)
                "repeat" (given…, carried…): its body (given…, carried…) changes it `count` times
    bodies      the graphs, each a `Body`
    count       of "repeat"; 0 elsewhere
"""

from __future__ import annotations

from math import prod
from typing import Any

from aotc.aot.ir.infer import AttrMap, Types, require
from aotc.aot.ir.size import Extent, Shape, proves_at_most, proves_below
from aotc.aot.ir.types import TensorType

_ENDS = ("results", "updates", "result")
ATTRIBUTES = ("source", "function", "arguments", "candidates", *_ENDS)
TORCH_ATTRIBUTES = ("operator", "arguments", "operands", "results", "result")
CONTROL_ATTRIBUTES = ("form", "bodies", "count", *_ENDS)
FORMS = {"branch": 2, "while": 2, "repeat": 1}  # with how many bodies each has
PLACED_ATTRIBUTES = ("function", "operands", "stored", *_ENDS)

CallArgument = tuple[str, str, Any]
CallCandidate = tuple[tuple[tuple[str, int], ...], tuple[Extent, Extent, Extent]]
StridedOperand = tuple[int, int, Shape, Shape]


def infer_call(types: Types, attrs: AttrMap) -> TensorType:
    """Type of the result that the node is; what is updated has the type of what was there."""
    require(bool(attrs["candidates"]), "there is no candidate")
    for _, kind, what in attrs["arguments"]:
        if kind == "read":
            require(what[0] < len(types), f"there is no operand {what[0]}")
    return results_of(types, attrs)[attrs["result"]]


def infer_placed(types: Types, attrs: AttrMap) -> TensorType:
    """As `infer_call`; every place lies within its memory."""
    results = results_of(types, attrs)
    for place in attrs["operands"]:
        _check_operand(place, types)
    for _, _, numbers, place in attrs["stored"]:
        require(max(numbers) < len(attrs["operands"]), f"there are no operands {numbers}")
        _check_operand(place, results)
    return results[attrs["result"]]


def results_of(types: Types, attrs: AttrMap) -> Types:
    results = tuple(TensorType(dtype, shape) for dtype, shape in attrs["results"])
    require(0 <= attrs["result"] < len(results), f"there is no result {attrs['result']}")
    for result, operand in attrs["updates"]:
        before, after = types[operand], results[result]
        fits = before.dtype == after.dtype and prod(before.shape) == prod(after.shape)
        require(fits, f"result {result} is {after}, and {before} before the call")
    return results


def _check_operand(place: StridedOperand, types: Types) -> None:
    number, start, shape, strides = place
    require(0 <= number < len(types), f"there is no memory {number}")
    if 0 in shape:
        return
    steps = zip(shape, strides, strict=True)
    last = start + sum((extent - 1) * stride for extent, stride in steps)
    count = types[number].numel
    # An extent may be 0 at a call, which then reads nothing: `last` may be less than `start`.
    # A guard may keep calls from sizes at which a place would be outside: no error, unless all are.
    is_outside = any(proves_below(each, 0) for each in (start, *strides))
    is_outside = is_outside or proves_at_most(count, last)
    require(not is_outside, f"elements {start} to {last} of {count}")


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


def infer_control(types: Types, attrs: AttrMap) -> TensorType:
    """Type of the result that the node is; operands have the elements that the bodies take."""
    form, graphs = attrs["form"], [body.graph for body in attrs["bodies"]]
    require(FORMS.get(form) == len(graphs), f"{len(graphs)} bodies of `{form}`")
    require(not any(graph.constants for graph in graphs), "a body reads constants")
    given = types
    if form == "branch":
        condition, *rest = types
        given = tuple(rest)
        require(_is_flag(condition), f"the condition is {condition}, expected one bool")
    for graph in graphs:
        require(len(graph.inputs) == len(given), f"{len(given)} operands of a body")
        for node, kind in zip(graph.inputs, given, strict=True):
            fits = node.dtype == kind.dtype and prod(node.shape) == prod(kind.shape)
            require(fits, f"an operand is {kind}, the body takes {node.type}")
    results = tuple(TensorType(*row) for row in attrs["results"])
    if form == "while":
        (flag,) = graphs[0].returned
        require(_is_flag(flag.type), f"the condition is {flag.type}, expected one bool")
    for graph in graphs if form == "branch" else graphs[-1:]:
        made = tuple(node.type for node in (*graph.returned, *graph.new_states))
        require(made == results, f"a body gives {made}, expected {results}")
    return results_of(types, attrs)[attrs["result"]]


def _is_flag(kind: TensorType) -> bool:
    return kind.dtype == "bool" and kind.numel == 1
