"""The import table: base name of an ATen op → row. To import an op, add a row to its file."""

from __future__ import annotations

from aotc.aot.capture.imports import (
    attention,
    bessel,
    contractions,
    convolution_gradients,
    distances,
    division,
    embedding_bags,
    functions,
    gamma,
    grouped,
    lookups,
    masked_writes,
    movement,
    pointwise,
    pooling,
    reductions,
    resampling,
    rng,
    scans,
    scatters,
    sorting,
    unsupported,
)
from aotc.aot.capture.imports.call import Rows

ROWS: Rows = {
    **pointwise.ROWS,
    **division.ROWS,
    **movement.ROWS,
    **lookups.ROWS,
    **reductions.ROWS,
    **contractions.ROWS,
    **attention.ROWS,
    **convolution_gradients.ROWS,
    **pooling.ROWS,
    **embedding_bags.ROWS,
    **bessel.ROWS,
    **resampling.ROWS,
    **scans.ROWS,
    **scatters.ROWS,
    **grouped.ROWS,
    **masked_writes.ROWS,
    **functions.ROWS,
    **gamma.ROWS,
    **sorting.ROWS,
    **distances.ROWS,
    **rng.ROWS,
    **unsupported.ROWS,
}

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

# Ops whose decompositions would let places through that the ops themselves refuse.
INDEXED_WHOLE = ("index_add", "index_copy", "index_fill", "index_reduce", "one_hot")

# The root of a variance that is not finite, or 0, may be a number.
DEVIATIONS = ("std.correction", "std_mean.correction")

# Composite ops that the table imports whole: arithmetic of ours in place of torch's decomposition.
NOT_DECOMPOSED = (
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "group_norm",
    "frac",
    *INDEXED_WHOLE,
    "layer_norm",
    "linear",
    "log_softmax",
    "matmul",
    "max_pool2d",
    "rms_norm",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
    "special_log_ndtr",
    "special_ndtr",
    *DEVIATIONS,
    "take",
    "upsample_bicubic2d",
)
