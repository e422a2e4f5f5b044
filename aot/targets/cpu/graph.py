"""Control flow between the function's own blocks, where it is a graph without cycles.

A block is a scope below that of the block which dominates it, so that what is hoisted lands where
all of its uses can see it. Scalars that a block is given are phi nodes, tensors stand in a buffer
that every predecessor writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aotc.aot.targets.cpu import root_ops
from aotc.aot.targets.cpu.control import scalar_lane
from aotc.aot.targets.cpu.evaluate import Kernel
from aotc.aot.targets.cpu.lanes import select
from aotc.aot.targets.cpu.memory import Buffer
from aotc.aot.targets.cpu.ttir import Block, Function, Operation, Value, unsupported
from aotc.aot.targets.cpu.writer import Operand, Scope

RETURN, JUMP, BRANCH = "tt.return", "cf.br", "cf.cond_br"


@dataclass(eq=False)
class _Node:
    """A block of the graph: where it leads, what it is given, and its text."""

    block: Block
    label: str
    edges: list[tuple[_Node, list[Value]]] = field(default_factory=list)
    before: list[_Node] = field(default_factory=list)
    order: int = -1
    dominator: _Node | None = None
    depth: int = 0
    children: list[_Node] = field(default_factory=list)
    given: list[tuple[str, list[Operand]]] = field(default_factory=list)
    """By predecessor: its last label, and the scalars that it passes."""
    buffers: dict[Value, Buffer] = field(default_factory=dict)

    @property
    def terminator(self) -> Operation:
        return self.block.operations[-1]


def is_chain(function: Function) -> bool:
    """Whether each block but the last goes to one other, and else only returns."""
    names = dict(zip(function.labels, function.blocks, strict=True))
    current = function.blocks[0]
    for _ in function.blocks:
        terminator = current.operations[-1]
        if terminator.name == RETURN:
            return True
        sides = [names[label(x)] for x in terminator.successors]
        if terminator.name == BRANCH:
            rest = [x for x in sides if [op.name for op in x.operations] != [RETURN]]
            if len(rest) == 2:
                return False
            sides = rest or sides[:1]
        if not sides or sides[0].arguments:
            return False
        current = sides[0]
    return False


def ordered(function: Function) -> Function:
    """The function with each block behind all that lead to it, positions counted anew."""
    nodes = _ordered(_nodes(function)[0])
    places = {id(block): name for name, block in zip(function.labels, function.blocks, strict=True)}
    blocks = [node.block for node in nodes]
    labels = [places[id(x)] for x in blocks]
    made = Function(function.arguments, blocks, labels, function.functions)
    for position, operation in enumerate(made.walk()):
        operation.position = position
    return made


def label(successor: str) -> str:
    """`^bb1(%0 : i32)` → `^bb1`."""
    return successor.split("(")[0].split(":")[0].strip()


def run(kernel: Kernel, function: Function, lower: Callable[[Block], Operation]) -> None:
    """Lowers all blocks; `lower` writes a block's operations and returns its terminator.

    Raises CompileError for a cycle.
    """
    nodes = _nodes(function)
    order = _ordered(nodes[0])
    _dominate(order)
    for node in order:
        for value in node.block.arguments if node is not nodes[0] else ():
            if value.type.is_tensor:
                node.buffers[value] = root_ops.new_buffer(kernel, value)
    kernel.writer.scope.lines += _write(kernel, nodes[0], lower)


def _nodes(function: Function) -> list[_Node]:
    nodes = [_Node(block, f"block{place}") for place, block in enumerate(function.blocks)]
    names = dict(zip(function.labels, nodes, strict=True))
    for node in nodes:
        terminator = node.terminator
        if terminator.name not in (RETURN, JUMP, BRANCH):
            raise unsupported(f"operation `{terminator.name}`")
        values = list(terminator.operands)
        if terminator.name == BRANCH:
            _, first, second = terminator.integers("operandSegmentSizes") or [1, 0, 0]
            passed = [values[1 : 1 + first], values[1 + first : 1 + first + second]]
        else:
            passed = [values]
        for successor, given in zip(terminator.successors, passed, strict=False):
            node.edges.append((names[label(successor)], given))
    return nodes


def _ordered(entry: _Node) -> list[_Node]:
    """Reverse postorder: each block behind all that lead to it."""
    found: list[_Node] = []
    is_open: dict[_Node, bool] = {}

    def visit(node: _Node) -> None:
        is_open[node] = True
        for following, _ in node.edges:
            following.before.append(node)
            if is_open.get(following):
                raise unsupported("a loop of `cf` branches")
            if following not in is_open:
                visit(following)
        is_open[node] = False
        found.append(node)

    visit(entry)
    found.reverse()
    for place, node in enumerate(found):
        node.order = place
    return found


def _dominate(order: Sequence[_Node]) -> None:
    """Finds each block's immediate dominator; predecessors come first, so once is enough."""
    for node in order[1:]:
        meet = node.before[0]
        for other in node.before[1:]:
            while meet is not other:
                if meet.order > other.order:
                    meet, other = other, meet
                assert other.dominator is not None
                other = other.dominator
        node.dominator, node.depth = meet, meet.depth + 1
        meet.children.append(node)


