"""The core ATen ops, and which records of torch's database reach each one.

torch names the set itself, by a tag on its overloads. An op whose name no record has stands beside
the records whose calls decompose to it.
"""

from __future__ import annotations

import torch

from benchmarks.operators.samples import database

REACHED_BY: dict[str, tuple[str, ...]] = {
    "_adaptive_avg_pool2d": ("nn.functional.adaptive_avg_pool2d",),
    "_adaptive_avg_pool3d": ("nn.functional.adaptive_avg_pool3d",),
    "_cdist_forward": ("cdist",),
    "_embedding_bag": ("nn.functional.embedding_bag",),
    "_fft_c2r": ("fft.irfft",),
    "_fft_r2c": ("fft.rfft",),
    "_log_softmax": ("log_softmax",),
    "_native_batch_norm_legit": ("nn.functional.instance_norm", "nn.functional.batch_norm"),
    "_native_batch_norm_legit_no_training": ("nn.functional.batch_norm",),
    "_pdist_forward": ("nn.functional.pdist",),
    "_softmax": ("softmax", "nn.functional.softmin"),
    "_to_copy": ("to", "float", "long", "bool", "half", "bfloat16", "int", "byte"),
    "adaptive_avg_pool1d": ("nn.functional.adaptive_avg_pool1d",),
    "alias": ("alias_copy",),
    "any": ("any",),
    "convolution": (
        "nn.functional.conv1d",
        "nn.functional.conv2d",
        "nn.functional.conv3d",
        "nn.functional.conv_transpose1d",
        "nn.functional.conv_transpose2d",
        "nn.functional.conv_transpose3d",
    ),
    "copy": ("nn.functional.pad.circular", "slice_scatter"),
    "elu": ("nn.functional.elu", "nn.functional.selu", "nn.functional.celu"),
    "embedding": ("nn.functional.embedding",),
    "grid_sampler_2d": ("grid_sampler_2d", "nn.functional.grid_sample"),
    "index": ("__getitem__",),
    "max_pool2d_with_indices": ("nn.functional.max_pool1d", "nn.functional.max_pool2d"),
    "max_pool3d_with_indices": ("nn.functional.max_pool3d",),
    "native_dropout": ("nn.functional.dropout",),
    "rand": ("rand_like",),
    "reflection_pad1d": ("nn.functional.pad.reflect",),
    "replication_pad2d": ("nn.functional.pad.replicate",),
    "topk": ("topk", "kthvalue"),
    "upsample_bilinear2d": (
        "nn.functional.interpolate.bilinear",
        "nn.functional.upsample_bilinear",
    ),
    "upsample_nearest2d": ("nn.functional.interpolate.nearest", "nn.functional.upsample_nearest"),
}
# No record of their own: one that stands for several says so.
SHARED: dict[str, str] = {
    "reflection_pad2d": "reflection_pad1d",
    "reflection_pad3d": "reflection_pad1d",
    "replication_pad3d": "replication_pad2d",
}
LEFT_OUT: dict[str, str] = {
    "_adaptive_avg_pool2d_backward": "gradient",
    "_local_scalar_dense": "no tensor; refused, since it depends on data",
    "avg_pool2d_backward": "gradient",
    "col2im": "no record in the database; `tests/operators/test_semantics.py` has calls",
    "convolution_backward": "gradient",
    "embedding_dense_backward": "gradient",
    "max_pool2d_with_indices_backward": "gradient",
    "native_group_norm_backward": "gradient",
    "native_layer_norm_backward": "gradient",
    "randperm": "no record in the database",
    "sym_is_contiguous": "no tensor",
    "sym_numel": "no tensor",
    "sym_size": "no tensor",
    "sym_storage_offset": "no tensor",
    "sym_stride": "no tensor",
}
# What the model libraries call beside it: composites that torch keeps whole or decomposes.
BESIDE: tuple[str, ...] = (
    "addbmm", "addcdiv", "addcmul", "addmv", "addr", "argsort", "baddbmm", "block_diag",
    "bucketize", "chunk", "clamp_max", "clamp_min", "column_stack", "copysign", "count_nonzero",
    "cross", "cummax", "cummin", "deg2rad", "diag", "diag_embed", "diff", "dot", "einsum",
    "erfc", "erfinv", "exp2", "eye", "float_power", "floor_divide", "fmax", "fmin", "frac",
    "heaviside", "hypot", "index_add", "index_copy", "index_fill", "isclose", "isfinite", "isin",
    "isneginf", "isposinf", "kron", "lerp", "lgamma", "linspace", "log_softmax", "logaddexp",
    "logcumsumexp", "logit", "logsumexp", "masked_fill", "matmul", "median",
    "meshgrid.list_of_tensors",
    "mode", "movedim", "msort", "mv", "nan_to_num", "nansum", "nanmean", "norm", "outer", "renorm",
    "repeat_interleave", "roll", "rot90", "rsub", "searchsorted", "sgn", "signbit", "sinc", "split",
    "square", "stack", "std", "std_mean", "sum_to_size", "take", "take_along_dim", "tensor_split",
    "tensordot", "tile", "trace", "tril", "triu", "unbind", "unflatten", "unfold", "var_mean",
    "vdot", "vstack", "xlogy", "zeros_like", "ones_like", "special.ndtr", "special.entr",
    "special.log_ndtr",
    "linalg.vector_norm", "linalg.norm", "linalg.cross", "linalg.matrix_norm", "linalg.vecdot",
    "nn.functional.adaptive_max_pool2d", "nn.functional.binary_cross_entropy_with_logits",
    "nn.functional.celu", "nn.functional.cosine_similarity", "nn.functional.cross_entropy",
    "nn.functional.glu", "nn.functional.group_norm", "nn.functional.hardshrink",
    "nn.functional.hardsigmoid", "nn.functional.hardswish", "nn.functional.interpolate.area",
    "nn.functional.interpolate.bicubic", "nn.functional.interpolate.linear",
    "nn.functional.interpolate.nearest-exact", "nn.functional.interpolate.trilinear",
    "nn.functional.l1_loss", "nn.functional.layer_norm", "nn.functional.linear",
    "nn.functional.local_response_norm", "nn.functional.logsigmoid", "nn.functional.mish",
    "nn.functional.mse_loss", "nn.functional.multi_head_attention_forward",
    "nn.functional.normalize", "nn.functional.one_hot", "nn.functional.pad.replicate_negative",
    "nn.functional.pairwise_distance", "nn.functional.pixel_shuffle",
    "nn.functional.pixel_unshuffle", "nn.functional.prelu", "nn.functional.relu6",
    "nn.functional.rms_norm", "nn.functional.scaled_dot_product_attention",
    "nn.functional.silu", "nn.functional.softplus", "nn.functional.softshrink",
    "nn.functional.softsign", "nn.functional.tanhshrink", "nn.functional.threshold",
    "nn.functional.unfold", "torch.ops.aten._safe_softmax.default",
)  # fmt: skip


def core_ops() -> list[str]:
    """Base names of the ops that torch tags as core, sorted."""
    return sorted(name for name in dir(torch.ops.aten) if _is_core(name))


def _is_core(name: str) -> bool:
    packet = getattr(torch.ops.aten, name)
    overloads = getattr(packet, "overloads", list)()
    return any(torch.Tag.core in getattr(packet, each).tags for each in overloads)


def records_of(op: str) -> list[str]:
    """Records of the database whose samples are the op's; empty for one that is left out."""
    if op in LEFT_OUT or op in SHARED:
        return []
    if op in REACHED_BY:
        return list(REACHED_BY[op])
    found = database().items()
    return [name for name, record in found if op in (record.name, record.aten_name)]
