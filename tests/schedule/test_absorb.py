"""A product of one row norms that row by itself, where that is cheaper than a kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import make
from aotc.aot.schedule import schedule
from aotc.aot.schedule.materialize import LONGEST_ROW, MOST_COLUMNS
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from test_schedule import graph_of, kinds, operand


def _normed(rows: int, depth: int):
    return b.root_mean_square_norm(operand("x", rows, depth), [1], 1e-5)


def _product(left, name: str, columns: int):
    return make("matmul", (left, operand(name, left.shape[-1], columns)), {})


def _kinds(*outputs, traits=GPUS[90]):
    return kinds(schedule(graph_of(*outputs), traits))


def test_one_row_and_one_reader_are_one_kernel():
    assert _kinds(_product(_normed(1, 256), "w", 512)) == ["matmul"]


def test_a_norm_that_is_an_output_too_stays_a_kernel():
    normed = _normed(1, 256)
    assert _kinds(normed, _product(normed, "w", 512)) == ["row", "matmul"]


def test_a_norm_of_two_readers_stays_a_kernel():
    normed = _normed(1, 256)
    found = _kinds(_product(normed, "v", 512), _product(normed, "w", 512))
    assert found == ["row", "matmul", "matmul"]


@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [(2, 256, 512), (1, LONGEST_ROW * 2, 512), (1, 256, MOST_COLUMNS * 2)],
)
def test_more_rows_a_longer_row_or_many_columns_stay_apart(rows, depth, columns):
    assert _kinds(_product(_normed(rows, depth), "w", columns)) == ["row", "matmul"]


def test_a_processor_keeps_its_kernels():
    assert _kinds(_product(_normed(1, 256), "w", 512), traits=CPU) == ["row", "matmul"]
