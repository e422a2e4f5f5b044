"""Inductor's test file, read without its checks of Inductor's own kernels, counters and code.

A check goes, and it alone: a statement that compares numbers of tensors stays, so that a test which
looks at generated code still judges what the code computes.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

# What runs a function and returns its result and the code that Inductor made of it.
WITH_CODE = (
    "run_and_get_code", "run_and_get_cpp_code", "run_and_get_kernels",
    "_run_and_get_stripped_kernels",
)  # fmt: skip
WITH_GRADIENTS = ("run_fw_bw_and_get_code",)
CODE_ALONE = ("run_and_get_triton_code",)
RESULT_ALONE = ("_run_and_assert_no_indirect_indexing",)
COUNTERS = ("generated_kernel_count", "ir_nodes_pre_fusion")
CHECKS = ("FileCheck", "assertGeneratedKernelCountEqual")


class GeneratedCode:
    """Stands for code that Inductor did not make; nothing can be read from it."""


@dataclass
class _Cleared(ast.NodeTransformer):
    """One test without the checks; `owned` are the names that hold code or counts."""

    owned: set[str] = field(default_factory=set)
    dropped: int = 0

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return self._drop(node) if self._is_check(node.value) else node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return self._drop(node) if self._reads(node.test) else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        names = _names(node.targets[0])
        called = _called(node.value)
        if called in (*WITH_CODE, *WITH_GRADIENTS) and isinstance(node.targets[0], ast.Tuple):
            result, code = node.targets[0].elts
            self.owned |= _names(code)
            if not isinstance(code, ast.Name):
                code = ast.Name("_generated_code", ast.Store())
            node.targets = [ast.Tuple([result, code], ast.Store())]
        elif called in CODE_ALONE:
            self.owned |= names
        elif self._reads(node.value) and not _runs(node.value):
            self.owned |= names
            return self._drop(node)
        else:
            self.owned -= names
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._drop(node) if self._reads(node.test) else self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._drop(node) if self._reads(node.iter) else self.generic_visit(node)

    def _drop(self, node: ast.AST) -> ast.AST:
        self.dropped += 1
        return ast.copy_location(ast.Pass(), node)

    def _is_check(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self._reads(node) and not _runs(node)

    def _reads(self, node: ast.AST) -> bool:
        """Whether an expression reads code, or a counter of Inductor's."""
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and (each.id in self.owned or each.id in CHECKS):
                return True
            if isinstance(each, ast.Attribute) and each.attr in COUNTERS:
                return True
        return False


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _called(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _runs(node: ast.AST) -> bool:
    """Whether an expression runs what is tested, and so must stay."""
    return any(_called(each) in _STAND_INS for each in ast.walk(node))


def cleared(text: str) -> tuple[ast.Module, dict[str, int]]:
    """The file without the checks, and how many of them each test had."""
    tree = ast.parse(text)
    counts = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            clear = _Cleared()
            node.body = [clear.visit(statement) for statement in node.body]
            counts[node.name] = clear.dropped
    return ast.fix_missing_locations(tree), counts


def load_tests(path: Path) -> Any:
    """The module of a test file; `dropped_checks` says how many checks each test lost."""
    sys.path[:0] = [str(path.parent), str(path.parent.parent)]
    tree, counts = cleared(path.read_text())
    spec = importlib.util.spec_from_loader("inductor_tests_of_torch", None, origin=str(path))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    sys.modules[spec.name] = module
    exec(compile(tree, str(path), "exec"), vars(module))
    vars(module).update(_STAND_INS)
    module.dropped_checks = counts  # type: ignore[attr-defined]
    return module


def _with_code(function: Callable[..., Any], *given: Any, **named: Any) -> tuple[Any, Any]:
    torch._dynamo.reset()
    return function(*given, **named), GeneratedCode()


def _with_gradients(function: Callable[[], Any]) -> tuple[Any, Any]:
    torch._dynamo.reset()
    result = function()
    result.sum().backward()
    return result, GeneratedCode()


def _code_alone(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    return _with_code(function, *given, **named)[1]


def _result_alone(
    _case: Any, function: Callable[..., Any], *given: Any, has_wrapping: Any = None,
    has_assert: Any = None, **named: Any,
) -> Any:  # fmt: skip
    return _with_code(function, *given, **named)[0]


_STAND_INS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(WITH_CODE, _with_code),
    **dict.fromkeys(WITH_GRADIENTS, _with_gradients),
    **dict.fromkeys(CODE_ALONE, _code_alone),
    **dict.fromkeys(RESULT_ALONE, _result_alone),
}
