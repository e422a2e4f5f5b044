"""The library of `aotc.kernels`: functions on torch's tensors, made of Triton kernels.

`FUNCTIONS` names the file of each public function; nothing is imported until one is asked for.
"""

from __future__ import annotations

FUNCTIONS = {
    "vector_add": "pointwise",
    "softmax": "softmax",
    "log_softmax": "softmax",
    "layer_norm": "normalization",
    "rms_norm": "normalization",
    "group_norm": "normalization",
}
"""Public function → the file of this folder that defines it."""
