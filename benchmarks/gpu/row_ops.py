"""The memory-bound ops of the benchmark: their graphs, and what torch computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Op:
    """A row op: its graph from (rows, columns, dtype), what torch computes, passes over the rows.

    `reads` and `writes` count tensors of full size.
    """

    graph: Callable[[int, int, str], list[Node]]
    torch: Callable[..., torch.Tensor | Tensors]
    reads: int = 1
    writes: int = 1
    result: Callable[[int, int], tuple[int, int]] = lambda rows, columns: (rows, columns)
    is_by_rows: bool = True  # a row of the result depends on the same row of the inputs only


def _input(name: str, dtype: str, *shape: int) -> Node:
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def _softmax(rows: int, columns: int, dtype: str) -> list[Node]:
    return [build.softmax(_input("x", dtype, rows, columns), (1,))]


def _layer_norm(rows: int, columns: int, dtype: str) -> list[Node]:
    x = build.standardize(_input("x", dtype, rows, columns), [1], 1e-5)
    scale, shift = (_input(name, dtype, 1, columns) for name in ("scale", "shift"))
    return [x * scale + shift]


def _rms_norm(rows: int, columns: int, dtype: str) -> list[Node]:
    x = build.root_mean_square_norm(_input("x", dtype, rows, columns), [1], 1e-6)
    return [x * _input("scale", dtype, 1, columns)]


def _residual(rows: int, columns: int, dtype: str) -> list[Node]:
    total = _input("x", dtype, rows, columns) + _input("y", dtype, rows, columns)
    normed = build.root_mean_square_norm(total, [1], 1e-6)
    return [normed * _input("scale", dtype, 1, columns), total]


def _cross_entropy(rows: int, columns: int, dtype: str) -> list[Node]:
    logits = build.cast(_input("x", dtype, rows, columns), "f32")
    labels = _input("labels", "i64", rows, 1)
    found = make("gather", (build.log_softmax(logits, (1,)), labels), {"axis": 1})
    return [-found]


def _bias_gelu(rows: int, columns: int, dtype: str) -> list[Node]:
    x = _input("x", dtype, rows, columns) + _input("scale", dtype, 1, columns)
    return [build.unary("gelu", x)]


def _add(rows: int, columns: int, dtype: str) -> list[Node]:
    return [_input("x", dtype, rows, columns) + _input("y", dtype, rows, columns)]


def _transpose(rows: int, columns: int, dtype: str) -> list[Node]:
    return [build.permute(_input("x", dtype, rows, columns), (1, 0))]


def _sum_rows(rows: int, columns: int, dtype: str) -> list[Node]:
    return [build.reduce("sum", _input("x", dtype, rows, columns), [1])]


def _sum_columns(rows: int, columns: int, dtype: str) -> list[Node]:
    return [build.reduce("sum", _input("x", dtype, rows, columns), [0])]


def _sum_all(rows: int, columns: int, dtype: str) -> list[Node]:
    return [build.reduce("sum", _input("x", dtype, rows, columns), [0, 1])]


def _torch_residual(x: torch.Tensor, y: torch.Tensor, scale: torch.Tensor) -> Tensors:
    total = x + y
    return torch.nn.functional.rms_norm(total, scale.shape[1:], scale[0], 1e-6), total


OPS = {
    "softmax": Op(_softmax, lambda x: torch.softmax(x, 1)),
    "layer_norm": Op(
        _layer_norm,
        lambda x, scale, shift: torch.nn.functional.layer_norm(
            x, scale.shape[1:], scale[0], shift[0], 1e-5
        ),
    ),
    "rms_norm": Op(
        _rms_norm,
        lambda x, scale: torch.nn.functional.rms_norm(x, scale.shape[1:], scale[0], 1e-6),
    ),
    "residual": Op(_residual, _torch_residual, 2, 2),
    "cross_entropy": Op(
        _cross_entropy,
        lambda x, labels: torch.nn.functional.cross_entropy(
            x.float() if x.dtype != torch.float64 else x, labels[:, 0], reduction="none"
        )[:, None],
        1,
        0,
        lambda rows, columns: (rows, 1),
    ),
    "bias_gelu": Op(_bias_gelu, lambda x, scale: torch.nn.functional.gelu(x + scale)),
    "add": Op(_add, lambda x, y: x + y, 2),
    "transpose": Op(
        _transpose,
        lambda x: x.t().contiguous(),
        result=lambda rows, columns: (columns, rows),
        is_by_rows=False,
    ),
    "sum_rows": Op(
        _sum_rows, lambda x: x.sum(1, keepdim=True), 1, 0, lambda rows, columns: (rows, 1)
    ),
    "sum_columns": Op(
        _sum_columns,
        lambda x: x.sum(0, keepdim=True),
        1,
        0,
        lambda rows, columns: (1, columns),
        is_by_rows=False,
    ),
    "sum_all": Op(
        _sum_all,
        lambda x: x.sum((0, 1), keepdim=True),
        1,
        0,
        lambda rows, columns: (1, 1),
        is_by_rows=False,
    ),
}
ROW_OPS = ("softmax", "layer_norm", "rms_norm", "residual", "cross_entropy")
