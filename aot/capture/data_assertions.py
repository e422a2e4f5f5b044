"""`if data: raise …` and `assert data` in a model, as checks in each call instead of a decision.

Python asks such a tensor for its truth value, which an export does not have. The statement itself
shows for which value the model goes on: the trace takes that value, and asserts it.
"""

from __future__ import annotations

import ast
import functools
import linecache
import math
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

MODES = frozenset({"__torch_function__", "_override", "handle_torch_function", "override"})
TEXT_SHOWN = 160
HALF_LOG = 0.5 * math.log(2 * math.pi)
EXPORTING = str(Path(torch.__file__).parent / "_export")


def decision(tensor: torch.Tensor) -> tuple[torch.Tensor, bool, str] | None:
    """For a tensor that Python asks for its truth value: the arguments of `assert_truth`; None
    where the model goes on for both values."""
    if tensor.numel() != 1 or getattr(tensor, "constant", None) is not None:
        return None
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_name in MODES:
        frame = frame.f_back
    place = _place(frame)
    if place is None or frame.f_code.co_filename.startswith(EXPORTING):
        return None
    for statement in _statements(frame.f_code.co_filename):
        asked = next((each for each in ast.walk(statement.test) if _span(each) == place), None)
        if asked is not None:
            wanted = _wanted(statement.test, asked, isinstance(statement, ast.Assert))
            return None if wanted is None else (tensor, wanted, _message(statement))
    return None


def assert_truth(tensor: torch.Tensor, wanted: bool, message: str) -> bool:
    """The wanted value, after a check that the tensor has it at each call."""
    truth = tensor.reshape(()) != 0
    torch.ops.aten._assert_async.msg(truth if wanted else truth.logical_not(), message)
    return wanted


def gaussian_nll_loss(
    input: torch.Tensor, target: torch.Tensor, var: Any, full: bool = False, eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:  # fmt: skip
    """torch's function of this name, whose own decision no mode sees, with a check."""
    if not isinstance(var, torch.Tensor):
        return torch.nn.functional.gaussian_nll_loss(input, target, var, full, eps, reduction)
    assert_truth((var < 0).any(), False, "the model raises ValueError: var has negative entries")
    if var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    else:
        torch._check(var.dim() == input.dim(), lambda: "var is of incorrect size")
    var = var.detach().clamp(min=eps) + (var - var.detach())  # gradients as if nothing was clamped
    loss = 0.5 * (var.log() + (input - target) ** 2 / var) + (HALF_LOG if full else 0.0)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def _place(frame: FrameType) -> tuple[Any, ...] | None:
    """Lines and columns of the expression whose truth a frame asks for.

    Jumps have the place of the whole statement, the instruction before that of the expression.
    """
    positions = list(frame.f_code.co_positions())
    line, end, column, end_column = positions[frame.f_lasti // 2 - 1]
    return None if line is None or column is None else (line, column, end, end_column)


def _span(node: ast.AST) -> tuple[Any, ...] | None:
    if not isinstance(node, ast.expr):
        return None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


@functools.lru_cache(maxsize=64)
def _statements(path: str) -> tuple[Any, ...]:
    """All statements of a file in which the model goes on for only one value of a condition."""
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ()
    caught = {
        inner
        for each in ast.walk(tree)
        if isinstance(each, ast.Try) and each.handlers
        for statement in each.body
        for inner in ast.walk(statement)
    }
    return tuple(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
        or (isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise))
        if node not in caught
    )


def _wanted(test: ast.expr, asked: ast.expr, is_true: bool) -> bool | None:
    """The value that one part of a condition must have for the whole to have its own; None if it
    may have either."""
    if test is asked:
        # Python 3.12 asks for a part of such a value in the name of the whole.
        return None if isinstance(test, ast.BoolOp) else is_true
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _wanted(test.operand, asked, not is_true)
    if isinstance(test, ast.Call) and ast.unparse(test.func) == "bool":
        return _wanted(test.args[0], asked, is_true)
    if not isinstance(test, ast.BoolOp):
        return None
    # Parts come one by one, each where those before it leave the whole open.
    at = next(n for n, each in enumerate(test.values) if asked in ast.walk(each))
    needs_all = isinstance(test.op, ast.And) == is_true
    is_last = at == len(test.values) - 1
    return _wanted(test.values[at], asked, is_true) if needs_all or is_last else None


def _message(statement: ast.Assert | ast.If) -> str:
    """The model's own message where that is plain text, else the condition."""
    said: ast.expr | None = None
    kind = "AssertionError"
    if isinstance(statement, ast.Assert):
        said = statement.msg
    else:
        raised = statement.body[-1]
        assert isinstance(raised, ast.Raise)
        kind = "an error"
        if isinstance(raised.exc, ast.Call):
            kind = ast.unparse(raised.exc.func)
            said = raised.exc.args[0] if raised.exc.args else None
        elif raised.exc is not None:
            kind = ast.unparse(raised.exc)
    if isinstance(said, ast.Constant) and isinstance(said.value, str):
        return f"the model raises {kind}: {said.value}"[:TEXT_SHOWN]
    word = "does not hold" if isinstance(statement, ast.Assert) else "holds"
    return f"the model raises {kind}: `{ast.unparse(statement.test)[:TEXT_SHOWN]}` {word}"
