"""What the ranks of a program exchange, as a call."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from aotc.aot.ir.call import CallArgument
from aotc.aot.ir.graph import Node
from aotc.aot.ir.infer import EXCHANGE_PROGRAMS
from aotc.aot.ir.size import highest, typical
from aotc.aot.ir.size import kernel_text as size_text
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.call import Called
from aotc.aot.lower.placed.template import (
    Block,
    Grid,
    from_template,
    operands_of,
)
from aotc.aot.lower.spec import Scratch
from aotc.aot.traits import TargetTraits
from aotc.kernels.templates.registry import (
    EXCHANGE,
)

EXCHANGED_BYTES = 4096  # of a row that a program stores at a time
EXCHANGED_WORDS = 512  # the same, of elements that travel in words of 8 bytes
MOST_WORDS = 1 << 14  # elements that do: each session has twice as many words for every rank
EXCHANGE_LOOKS = 1 << 23  # at a flag of a rank that does not come, of about a microsecond each
ALIGNED_BYTES = 16  # of memory that threads load and store at once


def exchange(node: Node, traits: TargetTraits) -> Called:
    """A program gives and awaits its share of the elements."""
    (data, status), _, how = operands_of(node)
    ranks, itemsize_bytes = how["ranks"], DTYPES[node.attr("results")[0][0]].itemsize_bytes
    count, word_bytes = prod(data.shape[1:]), DTYPES["i64"].itemsize_bytes
    most_words = MOST_WORDS if itemsize_bytes < word_bytes else 0
    block = EXCHANGED_BYTES // itemsize_bytes
    at_a_time = EXCHANGED_WORDS if typical(count) <= most_words else block
    programs = max(1, min(EXCHANGE_PROGRAMS, -(-typical(count) // at_a_time)))
    flags = EXCHANGE_PROGRAMS * ranks // 2
    numbers = {
        "COUNT": size_text(count),
        "RANKS": ranks,
        "IS_SCATTERED": data.shape[0] == ranks,
        "PROGRAMS": programs,
        "STATUS": EXCHANGE_PROGRAMS,
        "FLAGS": flags,
        "UNIT": ALIGNED_BYTES // itemsize_bytes,
        "BLOCK": block,
        "MOST_WORDS": most_words,
        "WORDS_BLOCK": EXCHANGED_WORDS,
        "LIMIT": EXCHANGE_LOOKS,
    }
    blocks: list[tuple[Block, Grid]] = [({}, (programs, 1, 1))]
    stored, reads = {"out": 0, "status_out": 1}, {"data": data, "status": status}
    called = from_template(
        EXCHANGE, "exchange", stored, reads, numbers, blocks, num_stages=1, num_warps=8
    )
    peers = ", ".join(f"peer_{rank}" for rank in range(ranks))
    more: tuple[CallArgument, ...] = (
        ("arrivals_ptr", "value", "arrivals"),
        ("peers", "value", f"({peers},)"),
    )
    longest = -(-min(highest(count), most_words) // EXCHANGED_WORDS) * EXCHANGED_WORDS
    words = flags + ranks * longest
    scratch = Scratch("arrivals", "*i64", words * word_bytes, is_zeroed=True, turns=2)
    return replace(called, arguments=(*called.arguments, *more), scratch=(scratch,), ranks=ranks)
