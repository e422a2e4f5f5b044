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
    "layer_norm_linear": "norm_linear",
    "layer_norm_linear_gelu_dropout": "norm_linear",
    "linear_cross_entropy": "linear_cross_entropy",
    "matmul": "products",
    "attention": "attention",
    "attention_varlen": "attention",
    "linear": "products",
    "swiglu_mlp": "products",
    "geglu_mlp": "products",
}
"""Public function → the file of this folder that defines it."""
