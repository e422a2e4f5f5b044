"""Calls of our own kernels of attention: forward with the rows' sums, and the gradients.

A program has a tile of rows, or for the gradients a whole head of keys, so that scores stay in the
cache and every sum has one order. Operands are read where they lie, heads beside each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aotc.aot.ir import build, types
from aotc.aot.ir.call import CallArgument, CallCandidate
from aotc.aot.ir.graph import AttrValue, Node, make
from aotc.aot.ir.own_calls import LAUNCH_OPTIONS, values
from aotc.aot.ir.size import Shape, fixed
from aotc.aot.ir.viewed import Placed, placed, spread
from aotc.kernels.templates.registry import ATTENTION, kernel_text

FORWARD, BACKWARD = "attention_forward", "attention_backward"
DTYPES = ("f32", "bf16", "f16")
GRADIENTS = ("DQ", "DK", "DV")
LARGEST_ELEMENT = 256  # numbers of one row of a head
SMALLEST_BLOCK, LARGEST_BLOCK = 16, 64  # rows, or keys, of a block of scores
BLOCK_COST = 8  # rows or keys that take as long as a block takes for itself
OPERATIONS_PER_BYTE = 10  # of one core, and of the memory that scores leave its caches for
SCORE_PASSES = 4  # of arithmetic over scores: written and read, and the weights again
MORE_BLOCKS = ((32, 64), (64, 32), (128, 128))  # that tuning tries: rows and keys
BLOCK_ELEMENTS = 64 * 256  # of an operand's block, which shares the nearest caches with others


@dataclass(frozen=True, slots=True)
class Scoring:
    """What scores are made of beside q and k: q·kᵀ · scale + mask.

    `mask` is a float that broadcasts to [B, H, T, S]. Row x sees the keys up to x + `offset`, or
    all; gradients want at least 0. A row that sees nothing is zeros if `is_safe`, else no number.
    """

    scale: float
    offset: int | None = None
    mask: Node | None = None
    is_safe: bool = True


def is_cheaper(query: Shape, key: Shape, value: Shape) -> bool:
    """Whether the kernels do attention of these shapes, all fixed, for less than arithmetic does.

    That moves its scores through memory; the kernels fill up blocks of rows and keys.
    """
    rows, keys = fixed(query[2]), fixed(key[2])
    elements = fixed(query[3]), fixed(value[3])
    if min(rows, keys, *elements) == 0 or max(elements) > LARGEST_ELEMENT:
        return False
    down, across = (_block(extent, max(elements)) for extent in (rows, keys))
    filled = -(-rows // down) * down * -(-keys // across) * across
    moved = SCORE_PASSES * types.DTYPES["f32"].itemsize_bytes * rows * keys
    return 2 * sum(elements) * (filled - rows * keys) <= OPERATIONS_PER_BYTE * moved


def _block(extent: int, widest: int) -> int:
    """Rows, or keys, of a block: the fewest with what fills up the last one, and for each block."""
    largest = max(SMALLEST_BLOCK, min(LARGEST_BLOCK, BLOCK_ELEMENTS // _power(widest)))
    found, block = largest, largest
    while block >= SMALLEST_BLOCK:
        if _cost(extent, block) < _cost(extent, found):
            found = block
        block //= 2
    return found


def _cost(extent: int, block: int) -> int:
    return -(-extent // block) * (block + BLOCK_COST)


def forward(query: Node, key: Node, value: Node, scoring: Scoring) -> tuple[Node, Node]:
    """softmax(scores)·v of q [B, H, T, D], k [B, G, S, D] and v [B, G, S, E], of fixed shapes, and
    the logarithms of the sums of the rows' powers, f32 [B, H, T]. H is a multiple of G.

    Both lie as torch leaves them, [B, T, H, E] and [B, T, H].
    """
    call = _Call(query, key, value, scoring)
    batch, heads, rows, _ = query.shape
    call.numbers |= {"HEADS": heads, "SAFE": scoring.is_safe}
    types = ((query.dtype, (batch, rows, heads, value.shape[3])), ("f32", (batch, rows, heads)))
    candidates = [(block, (-(-rows // block[0]), heads, batch)) for block in call.blocks()]
    out, sums = call.results(FORWARD, ("out_ptr", "sums_ptr"), types, candidates)
    return build.permute(out, (0, 2, 1, 3)), build.permute(sums, (0, 2, 1))


def backward(
    gradient: Node, query: Node, key: Node, value: Node, ends: tuple[Node, Node], scoring: Scoring
) -> tuple[Node, Node, Node]:
    """The gradients of q, k and v from that of the result; `ends` are the results of `forward`."""
    call = _Call(query, key, value, scoring)
    out, sums = ends
    for letter, place in (("g", placed(gradient)), ("out", placed(out)), ("sums", spread(sums))):
        call.read(letter, place)
    batch, groups = key.shape[:2]
    shapes = [(batch, each.shape[2], each.shape[1] * each.shape[3]) for each in (query, key, value)]
    for name, shape in zip(GRADIENTS, shapes, strict=True):
        call.numbers[name] = (shape[2], 0)
    # Several blocks of keys add to the first one, in memory.
    types = tuple(zip(("f32", key.dtype, value.dtype), shapes, strict=True))
    candidates = [(block, (groups, batch, 1)) for block in call.blocks()]
    names = tuple(f"{name.lower()}_ptr" for name in GRADIENTS)
    found = call.results(BACKWARD, names, types, candidates)
    laid = []
    for made, operand in zip(found, (query, key, value), strict=True):
        heads, rows, element = operand.shape[1:]
        split = build.reshape(made, (batch, rows, heads, element))
        laid.append(build.permute(split, (0, 2, 1, 3)))
    return build.cast(laid[0], query.dtype), laid[1], laid[2]


def joined(calls: Sequence[Node]) -> Node | None:
    """The three results of one `backward`, in any order, beside each other along their rows: the
    same call with one result. None where the nodes are something else."""
    first = calls[0]
    if first.op != "call" or first.attr("function") != BACKWARD:
        return None
    same = dict(first.attrs) | {"result": 0}
    rows = [dict(call.attrs) | {"result": 0} for call in calls if call.op == "call"]
    numbers = [call.attr("result") for call in calls if call.inputs == first.inputs]
    if sorted(numbers) != [0, 1, 2] or rows != [same] * len(calls):
        return None
    if len({each.dtype for each in calls}) > 1 or len({each.shape[:2] for each in calls}) > 1:
        return None
    width = sum(int(each.shape[2]) for each in calls)
    given: dict[str, CallArgument] = {}
    start = 0
    for number, call in zip(numbers, calls, strict=True):
        name = GRADIENTS[number]
        pointer = f"{name.lower()}_ptr"
        given[pointer] = (pointer, "stored", 0)
        given |= {row[0]: row for row in values({name: (width, start)})}
        start += int(call.shape[2])
    arguments = tuple(given.get(row[0], row) for row in first.attr("arguments"))
    results = ((first.dtype, (*first.shape[:2], width)),)
    return make("call", first.inputs, {**same, "arguments": arguments, "results": results})


class _Call:
    """The parts of a call, gathered one by one."""

    def __init__(self, query: Node, key: Node, value: Node, scoring: Scoring) -> None:
        self.operands: list[Node] = []
        self.reads: list[CallArgument] = []
        _, heads, rows, element = query.shape
        self.rows, self.keys, width = fixed(rows), fixed(key.shape[2]), value.shape[3]
        self.widest = max(fixed(element), fixed(width))
        self.numbers: dict[str, AttrValue] = {
            "RATIO": heads // key.shape[1],
            "T": rows,
            "S": self.keys,
            "D": element,
            "E": width,
            "BD": _power(element),
            "BE": _power(width),
            "SCALE": scoring.scale,
            "CAUSAL": scoring.offset,
        }
        for name, operand in (("q", query), ("k", key), ("v", value)):
            self.read(name, placed(operand))
        self._mask(query, scoring.mask)

    def read(self, name: str, found: Placed) -> None:
        """Give an operand, and its steps to the next batch, head and row."""
        self._read(name, found)
        self.numbers[name.upper()] = found.strides[:3]

    def _read(self, name: str, found: Placed) -> None:
        if found.memory not in self.operands:
            self.operands.append(found.memory)
        place = self.operands.index(found.memory)
        self.reads.append((f"{name}_ptr", "read", (place, found.start)))

    def _mask(self, query: Node, mask: Node | None) -> None:
        """The mask as [B, H, T, S]; where there is none, a pointer that nothing reads."""
        if mask is None:
            self.reads.append(("mask_ptr", "read", (0, 0)))
            self.numbers["MASK"] = None
            return
        full = build.expand(build.align(mask, 4), (*query.shape[:3], self.keys))
        found = spread(full)
        self._read("mask", found)
        self.numbers["MASK"] = found.strides

    def blocks(self) -> list[tuple[int, int]]:
        """Rows and keys of a block, the first as a rule the fastest."""
        first = _block(self.rows, self.widest), _block(self.keys, self.widest)
        tallest, widest = _power(self.rows), _power(self.keys)
        fitting = [(rows, keys) for rows, keys in MORE_BLOCKS if rows <= tallest and keys <= widest]
        return list(dict.fromkeys((first, *fitting)))

    def results(
        self,
        function: str,
        names: Sequence[str],
        types: Sequence[tuple[str, tuple[AttrValue, ...]]],
        candidates: Sequence[tuple[tuple[int, int], tuple[AttrValue, ...]]],
    ) -> list[Node]:
        """The results of a call of `function`, which stores them through the parameters `names`."""
        stored: list[CallArgument] = [(name, "stored", at) for at, name in enumerate(names)]
        configs: list[CallArgument] = [(name, "config", name) for name in ("BM", "BN")]
        rows = tuple(_candidate(block, grid) for block, grid in candidates)
        attrs: Mapping[str, AttrValue] = {
            "source": kernel_text(ATTENTION),
            "function": function,
            "arguments": (*stored, *self.reads, *values(self.numbers), *configs),
            "candidates": rows,
            "results": tuple(types),
            "updates": (),
        }
        operands = tuple(self.operands)
        return [make("call", operands, {**attrs, "result": at}) for at in range(len(types))]


def _candidate(block: tuple[int, int], grid: tuple[AttrValue, ...]) -> CallCandidate:
    rows, keys = block
    x, y, z = grid
    return (("BM", rows), ("BN", keys), *LAUNCH_OPTIONS), (x, y, z)


def _power(extent: AttrValue) -> int:
    """The power of two that is no less."""
    return 1 << (int(extent) - 1).bit_length()
