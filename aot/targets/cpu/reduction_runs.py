"""Reductions of tensors of one shape that may share their loops, so that what several of them read
is read once: the sum and the largest element, or the largest element and whether one is NaN.

What stands between them and waits for one of them is moved behind the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from aotc.aot.targets.cpu.neutral import neutral
from aotc.aot.targets.cpu.ttir import Block, Function, Operation, Value
from aotc.aot.targets.cpu.usage import ROOT_OPS, Runs

REDUCE = "tt.reduce"


def find(function: Function) -> Runs:
    """Each reduction → those of its run, in order."""
    runs: Runs = {}
    regions = [function.blocks, *(r for operation in function.walk() for r in operation.regions)]
    for block in (each for region in regions for each in region):
        _gather(block, runs)
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
        if not self.members or self.is_read_by(reduction):
            return False
        one, other = self.members[0], reduction
        same_shape = one.operands[0].type.shape == other.operands[0].type.shape
        return same_shape and one.integer("axis") == other.integer("axis")

    def is_read_by(self, operation: Operation) -> bool:
        return any(operand in self.results for operand in operation.operands)


def _gather(block: Block, runs: Runs) -> None:
    made: list[Operation] = []
    run = _Run()
    for operation in block.operations:
        if operation.name == REDUCE:
            may_share = neutral(operation) is not None
            if not (may_share and run.takes(operation)):
                made += run.behind
                run = _Run()
            made.append(operation)
            run.members.append(operation)
            run.results.update(operation.results)
            runs[operation] = run.members
            run = run if may_share else _Run()
        elif operation.name in ROOT_OPS or operation.regions or not operation.results:
            made += [*run.behind, operation]  # it may write what others read, or leave the block
            run = _Run()
        elif run.is_read_by(operation):
            run.behind.append(operation)
            run.results.update(operation.results)
        else:
            made.append(operation)
    block.operations[:] = [*made, *run.behind]
