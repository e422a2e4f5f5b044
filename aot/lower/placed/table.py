"""Kernels of ours that are called as they stand, for ops on memory: one function for each."""

from __future__ import annotations

from collections.abc import Callable

from aotc.aot.ir.graph import Node
from aotc.aot.lower.call import Called
from aotc.aot.lower.placed.attention import attention, attention_backward
from aotc.aot.lower.placed.exchange import exchange
from aotc.aot.lower.placed.fourier import fourier
from aotc.aot.lower.placed.merging import count_places, scatter_rows, sum_runs
from aotc.aot.lower.placed.moving import copy, grouped_matmul
from aotc.aot.lower.placed.order import (
    count_digits,
    merge_runs,
    nth_places,
    order_by_digit,
    order_rows,
    select_rows,
    sort_runs,
    sum_digits,
)
from aotc.aot.lower.placed.scan import scan, scan_blocks
from aotc.aot.traits import TargetTraits

# The kernels of `placed` ops.
ON_MEMORY: dict[str, Callable[[Node, TargetTraits], Called]] = {
    row.__name__: row
    for row in (
        attention,
        attention_backward,
        scatter_rows,
        count_places,
        sum_runs,
        fourier,
        count_digits,
        sum_digits,
        order_by_digit,
        sort_runs,
        merge_runs,
        copy,
        grouped_matmul,
        order_rows,
        select_rows,
        nth_places,
        scan,
        scan_blocks,
        exchange,
    )
}
