"""Rehearsal: the finished code runs on the golden input in this process, before it is written.

So a bundle with wrong numbers never replaces a good one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import numpy

from aotc.aot.capture.capture import Captured
from aotc.aot.contents import signature, tolerances
from aotc.aot.ir.graph import Constant
from aotc.aot.ir.storage import Array
from aotc.aot.targets.target import Target
from aotc.runtime.comparison import Comparison, compare
from aotc.runtime.drivers.cpu import Executable, features
from aotc.runtime.plan import LaunchPlan
from aotc.runtime.weights import ALIGNMENT_BYTES


def runs_here(target: Target) -> bool:
    """Whether this machine can run a target's code."""
    return target.device == "cpu" and set(target.needs) <= features()


def rehearse(
    captured: Captured,
    constants: Mapping[str, Constant],
    plan: LaunchPlan,
    library: bytes,
    target: Target,
) -> tuple[Comparison, ...]:
    """One check for each output of the model, against the exported module's golden output."""
    graph = captured.graph
    weights = {name: aligned(constant.array) for name, constant in constants.items()}
    addresses = {name: array.ctypes.data for name, array in weights.items()}
    inputs = [aligned(array) for array in captured.golden_inputs]
    outputs = [aligned(numpy.zeros_like(array)) for array in captured.golden_outputs]
    executable = Executable(library, plan, addresses, len(inputs), len(outputs))
    with closing(executable), closing(executable.session()) as session:
        for place, array in enumerate((*inputs, *outputs)):
            session.addresses[place] = array.ctypes.data
        session.run()
    rows = zip(
        signature(graph)[1],
        outputs,
        captured.golden_outputs,
        tolerances(graph, target.traits.dot_precision),
        strict=True,
    )
    return tuple(
        compare(spec, found.tobytes(), expected.tobytes(), limit)
        for spec, found, expected, limit in rows
    )


def aligned(array: Array) -> Array:
    """A copy that starts where the weights of a loaded bundle would."""
    block = numpy.empty(array.nbytes + ALIGNMENT_BYTES, numpy.uint8)
    start = -block.ctypes.data % ALIGNMENT_BYTES
    copy = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
