"""The library of `aotc.kernels`: functions on torch's tensors, made of Triton kernels.

`FUNCTIONS` names the file of each public function; nothing is imported until one is asked for.
"""

from __future__ import annotations

FUNCTIONS = {
    "vector_add": "pointwise",
    "silu": "pointwise",
    "gelu": "pointwise",
    "relu_squared": "pointwise",
    "swiglu": "pointwise",
    "geglu": "pointwise",
    "softmax": "softmax",
    "log_softmax": "softmax",
    "layer_norm": "normalization",
    "rms_norm": "normalization",
    "group_norm": "normalization",
    "cross_entropy": "cross_entropy",
    "rope": "rope",
    "embedding_bag": "embedding_bag",
    "adamw_step": "adamw",
    "dropout": "dropout",
}
"""Public function → the file of this folder that defines it."""