def _write(kernel: Kernel, node: _Node, lower: Callable[[Block], Operation]) -> list[str]:
    """The text of a block, and behind it that of the blocks which it dominates.

    The entry's own is already where the function begins: then only the text behind it.
    """
    writer = kernel.writer
    is_entry = node.dominator is None
    if not is_entry:
        writer.scopes.append(Scope(writer.depth + 1, node.label, may_skip=True))
        _bind(kernel, node)
    terminator = lower(node.block)
    end = _leave(kernel, node, terminator)
    behind = [line for child in node.children for line in _write(kernel, child, lower)]
    writer.scope.lines.append(f"  {end}")
    if is_entry:
        return behind
    return [f"{node.label}:", *writer.scopes.pop().lines, *behind]


def _bind(kernel: Kernel, node: _Node) -> None:
    """The block's arguments: phi nodes, which come first, and buffers."""
    scalars = [x for x in node.block.arguments if x not in node.buffers]
    for place, value in enumerate(scalars):
        kind = node.given[0][1][place].type
        pairs = ", ".join(f"[ {given[place].text}, %{end} ]" for end, given in node.given)
        made = kernel.writer.effect(f"phi {kind} {pairs}", kind)
        kernel.scalars[value] = scalar_lane(kernel, made, value)
    for value, buffer in node.buffers.items():
        kernel.buffers[value] = buffer._replace(min_depth=kernel.writer.depth)


def _leave(kernel: Kernel, node: _Node, terminator: Operation) -> str:
    """Passes what the following blocks are given; returns the branch, to be written last."""
    if terminator.name == RETURN:
        return "br label %done"
    lanes = kernel.lanes
    if len({following.label for following, _ in node.edges}) < len(node.edges):
        return _leave_to_one(kernel, node, terminator)
    passed: list[list[Operand]] = []
    for following, values in node.edges:
        passed.append([])
        for argument, value in zip(following.block.arguments, values, strict=True):
            if argument in following.buffers:
                here = following.buffers[argument]._replace(min_depth=kernel.writer.depth)
                root_ops.materialize(kernel, value, here)
            else:
                passed[-1].append(lanes.operand(kernel.scalar(value)))
    targets = [f"label %{following.label}" for following, _ in node.edges]
    condition = ""
    if terminator.name == BRANCH:
        condition = f"i1 {lanes.operand(kernel.scalar(terminator.operands[0])).text}, "
    for (following, _), scalars in zip(node.edges, passed, strict=True):
        following.given.append((kernel.writer.scope.label, scalars))
    return f"br {condition}{', '.join(targets)}"


def _leave_to_one(kernel: Kernel, node: _Node, terminator: Operation) -> str:
    """A branch with one block on both sides chooses what this block is given."""
    lanes = kernel.lanes
    following = node.edges[0][0]
    condition = lanes.operand(kernel.scalar(terminator.operands[0]))
    passed: list[Operand] = []
    pairs = zip(node.edges[0][1], node.edges[1][1], strict=True)
    for argument, sides in zip(following.block.arguments, pairs, strict=True):
        if argument in following.buffers:
            _write_one(kernel, condition, following.buffers[argument], sides)
        else:
            first, second = (lanes.operand(kernel.scalar(x)) for x in sides)
            passed.append(select(lanes, condition, first, second))
    following.given.append((kernel.writer.scope.label, passed))
    return f"br label %{following.label}"


def _write_one(
    kernel: Kernel, condition: Operand, buffer: Buffer, values: tuple[Value, Value]
) -> None:
    """Writes one of two tensors to memory."""

    def side(value: Value) -> Callable[[], list[Operand]]:
        def write() -> list[Operand]:
            here = buffer._replace(min_depth=kernel.writer.depth)
            root_ops.materialize(kernel, value, here)
            return []

        return write

    kernel.writer.branch(condition, [side(value) for value in values])
