"""Channels: convolutions of few channels get zeros beside them, so that a GPU loads vectors.

A kernel offset of three channels is six bytes of bf16, and a GPU copies to shared memory by four,
eight or sixteen bytes at once. With zero channels a row of kernel offsets is one run of vectors,
and with a margin each row of the image begins with a whole one. The schedule copies such an input
anyway: the zeros cost a part of that copy.
"""

from __future__ import annotations

from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.rules import Context, Rule, rule_for
from aotc.aot.ir.size import fixed
from aotc.aot.ir.types import DTYPES

VECTOR_BYTES = 16
MOST_CHANNELS = 8  # beyond which vectors of a part of the channels are no loss


def _zeros_beside(root: Node, context: Context) -> Node | None:
    """conv(x, w) → conv(x with zero channels and margins, w with zero channels)"""
    data, weight = root.inputs
    channels, kernel = fixed(weight.shape[1]), weight.shape[2:]
    margin, stride = root.attr("padding")[-1], root.attr("stride")[-1]
    vector = VECTOR_BYTES // DTYPES[root.dtype].itemsize_bytes
    width = data.shape[-1] + 2 * margin
    lengths = (stride, kernel[-1], width)
    is_aligned = all(channels * length % vector == 0 for length in lengths)
    is_windowed = weight.type.numel > weight.shape[0] * channels and root.attr("groups") == 1
    if not is_windowed or channels > MOST_CHANNELS or channels % vector == 0 or is_aligned:
        return None
    wanted = _channels(channels, stride, vector)
    if wanted == channels or not context.is_constant(weight) or context.is_constant(data):
        return None
    # A wider margin must not add a window.
    reach = (kernel[-1] - 1) * root.attr("dilation")[-1] + 1
    last = width - reach - (width - reach) % stride + stride + reach
    end = next((end for end in range(width, last) if end * wanted % vector == 0), width)
    spatial = (0,) * (data.type.rank - 3)
    low, high = (0, 0, *spatial, margin), (0, wanted - channels, *spatial, end - width + margin)
    padded = build.pad(data, low, high, 0.0)
    zeros = (0,) * weight.type.rank
    filters = build.pad(weight, zeros, (0, wanted - channels, *zeros[2:]), 0.0)
    attrs = dict(root.attrs) | {"padding": (*root.attr("padding")[:-1], 0)}
    return make("convolution", (padded, filters), attrs)


def _channels(channels: int, stride: int, vector: int) -> int:
    """The fewest channels, zeros included, with which each window begins with a whole vector."""
    half = vector // 2
    if channels <= half and stride * half % vector == 0:
        return half
    return -(-channels // vector) * vector


RULES: tuple[Rule, ...] = (
    # conv(x, w) → conv(x beside zeros, w beside zeros) for few channels
    rule_for(("convolution",), "zeros-beside", _zeros_beside, is_exact=False),
)
