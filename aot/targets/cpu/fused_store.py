"""Products whose elements go straight from registers to a store.

    acc = dot(a, b, zeros)                    for … : acc = dot(a, b, acc)
    store(p, f(acc), mask)                    store(p, f(acc), mask)

The product is written at the store: a block of its accumulators, once added up, is taken through
`f` and stored, and no tile of accumulators has to come back from memory. In a loop that happens in
the last turn. Rows and columns that the mask leaves out are not computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from aotc.aot.targets.cpu import tiles, transposed_store
from aotc.aot.targets.cpu.elementwise import RULES
from aotc.aot.targets.cpu.evaluate import Kernel, StoredProduct
from aotc.aot.targets.cpu.lanes import compare
from aotc.aot.targets.cpu.linear import Int
from aotc.aot.targets.cpu.ttir import Block, Function, Operation, Value
from aotc.aot.targets.cpu.usage import COSTS, ROOT_OPS, WRITES, Keep, Runs
from aotc.aot.targets.cpu.writer import Operand

MOST_INSTRUCTIONS = 12
"""An element in `f`: it is written for each accumulator, so that a long one would fill the cache of
instructions."""


def is_open(product: StoredProduct, kernel: Kernel) -> bool:
    """Whether the stores lie along rows, as accumulators do, and write nothing else; one whose
    places follow each other down the columns is better written by transposed blocks."""
    places = product.stores[0].operands[0]
    if len(product.stores) == 1 and transposed_store.is_in_runs(kernel, places, 0):
        return False
    lanes = {tiles.lane_dimension(kernel, each.operands[0]) for each in product.stores}
    is_own = all(value.type.shape != product.shape for value in kernel.pending)
    return is_own and (lanes == {1} or product.shape[1] == 1)


def limits(product: StoredProduct, kernel: Kernel) -> tuple[Operand, Operand]:
    """Rows and columns of the tile that are stored at all, or more."""
    cuts = [] if product.mask is None else tiles.conjuncts(kernel, product.mask, product.shape)
    rows, columns = (
        tiles.limit(kernel, [cut for cut in cuts if cut.bound.dim == dim], size)[0]
        for dim, size in enumerate(product.shape)
    )
    return rows, columns


def is_last_turn(product: StoredProduct, kernel: Kernel) -> Operand | None:
    """In the loop: whether no turn follows; None where there is no loop."""
    if product.operation is product.dot:
        return None
    counter = kernel.scalars[product.operation.body.arguments[0]]
    upper, step = (kernel.scalars[x] for x in product.operation.operands[1:3])
    assert isinstance(counter, Int)
    assert isinstance(step, Int)
    following = kernel.lanes.operand(kernel.lanes.add(counter, step))
    return compare(kernel.lanes, "icmp sge", following, kernel.lanes.operand(upper))


def takes_no_turn(product: StoredProduct, kernel: Kernel) -> Operand | None:
    """Whether the loop ends before it begins; None where it does not, or there is no loop."""
    if product.operation is product.dot:
        return None
    lower, upper = (kernel.scalars[x] for x in product.operation.operands[:2])
    bounds = [each.constant for each in (lower, upper) if isinstance(each, Int)]
    if len(bounds) == 2 and None not in bounds and bounds[0] < bounds[1]:  # type: ignore[operator]
        return None
    ends = kernel.lanes.operand(lower), kernel.lanes.operand(upper)
    return compare(kernel.lanes, "icmp sge", *ends)


def fused_stores(
    function: Function,
    runs: Runs,
    kept: dict[Value, Keep],
    is_looped: Callable[[Operation], bool],
) -> dict[Operation, StoredProduct]:
    """Products that are written at their stores: by their own operation, and by their stores.

    Memory behind different arguments of the function may not overlap. `is_looped`: whether `f` is
    written once for all elements of a dot, so that it may be long.
    """
    found: dict[Operation, StoredProduct] = {}
    blocks = [function.blocks] + [r for op in function.walk() for r in op.regions]
    for block in (b for region in blocks for b in region):
        for fused in _of_block(block, runs, kept, is_looped):
            if not _overwrites(fused, function.arguments):
                found[fused.operation] = fused
                found.update(dict.fromkeys(fused.stores, fused))
    return found


def _of_block(
    block: Block, runs: Runs, kept: dict[Value, Keep], is_looped: Callable[[Operation], bool]
) -> Iterator[StoredProduct]:
    operations = block.operations
    for place, operation in enumerate(operations):
        product = _product(operation)
        most = math.inf if product is not None and is_looped(product[0]) else MOST_INSTRUCTIONS
        stores = _stores(product[1], kept, most) if product is not None else []
        if product is None or not stores or stores[-1] not in operations:
            continue
        run = runs[stores[0]]
        between = operations[place + 1 : operations.index(run[-1])]
        if set(run) == set(stores) and not any(_writes(x) for x in between if x not in run):
            yield StoredProduct(operation, *product, tuple(run))


def _product(operation: Operation) -> tuple[Operation, Value] | None:
    """(dot, the value that leaves) of a dot, or of a loop that does nothing but add up one."""
    if operation.name == "tt.dot":
        return operation, operation.results[0]
    if operation.name != "scf.for":
        return None
    inside = operation.body.operations
    dots = [each for each in inside if each.name in ROOT_OPS or each.regions][:-1]
    if [each.name for each in dots] != ["tt.dot"] or inside[-1].name != "scf.yield":
        return None
    dot, result = dots[0], dots[0].results[0]
    if result.uses != [inside[-1]] or dot.operands[2] not in operation.body.arguments:
        return None
    place = operation.body.arguments.index(dot.operands[2]) - 1
    if inside[-1].operands[place] is not result or dot.operands[2].uses != [dot]:
        return None
    others = [each for each in operation.results if each is not operation.results[place]]
    return None if any(each.uses for each in others) else (dot, operation.results[place])


def _stores(value: Value, kept: dict[Value, Keep], most: float) -> list[Operation]:
    """The stores to which all uses of a value lead, element by element; empty if others use it."""
    found: dict[Operation, None] = {}
    open_values, seen = [value], set[Value]()
    while open_values:
        current = open_values.pop()
        if current in seen:
            continue
        seen.add(current)
        if current in kept:
            return []
        for use in current.uses:
            if use.name == "tt.store" and [x is current for x in use.operands].index(True) == 1:
                found[use] = None
            elif use.name not in RULES or use.results[0].type.shape != value.type.shape:
                return []
            else:
                open_values += use.results
    is_short = all(_instructions(each.operands[1], {}) <= most for each in found)
    return list(found) if is_short else []


def _instructions(value: Value, known: dict[Value, float]) -> float:
    """Instructions an element behind a stored value, up to what stands in memory."""
    made = value.owner
    if made is None or made.name in ROOT_OPS or made.regions or not value.type.is_tensor:
        return 0
    if value not in known:
        known[value] = 0
        operands: Sequence[Value] = made.operands[1:] if made.name == "tt.load" else made.operands
        own = COSTS.get(made.name, 1) if made.name in RULES or made.name == "tt.load" else 0
        known[value] = own + sum(_instructions(each, known) for each in operands)
    return known[value]


def _writes(operation: Operation) -> bool:
    return any(each.name in WRITES for each in operation.walk())


def _overwrites(fused: StoredProduct, arguments: Sequence[Value]) -> bool:
    """Whether the stores may write what the product still reads."""
    read = _roots(fused.dot.operands[:2], fused.operation)
    written = _roots([each.operands[0] for each in fused.stores], fused.operation)
    return bool(read & written) or not read | written <= set(arguments)


def is_written(fused: StoredProduct, value: Value) -> bool:
    """Whether the stores may write memory behind a value."""
    read = _roots([value], fused.operation)
    return bool(read & _roots([each.operands[0] for each in fused.stores], fused.operation))


def _roots(values: Sequence[Value], loop: Operation) -> set[Value]:
    """The pointers that values are read through; those that the loop moves, as they start."""
    found, seen, open_values = set[Value](), set[Value](), list(values)
    while open_values:
        value = open_values.pop()
        if value in seen:
            continue
        seen.add(value)
        moved = loop.body.arguments if loop.regions else []
        if value.owner is not None:
            open_values += value.owner.operands
        elif value in moved[1:]:
            open_values.append(loop.operands[2 + moved.index(value)])
        elif value.type.is_pointer:
            found.add(value)
    return found
