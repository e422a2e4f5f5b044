"""Turns a kernel of tensor cores' registers from Gluon into Triton, and what is written in PTX
into Triton's operations, which run anywhere: what says which thread has which elements is left out,
as it changes no number."""

from __future__ import annotations

import ast

ANY = "triton.experimental"
# By what a name of `gl` is called in Triton, and how many of its arguments say no layout.
_CALLS = {"arange": 2, "zeros": 2, "full": 3, "sum": 2, "convert_layout": 1}
# What stands in PTX, in Triton.
_FUNCTIONS = {
    "raised_nibbles": """
@triton.jit
def raised_nibbles(codes, ones: tl.constexpr, dtype: tl.constexpr):
    wide = codes.to(tl.uint8, bitcast=True).to(tl.int16)
    low, high = (wide & 15) ^ ones, ((wide >> 4) & 15) ^ ones
    return low.to(dtype, bitcast=True), high.to(dtype, bitcast=True)
""",
    "widened_bytes": """
@triton.jit
def widened_bytes(words, KIND: tl.constexpr):
    kind: tl.constexpr = tl.float8e4nv if KIND == "e4m3" else tl.float8e5
    return (
        words.to(tl.int8).to(kind, bitcast=True).to(tl.float32),
        (words >> 8).to(tl.int8).to(kind, bitcast=True).to(tl.float32),
        (words >> 16).to(tl.int8).to(kind, bitcast=True).to(tl.float32),
        (words >> 24).to(tl.int8).to(kind, bitcast=True).to(tl.float32),
    )
""",
}


class _Triton(ast.NodeTransformer):
    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if (node.module or "").startswith(ANY) else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return None if ast.unparse(node.annotation) == "gl.constexpr" else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name in _FUNCTIONS:
            return ast.parse(_FUNCTIONS[node.name]).body[0]
        if node.decorator_list:
            node.decorator_list = [ast.parse("triton.jit", mode="eval").body]
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name == "mma_v2":
            operands = ", ".join(map(ast.unparse, node.args))
            return ast.parse(f"tl.dot({operands}, input_precision='ieee')", mode="eval").body
        if name == "raised_nibbles":
            words, ones = node.args[1], int(ast.literal_eval(node.args[1]), 16) & 0xFFFF
            node.args[1] = ast.copy_location(ast.Constant(ones), words)
        if not name.startswith("gl.") or name[3:] not in _CALLS:
            return node
        kept = node.args[: _CALLS[name[3:]]]
        if name == "gl.convert_layout":
            return kept[0]
        return ast.Call(ast.parse(f"tl.{name[3:]}", mode="eval").body, kept, [])


def as_triton(source: str) -> str:
    """The same kernel in Triton, without assembly; one that copies by itself stays."""
    is_ours = f"from {ANY} import gluon" in source or any(name in source for name in _FUNCTIONS)
    if not is_ours or "warp_specialize" in source:
        return source
    return ast.unparse(ast.fix_missing_locations(_Triton().visit(ast.parse(source))))
