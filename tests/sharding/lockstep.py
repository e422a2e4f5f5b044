"""All ranks of a split graph in the reference interpreter, node by node, exchanges among them."""

from __future__ import annotations

import numpy

from aotc.aot.ir.graph import walk
from aotc.aot.ir.reference import evaluate, evaluate_all
from aotc.aot.sharding.split import of_rank


def constants_of(graph, rank):
    """What a rank has of each constant."""
    found = {}
    for name, row in graph.constants.items():
        array = row.array
        if row.expression is not None:
            leaves = {leaf.name: leaf for leaf in row.leaves}
            (array,) = evaluate_all((of_rank(row.expression, rank),), {}, leaves)
        found[name] = numpy.ascontiguousarray(array).reshape(row.type.shape)
    return found


def part_of(whole, local, array, rank, ranks):
    """A rank's part of a state, whose type is `local` on each and `whole` in the model."""
    pairs = zip(whole.shape, local.shape, strict=True)
    axes = [axis for axis, (one, other) in enumerate(pairs) if one != other]
    return array if not axes else numpy.ascontiguousarray(numpy.split(array, ranks, axes[0])[rank])


def run(graph, inputs):
    """The outputs of each rank; inputs: for each rank its arrays."""
    ranks = len(inputs)
    constants = [constants_of(graph, rank) for rank in range(ranks)]
    values = [dict(zip(graph.inputs, row, strict=True)) for row in inputs]
    for node in walk(graph.outputs):
        if node in values[0]:
            continue
        operands = [[row[operand] for operand in node.inputs] for row in values]
        for rank, row in enumerate(values):
            if node.op == "constant":
                row[node] = constants[rank][node.attr("name")]
            elif node.op != "exchange":
                row[node] = evaluate(node, operands[rank])
            elif node.attr("result"):
                row[node] = operands[rank][1]
            else:
                rows = [own[0] for own in operands]
                parts = [own[0] if len(own) == 1 else own[rank] for own in rows]
                row[node] = numpy.stack(parts)
    return [[row[node] for node in graph.outputs] for row in values]


def initial(graph):
    """What the states of a whole graph start with."""
    found = []
    for state, node in zip(graph.states, graph.inputs[len(graph.given) :], strict=True):
        dtype = "uint16" if node.dtype == "bf16" else numpy.dtype(NUMPY.get(node.dtype, node.dtype))
        zeros = numpy.zeros(node.shape, dtype)
        found.append(zeros if state.initial is None else state.initial.array)
    return found


NUMPY = {"f64": "f8", "f32": "f4", "f16": "f2", "i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1",
         "u8": "u1"}  # fmt: skip
