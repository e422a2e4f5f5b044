"""The import table: base name of an ATen op → row. To import an op, add a row to its file.

Ops that no bundle computes have rows that say why, and what to do instead.
"""

from __future__ import annotations

from typing import Any

from aotc.aot.capture.imports import (
    attention,
    contractions,
    distinct,
    embedding_bags,
    functions,
    grouped,
    indexing,
    movement,
    pointwise,
    pooling,
    reductions,
    resampling,
    rng,
    scans,
    sorting,
)
from aotc.aot.capture.imports.call import Call, NotSupported, Row, Rows

RANDOM = (
    "it draws random numbers by a generator of its own, or in a way that no program draws: draw "
    "them outside of the model and pass them in"
)
COMPLEX = "complex numbers: write it with their real and imaginary parts"
GAMMA = "this function of the gamma family has no kernel: compute it outside of the model"
REFUSED: dict[str, tuple[str, ...]] = {
    RANDOM: (
        "aotc::dropout_mask", "bernoulli", "cauchy", "exponential", "geometric", "log_normal",
        "multinomial", "native_dropout", "normal", "normal_functional", "rand", "rand_like",
        "randint", "randint_like", "randn", "randn_like", "randperm", "rrelu_with_noise_functional",
        "uniform",
    ),
    GAMMA: ("igamma", "igammac"),
    COMPLEX: ("_fft_c2c", "_fft_c2r", "_fft_r2c", "complex", "view_as_complex", "view_as_real"),
}  # fmt: skip


def refusing(reason: str) -> Row:
    """The row of an op that no bundle computes."""

    def row(call: Call, *arguments: Any) -> Any:
        raise NotSupported(reason)

    return row


# Views whose copies, `permute_copy` of `permute`, stand in graphs where nothing may be shared.
COPIED_VIEWS = (
    "alias", "detach", "diagonal", "expand", "permute", "select", "slice", "split",
    "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view",
    "view_as_complex", "view_as_real",
)  # fmt: skip

ROWS: Rows = {
    **attention.ROWS,
    **contractions.ROWS,
    **distinct.ROWS,
    **embedding_bags.ROWS,
    **functions.ROWS,
    **grouped.ROWS,
    **indexing.ROWS,
    **movement.ROWS,
    **pointwise.ROWS,
    **pooling.ROWS,
    **reductions.ROWS,
    **resampling.ROWS,
    **rng.ROWS,
    **scans.ROWS,
    **sorting.ROWS,
    **{name: refusing(reason) for reason, names in REFUSED.items() for name in names},
}
ROWS |= {f"{name}_copy": ROWS[name] for name in COPIED_VIEWS if name in ROWS}

# Calls that check and return nothing; export has already proved them for these inputs.
CHECKS = frozenset(
    {
        "_assert_async",
        "_assert_scalar",
        "_assert_tensor_metadata",
        "sym_constrain_range",
        "sym_constrain_range_for_size",
    }
)
ASSERTIONS = frozenset({"_assert_async", "_assert_scalar"})  # of these, those that data decide

# Ops whose decompositions would let places through that the ops themselves refuse.
INDEXED_WHOLE = ("index_add", "index_copy", "index_fill", "index_reduce", "one_hot")

# The root of a variance that is not finite, or 0, may be a number.
DEVIATIONS = ("std.correction", "std_mean.correction")

# Sums of products, which torch's own kernels round once, and its decompositions twice.
SUMS_OF_PRODUCTS = ("addcmul", "lerp")

# Ops whose decompositions of some release of torch give other numbers than eager: -0 for 0.
OTHERWISE_DECOMPOSED = ("frac", "softshrink")

# Moves of windows, whose elements torch's decompositions gather and scatter by computed places.
WINDOWS_WHOLE = ("col2im", "im2col")

# Composite ops that the table imports whole: arithmetic of ours in place of torch's decomposition.
NOT_DECOMPOSED = (
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "group_norm",
    *INDEXED_WHOLE,
    *OTHERWISE_DECOMPOSED,
    "layer_norm",
    "linear",
    "log_softmax",
    "matmul",
    "max_pool2d",
    "rms_norm",
    "scaled_dot_product_attention",
    "select_scatter",
    "silu",
    "softmax",
    "special_log_ndtr",
    "special_ndtr",
    *DEVIATIONS,
    *SUMS_OF_PRODUCTS,
    "take",
    "upsample_bicubic2d",
    "upsample_linear1d",
    "upsample_trilinear3d",
    *WINDOWS_WHOLE,
)
