"""A measure of expressions that every rule lowers, so that rewriting comes to an end.

The measure is a tuple of whole numbers, compared from left to right. Each of them is made of an
expression from its leaves upwards, by a sum of the operands' numbers with factors of at least 1:
so an expression with a part that measures less measures less itself, and a graph that is an
expression with shared parts does too. Each falling sequence of such tuples ends.

Numbers come in two rows. In the first, what is constant counts as nothing: rules may give work to
constants, which are folded. In the second it counts like all else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aotc.aot.ir.graph import Node
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.rules import Context
from aotc.aot.ir.size import typical

Number = Callable[[Node, Sequence[int]], int]  # of a node and the numbers of its operands
Measure = tuple[int, ...]

_SINK = 10**7  # of what a permute may sink below: more than any permute weighs
_SIZE = 10**4  # of a permute, for each power of two of its elements: more than its order weighs
_POINTWISE = ("pointwise", "reduce", "take", "gather")


def _products(node: Node, operands: Sequence[int]) -> int:
    """Contractions: convolutions of few channels above others above products above attention."""
    if node.op == "convolution":
        return sum(operands) + 100 + max(0, 16 - typical(node.inputs[1].shape[1]))
    if node.op == "pow":
        return 4 * sum(operands)  # what it becomes reads its operand up to three times
    is_column = node.op == "matmul" and node.shape[-1] == 1 != node.shape[-2]
    weights = {"matmul": 3 + is_column, "matmul_in_order": 3, "matmul_packed": 1, "attention": 1}
    return sum(operands) + weights.get(node.op, 0)


def _arithmetic(node: Node, operands: Sequence[int]) -> int:
    """Operations, each with a weight; signs weigh more the deeper they are."""
    total = sum(operands)
    if node.op == "add" and _is_zero(node.inputs[1]):
        return 2 * operands[0]  # what a sum over dims of 1 becomes
    if node.op == "sub" and _is_zero(node.inputs[0]):
        return 2 * operands[1] + 1  # what that of a `neg` becomes
    if node.kind == "pointwise":
        factor, own = {
            "pow": (32, 32),
            "div": (8, 4),
            "mul": (3, 1),
            "scale": (4, 4),  # what it becomes behind a sum is a `mul`
            "sub": (2, 3),
            "neg": (1, 1),
            "where": (4, 3),
        }.get(node.op, (2, 2 if len(operands) > 1 else 1))
        return factor * total + own
    return 2 * total + 1 if node.kind == "reduce" else total + (node.kind in ("take", "matmul"))


def _elements(node: Node, operands: Sequence[int]) -> int:
    """Elements that are computed."""
    return sum(operands) + (typical(node.type.numel) if node.kind in _POINTWISE else 0)


def _primes(number: int) -> int:
    """The number of prime factors: that of a product is the sum of its factors'."""
    count, divisor = 0, 2
    while number > 1:
        if number % divisor:
            divisor += 1
        else:
            number //= divisor
            count += 1
    return count


def _disorder(node: Node) -> int:
    """How far a permute is from the order in memory, the same however its dims are split."""
    dims, shape = node.attr("dims"), node.inputs[0].shape
    sizes = [_primes(typical(shape[dim])) for dim in dims]
    return sum(
        sizes[left] * sizes[right]
        for right in range(len(dims))
        for left in range(right)
        if dims[left] > dims[right]
    )


def _permutes(node: Node, operands: Sequence[int]) -> int:
    """Permutes, by what stands over them, and by their elements and order."""
    total = sum(operands)
    if node.op == "permute":
        return total + _SIZE * typical(node.type.numel).bit_length() + _disorder(node) + 1
    return total if node.op == "reshape" else _SINK * total


def _ones(node: Node, operands: Sequence[int]) -> int:
    """Permutes of dims of 1 that are not in front."""
    if node.op != "permute":
        return sum(operands)
    shape = node.inputs[0].shape
    ones = [dim for dim in node.attr("dims") if shape[dim] == 1]
    return sum(operands) + (ones != list(range(len(ones))))


def _merges(node: Node, operands: Sequence[int]) -> int:
    """Reshapes of permutes, twice as many below each op that computes."""
    total = sum(operands)
    if node.op == "reshape":
        return total + (node.inputs[0].op == "permute")
    return total * 2 if node.kind in _POINTWISE else total


def _ranks(node: Node, operands: Sequence[int]) -> int:
    """Dims of what is computed."""
    return sum(operands) + (node.type.rank if node.kind in _POINTWISE else 0)


def _reshapes_outside(node: Node, operands: Sequence[int]) -> int:
    """Permutes, more where reshapes and expands stand over them."""
    factor = {"reshape": 2, "expand": 3}.get(node.op, 1)
    return factor * sum(operands) + (node.op == "permute")


def _moved(node: Node, operands: Sequence[int]) -> int:
    """Elements of views."""
    is_view = node.kind in ("view", "pad", "concat")
    return sum(operands) + (typical(node.type.numel) if is_view else 0)


def _views(node: Node, operands: Sequence[int]) -> int:
    """Views, an expand for two, and axes of reductions."""
    is_view = node.kind in ("view", "pad", "concat", "take")
    axes = len(node.attr("axes")) if node.kind == "reduce" else 0
    return sum(operands) + is_view + (node.op == "expand") + axes


def _literals_first(node: Node, operands: Sequence[int]) -> int:
    """Literals, viewed or not, that stand first where they could stand second."""
    is_first = len(node.inputs) == 2 and OPS[node.op].is_commutative
    is_first = is_first and [_is_literal(item) for item in node.inputs] == [True, False]
    return sum(operands) + is_first


def _bytes(node: Node, operands: Sequence[int]) -> int:
    """Bytes of what is computed: the same in a narrower type is less."""
    return sum(operands) + (typical(node.type.nbytes) if node.kind in _POINTWISE else 0)


def _is_zero(node: Node) -> bool:
    return node.op == "scalar" and node.attr("value") == 0


def _is_literal(node: Node) -> bool:
    while node.kind == "view":
        node = node.inputs[0]
    return node.op == "scalar"


NUMBERS: tuple[Number, ...] = (
    _products,
    _arithmetic,
    _elements,
    _permutes,
    _ones,
    _merges,
    _ranks,
    _reshapes_outside,
    _moved,
    _views,
    _literals_first,
    _bytes,
)


class Measuring:
    """Measures nodes, each once."""

    def __init__(self) -> None:
        self._context = Context()
        self._known: dict[Node, Measure] = {}

    def measure(self, root: Node) -> Measure:
        """The measure of an expression."""
        waiting = [root]
        while waiting:
            node = waiting[-1]
            unknown = [operand for operand in node.inputs if operand not in self._known]
            waiting += unknown
            if not unknown:
                self._known[waiting.pop()] = self._of(node)
        return self._known[root]

    def _of(self, node: Node) -> Measure:
        operands = [self._known[operand] for operand in node.inputs]
        is_constant = self._context.is_constant(node)
        count = len(NUMBERS)
        found = []
        for place in range(2 * count):
            number = NUMBERS[place % count]
            if place < count and is_constant:
                found.append(0)
            elif not operands:
                found.append(int(number is _arithmetic))
            else:
                found.append(number(node, [each[place] for each in operands]))
        return tuple(found)
