"""Reductions of tensors of one shape that may share their loops, so that what several of them read
is read once: the sum and the largest element, or the largest element and whether one is NaN.

What stands between them and waits for one of them is moved behind the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from aotc.aot.targets.cpu.ttir import Block, Function, Operation, Value
from aotc.aot.targets.cpu.usage import ROOT_OPS, Runs

REDUCE = "tt.reduce"


def find(function: Function, may_share: Callable[[Operation], bool]) -> Runs:
    """Each reduction → those of its run, in order. may_share: whether one may have loops in common
    with others."""
    runs: Runs = {}
    regions = [function.blocks, *(r for operation in function.walk() for r in operation.regions)]
    for block in (each for region in regions for each in region):
        _gather(block, may_share, runs)
    for position, operation in enumerate(function.walk()):
        operation.position = position
    return runs


@dataclass(slots=True)
class _Run:
    members: list[Operation] = field(default_factory=list)
    behind: list[Operation] = field(default_factory=list)
    """What waits for its results."""
    results: set[Value] = field(default_factory=set)
    """Of both."""

    def takes(self, reduction: Operation) -> bool:
        """Whether a reduction goes over the same places and waits for none of it."""
        shapes = [each.operands[0].type.shape for each in (self.members[0], reduction)]
        same_axis = self.members[0].integer("axis") == reduction.integer("axis")
        return shapes[0] == shapes[1] and same_axis and not self.is_read_by(reduction)

    def is_read_by(self, operation: Operation) -> bool:
        return any(operand in self.results for operand in operation.operands)


def _gather(block: Block, may_share: Callable[[Operation], bool], runs: Runs) -> None:
    made: list[Operation] = []
    run = _Run()
    for operation in block.operations:
        is_root = operation.name in ROOT_OPS or operation.regions or not operation.results
        if operation.name == REDUCE and may_share(operation) and run.members:
            is_root = not run.takes(operation)
        if is_root:
            made += run.behind
            run = _Run()
        if operation.name == REDUCE:
            run.members.append(operation)
            runs[operation] = run.members
            run.results.update(operation.results)
            made.append(operation)
            if not may_share(operation):
                run = _Run()
        elif run.is_read_by(operation):
            run.behind.append(operation)
            run.results.update(operation.results)
        else:
            made.append(operation)
    block.operations[:] = [*made, *run.behind]
