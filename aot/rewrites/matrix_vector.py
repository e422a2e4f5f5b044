"""Products with one column or one row as sums, which read the matrix along its memory, and those of
few terms, which need no tile.

A tile of a product has its lanes along the columns of the right operand. If that has one column, is
stored column by column, or has rows that are not aligned, the same numbers are a sum along the
inner dimension, which a row kernel reads in place, gathered or not.

On GPUs tiles have many rows and columns, and one row times a matrix that is stored row by row gives
a program to every few columns only, while a sum has as many programs as fill the device. Weights
are stored so that products of one row read them along the depth (`weights.orient_weights`).
Products of many small matrices, rotations for example, would be a program each, of a tile that is
mostly empty.
"""

from __future__ import annotations

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.rules import Context, Rule, rule_for
from aotc.aot.ir.size import divides, proves_at_most, typical
from aotc.aot.schedule.trace import UNROLL_PLAIN

VECTOR = 16  # elements of rows that a product reads without a mask
LARGE_MATRIX = 1 << 14  # elements from which on a GPU has more than a launch to do


def _column_sum(root: Node) -> Node | None:
    """A · b → sum over k of A[m, k] · b[k] for a column b and a matrix A that lies row by row"""
    matrix, column = root.inputs
    if root.shape[-1] != 1 or _lies_by_columns(matrix):
        return None
    return _summed(root, matrix, build.transpose(column), root.type.rank - 1)


def _column_transpose(root: Node) -> Node | None:
    """A · b → (bᵀ · Aᵀ)ᵀ for a column b and a matrix A that lies column by column"""
    matrix, column = root.inputs
    if root.shape[-1] != 1 or not _lies_by_columns(matrix):
        return None
    return build.transpose(make("matmul", (build.transpose(column), build.transpose(matrix))))


def _row_sum(root: Node) -> Node | None:
    """a · B → sum over k of a[k] · B[k, n] for a row a and a matrix B that lies column by column

    or whose rows begin anywhere: a product reads these with a mask."""
    row, matrix = root.inputs
    if root.shape[-2] != 1 or root.shape[-1] == 1:
        return None
    if not _lies_by_columns(matrix) and divides(VECTOR, root.shape[-1]):
        return None
    return _summed(root, build.transpose(row), matrix, root.type.rank - 2)


def _large_column_sum(root: Node) -> Node | None:
    """A · b → sum over k of A[m, k] · b[k] for a column b and a large matrix A"""
    matrix = root.inputs[0]
    return _column_sum(root) if typical(matrix.type.numel) >= LARGE_MATRIX else None


def _large_row_sum(root: Node, context: Context) -> Node | None:
    """a · B → sum over k of a[k] · B[k, n] for a row a and a large matrix B that lies row by row"""
    row, matrix = root.inputs
    is_row = root.shape[-2] == 1 and root.shape[-1] != 1
    if not is_row or context.is_constant(matrix) or _lies_by_columns(matrix):
        return None
    if typical(matrix.shape[-2] * matrix.shape[-1]) < LARGE_MATRIX:
        return None
    return _summed(root, build.transpose(row), matrix, root.type.rank - 2)


def _few_terms(root: Node, context: Context) -> Node | None:
    """A · B → sum over k of A[m, k] · B[k, n] for few k, B no constant"""
    left, right = root.inputs
    if not proves_at_most(left.shape[-1], UNROLL_PLAIN) or context.is_constant(right):
        return None
    rows = build.reshape(left, (*left.shape, 1))
    columns = build.reshape(right, (*right.shape[:-2], 1, *right.shape[-2:]))
    return build.reshape(_summed(root, rows, columns, root.type.rank - 1), root.shape)


def _summed(root: Node, left: Node, right: Node, axis: int) -> Node:
    """Products of the elements of two operands, summed along an axis with a product's precision."""
    wide = "f64" if root.dtype == "f64" else "f32"
    products = build.cast(left, wide) * build.cast(right, wide)
    return build.cast(build.reduce("sum", products, (axis,)), root.dtype)


def _lies_by_columns(matrix: Node) -> bool:
    """Whether elements of one column, not of one row, lie together in the memory behind it."""
    rank = matrix.type.rank
    if matrix.shape[-2] == 1:
        return False
    order = tuple(range(rank))  # the axes behind those of the matrix
    while True:
        if matrix.op == "permute":
            order = tuple(matrix.attr("dims")[axis] for axis in order)
            matrix = matrix.inputs[0]
            continue
        whole = [operand for operand in matrix.inputs if operand.shape == matrix.shape]
        if matrix.kind != "pointwise" or not whole:
            return order[rank - 2] == rank - 1
        matrix = whole[0]


# A · b → Σ A[m, k] · b[k]
# A · b → (bᵀ · Aᵀ)ᵀ, A a view of its columns
# a · B → Σ a[k] · B[k, n], B a view of its columns or of rows that begin anywhere
RULES: tuple[Rule, ...] = (
    rule_for(("matmul",), "column-sum", _column_sum, is_exact=False),
    rule_for(("matmul",), "column-transpose", _column_transpose, is_exact=False),
    rule_for(("matmul",), "row-sum", _row_sum, is_exact=False),
)
# On GPUs, of large matrices: as the first, and a · B → Σ a[k] · B[k, n], B a view of its rows
LARGE: tuple[Rule, ...] = (
    rule_for(("matmul",), "large-column-sum", _large_column_sum, is_exact=False),
    rule_for(("matmul",), "large-row-sum", _large_row_sum, is_exact=False),
)
FEW: tuple[Rule, ...] = (
    # A · B → Σ A[m, k] · B[k, n] over few k, B no constant
    rule_for(("matmul",), "few-terms", _few_terms, is_exact=False),
)
GPU_RULES: tuple[Rule, ...] = (*LARGE, RULES[1], *FEW)
