"""Which lazy tensors to keep in memory: those that are expensive and used more than once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from math import prod
from typing import TypeAlias

from aotc.aot.targets.cpu.evaluate import VIEWS
from aotc.aot.targets.cpu.ttir import Function, Operation, Value

Runs: TypeAlias = dict[Operation, list[Operation]]


class Keep(Enum):
    AT_ONCE = "computed where it is defined"
    BY_FIRST_ROOT = "written by the first root that runs over it"


ROOT_OPS = frozenset({
    "tt.store", "tt.reduce", "tt.scan", "tt.dot", "tt.atomic_rmw", "tt.atomic_cas", "scf.yield",
    "tt.histogram", "tt.call", "tt.map_elementwise", "tt.print", "tt.assert",
})  # fmt: skip
CALL = "tt.call"
LOOPS = frozenset({"scf.for", "scf.while"})
WRITES = frozenset({"tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.call"})

COSTS = {
    "arith.constant": 0, "tt.make_range": 0, "tt.splat": 0, "tt.load": 2, "tt.gather": 6,
    "arith.divf": 4, "tt.precise_divf": 4, "math.sqrt": 4, "math.rsqrt": 8,
    "tt.extern_elementwise": 12, "arith.divsi": 6, "arith.remsi": 6, "arith.remf": 20,
    **{f"math.{name}": 12 for name in ("exp", "exp2", "log", "log2", "sin", "cos", "erf", "tanh")},
}  # fmt: skip
"""Instructions an element, roughly; 1 for what is not listed."""

OF_PLACES = frozenset({"arith.addi", "arith.subi", "arith.muli"})
"""Of numbers of a tile's elements these are linear forms, which cost nothing an element; in memory
nothing would be known of them."""
DEAR = 8
"""From this cost on, memory is cheaper than computing again."""
REPEATS = 8
"""Turns that a loop of unknown length is taken to make."""


def plan(function: Function, runs: Runs, *, no_alias: bool) -> dict[Value, Keep]:
    """Decides for every tensor; tensors that are not in the answer are evaluated on demand.

    Within one root an element is evaluated once, however often the expression names it; `runs` are
    the stores that share their loops.
    """
    kept: dict[Value, Keep] = {}
    costs: dict[Value, float] = {}
    weights = _weights(function, runs)
    writes = [op for op in function.walk() if op.name in WRITES]
    rooted = _with_root_of_its_own(function)
    for operation in function.walk():
        for value in operation.results:
            if not value.type.is_tensor:
                continue
            costs[value] = _cost(operation, costs)
            if operation.name in ROOT_OPS or operation.regions or operation.name in VIEWS:
                continue
            if operation.name == "tt.load" and _is_overwritten(
                operation, value, writes, no_alias=no_alias
            ):
                kept[value] = Keep.AT_ONCE
            elif value.type.is_pointer or costs[value] == 0:
                continue
            elif weights[value] > 1 and costs[value] >= DEAR:
                kept[value] = Keep.BY_FIRST_ROOT if value in rooted else Keep.AT_ONCE
            elif _is_repacked(value):
                kept[value] = Keep.AT_ONCE
            if value in kept:
                costs[value] = 1
    return kept


def _cost(operation: Operation, costs: dict[Value, float]) -> float:
    if operation.name in ROOT_OPS or operation.regions:
        return 1
    own = 0 if operation.name in VIEWS else COSTS.get(operation.name, 1)
    pointers = operation.name == "tt.load"
    operands = operation.operands[1:] if pointers else operation.operands
    rest = sum(costs.get(x, 0) for x in operands)
    return 0 if operation.name in OF_PLACES and not rest else own + rest


def _weights(function: Function, runs: Runs) -> dict[Value, float]:
    """How often an element of each tensor is evaluated, were none of them kept."""
    turns: dict[Value, dict[object, float]] = {}  # by root, the most on any way to it
    for operation in reversed(list(function.walk())):  # uses before definitions
        for value in operation.results:
            found = turns[value] = {}
            for use in value.uses:
                for root, count in _turns_of_use(value, use, turns, runs).items():
                    found[root] = max(found.get(root, 0), min(1e6, count))
    return {value: sum(found.values()) for value, found in turns.items()}


def _turns_of_use(
    value: Value, use: Operation, turns: dict[Value, dict[object, float]], runs: Runs
) -> dict[object, float]:
    repeats: float = REPEATS if _is_deeper(value, use) else 1
    if use.name in ROOT_OPS or use.regions or not use.results:
        root: object = runs[use][0] if use in runs else (use, use.operands.index(value))
        return {root: repeats}
    shape, result = value.type.shape, use.results[0].type.shape
    if use.name == "tt.broadcast" and shape and result and shape[-1] > 1:
        for before, after in zip(shape, result, strict=True):
            repeats *= min(REPEATS, after // before)
    if use.name == "tt.cat" or (use.name == "tt.join" and _is_mixed(use.results[0])):
        repeats *= 2
    found: dict[object, float] = {}
    for made in use.results:
        for root, count in turns.get(made, {}).items():
            found[root] = max(found.get(root, 0), count * repeats)
    return found


def _is_mixed(joined: Value) -> bool:
    """Whether the dim along which two tensors were joined becomes part of another: then no element
    is known to be of one of them, and each is computed of both."""
    waiting, seen = [(joined, len(joined.type.shape or ()) - 1)], set[tuple[Value, int]]()
    while waiting:
        value, dim = entry = waiting.pop()
        if entry in seen:
            continue
        seen.add(entry)
        for use in value.uses:
            if use.name in ROOT_OPS or use.regions:
                continue
            following = _dim_behind(use, value.type.shape or (), dim)
            if following is None:
                return True
            if following >= 0:
                waiting += [(made, following) for made in use.results if made.type.is_tensor]
    return False


def _dim_behind(use: Operation, shape: Sequence[int], dim: int) -> int | None:
    """Where a dim of an operand is in an operation's results: -1 where its index is known there,
    None where it is part of another."""
    if use.name == "tt.trans":
        return use.integers("order").index(dim)
    if use.name == "tt.expand_dims":
        return dim + (use.integer("axis") <= dim)
    if use.name == "tt.split" and dim == len(shape) - 1:
        return -1
    if use.name == "tt.cat":
        return dim or None
    if use.name == "tt.gather":
        return dim if use.integer("axis") != dim else None
    if use.name != "tt.reshape":
        return dim
    sizes, wanted = use.results[0].type.shape or (), (shape[dim], prod(shape[dim + 1 :]))
    found = (at for at, size in enumerate(sizes) if (size, prod(sizes[at + 1 :])) == wanted)
    return next(found, None)


def _is_deeper(value: Value, use: Operation) -> bool:
    """`use` stands in a loop that `value` does not."""
    home = _home(value)
    return any(loop is not home and loop.name in LOOPS for loop in _between(use.parent, home))


def _home(value: Value) -> Operation | None:
    return value.owner.parent if value.owner is not None else None


def _between(inner: Operation | None, outer: Operation | None) -> Iterator[Operation]:
    while inner is not None and inner is not outer:
        yield inner
        inner = inner.parent


def _with_root_of_its_own(function: Function) -> set[Value]:
    """Tensors that a root of the same shape in the same region reads at its own index."""
    found: set[Value] = set()
    for operation in reversed(list(function.walk())):  # uses before definitions
        for value in operation.results:
            if any(_is_read_at_its_index(value, use, found) for use in value.uses):
                found.add(value)
    return found


def _is_read_at_its_index(value: Value, use: Operation, found: set[Value]) -> bool:
    """By a root, or for a tensor that itself is in `found`."""
    if _home(value) is not use.parent:
        return False
    if use.name in ("tt.store", "tt.reduce"):
        return True
    if use.name in VIEWS or use.name in ROOT_OPS or use.regions:
        return False
    return any(made in found and made.type.shape == value.type.shape for made in use.results)


def _is_repacked(value: Value) -> bool:
    """A dot in a deeper loop would convert or gather the operand again in every turn."""
    made = value.owner
    if made is None:
        return False
    simple = made.name == "tt.load" and len(made.operands) == 1 and value.type.element == "f32"
    return not simple and any(use.name == "tt.dot" and _is_deeper(value, use) for use in value.uses)


# ------------------------------------------------------------------------ runs


def store_runs(function: Function, *, no_alias: bool) -> Runs:
    """Stores over the same elements that may share one loop: each store → its run, in order.

    Between them only lazy tensors are defined; they write different memory, and nothing reads that
    memory before the last of them.
    """
    runs: Runs = {}
    blocks = [function.blocks] + [r for op in function.walk() for r in op.regions]
    for block in (b for region in blocks for b in region):
        current: list[Operation] = []
        for operation in block.operations:
            if operation.name == "tt.store" and no_alias and _joins(current, operation):
                current.append(operation)
            elif operation.name == "tt.store":
                current = [operation]
            elif not _passes(current, operation):
                current = []
            for member in current:
                runs[member] = current
    return runs


def _joins(current: list[Operation], store: Operation) -> bool:
    if not current or not store.operands[0].type.is_tensor:
        return False
    roots = {root_of(op.operands[0]) for op in current}
    first = current[0]
    same_mask = store.operands[2:] == first.operands[2:]
    same_shape = store.operands[0].type.shape == first.operands[0].type.shape
    return same_mask and same_shape and root_of(store.operands[0]) not in roots


def _passes(current: list[Operation], operation: Operation) -> bool:
    """`operation` may stand between the stores of a run."""
    if operation.name in ROOT_OPS or operation.regions or not operation.results:
        return False
    roots = {root_of(op.operands[0]) for op in current}
    return operation.name != "tt.load" or root_of(operation.operands[0]) not in roots


# ------------------------------------------------------------------- conflicts


def root_of(value: Value) -> Value:
    """The kernel argument (or whatever else) that a pointer starts from."""
    while value.owner is not None and value.owner.operands and value.type.is_pointer:
        value = value.owner.operands[0]
    return value


def _is_overwritten(
    load: Operation, value: Value, writes: list[Operation], *, no_alias: bool
) -> bool:
    """A write that may reach the loaded memory stands between the load and its last use."""
    root = root_of(load.operands[0])
    candidates = [
        w for w in writes if not no_alias or w.name == CALL or root_of(w.operands[0]) is root
    ]
    if not candidates:
        return False
    last = _last_use(value, load)
    for write in candidates:
        if load.position < write.position < last:
            return True
        if write.name == CALL:
            continue
        in_place = root_of(write.operands[0]) is root and write.operands[0] is not load.operands[0]
        if write.position == last and in_place:
            return True
    return False


def _last_use(value: Value, load: Operation) -> int:
    """Position of the last root that needs `value`, at the end of loops entered on the way."""
    last, open_values, seen = load.position, [value], {value}
    while open_values:
        for use in open_values.pop().uses:
            last = max(last, use.position)
            for loop in _between(use.parent, load.parent):
                last = max(last, max(op.position for op in loop.walk()))
            if use.name not in ROOT_OPS and not use.regions:
                following = [r for r in use.results if r not in seen]
                seen.update(following)
                open_values.extend(following)
    return last
