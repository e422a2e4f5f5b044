"""The functions of the library as modules, with the parameters of torch's of the same names.

Those that torch has are subclasses of torch's: arguments, parameters and `state_dict` are torch's,
and `isinstance` finds them. What a function does not take is refused when the module is made.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from aotc.aot.errors import KernelValueInvalid
from aotc.kernels.library.attention import attention
from aotc.kernels.library.cross_entropy import cross_entropy
from aotc.kernels.library.dropout import dropout
from aotc.kernels.library.embedding_bag import embedding_bag
from aotc.kernels.library.linear_cross_entropy import linear_cross_entropy
from aotc.kernels.library.norm_linear import layer_norm_linear
from aotc.kernels.library.normalization import group_norm, layer_norm, rms_norm
from aotc.kernels.library.pointwise import gelu, relu_squared, silu
from aotc.kernels.library.products import geglu_mlp, linear, swiglu_mlp
from aotc.kernels.library.softmax import log_softmax, softmax


def _refuse(module: str, **arguments: tuple[Any, Any]) -> None:
    """Raise `KernelValueInvalid` for the first argument that is not the one that is taken.

    arguments: name → what was given, what is taken.
    """
    for name, (found, taken) in arguments.items():
        if found is not taken and found != taken:
            raise KernelValueInvalid(
                function=module, argument=name, found=found, expected=taken,
                advice=f"`torch.nn.{module}` takes other values; ",
            )  # fmt: skip


class LayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm` by `layer_norm`: [..., *normalized_shape] of f32, f16, bf16 or f64;
    weights of the input's type, or f32. Ba and others, arXiv 1607.06450."""

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., *normalized_shape]; returns the same shape and type."""
        return layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.RMSNorm):
    """`torch.nn.RMSNorm` by `rms_norm`: [..., *normalized_shape] of f32, f16, bf16 or f64; a weight
    of the input's type, or f32. Zhang and Sennrich, arXiv 1910.07467."""

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., *normalized_shape]; returns the same shape and type."""
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(nn.GroupNorm):
    """`torch.nn.GroupNorm` by `group_norm`: [batch, channels, ...] of f32, f16, bf16 or f64;
    weights of the input's type, or f32. Wu and He, arXiv 1803.08494."""

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, channels, ...]; returns the same shape and type."""
        return group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class Softmax(nn.Softmax):
    """`torch.nn.Softmax` by `softmax`, along `dim`, which is asked for."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)

    def forward(self, x: Tensor) -> Tensor:
        """x: floats of any shape; returns the same shape and type."""
        return softmax(x, self.dim)


class LogSoftmax(nn.LogSoftmax):
    """`torch.nn.LogSoftmax` by `log_softmax`, along `dim`, which is asked for."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)

    def forward(self, x: Tensor) -> Tensor:
        """x: floats of any shape; returns the same shape and type."""
        return log_softmax(x, self.dim)


class SiLU(nn.SiLU):
    """`torch.nn.SiLU` by `silu`, of any shape. Raises KernelValueInvalid for `inplace=True`."""

    def __init__(self, inplace: bool = False) -> None:
        _refuse("SiLU", inplace=(inplace, False))
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """x: floats of any shape; returns the same shape and type."""
        return silu(x)


class GELU(nn.GELU):
    """`torch.nn.GELU` by `gelu`, of any shape; `approximate` is "none" or "tanh"."""

    def forward(self, x: Tensor) -> Tensor:
        """x: floats of any shape; returns the same shape and type."""
        return gelu(x, self.approximate)


class ReLUSquared(nn.Module):
    """max(x, 0)² by `relu_squared`, of any shape. So and others, arXiv 2109.08668."""

    def forward(self, x: Tensor) -> Tensor:
        """x: floats of any shape; returns the same shape and type."""
        return relu_squared(x)


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` by `dropout`: a seed of torch's generator, no mask in memory. Raises
    KernelValueInvalid for `inplace=True`."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        _refuse("Dropout", inplace=(inplace, False))
        super().__init__(p)

    def forward(self, x: Tensor) -> Tensor:
        """x: floats of any shape; returns the same shape and type, `x` itself in evaluation."""
        return dropout(x, self.p, self.training)


class Linear(nn.Linear):
    """`torch.nn.Linear` by `linear`, with `activation` ("none", "relu", "silu", "gelu",
    "gelu_tanh" or "relu_squared") inside the product: [..., in_features] → [..., out_features]."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True,
        activation: str = "none", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, bias, device, dtype)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features]; returns [..., out_features]."""
        return linear(x, self.weight, self.bias, self.activation)


class LayerNormLinear(nn.Module):
    """Layer norm and a linear layer by `layer_norm_linear`, without the normalised rows in memory.

    Parameters: norm_weight, norm_bias [in_features]; weight [out_features, in_features], bias
    [out_features] or None, as `torch.nn.Linear` begins them. activation: as `Linear`'s.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, eps: float = 1e-5,
        activation: str = "none", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        place = {"device": device, "dtype": dtype}
        self.eps, self.activation = eps, activation
        self.norm_weight = nn.Parameter(torch.ones(in_features, **place))
        self.norm_bias = nn.Parameter(torch.zeros(in_features, **place))
        inner = nn.Linear(in_features, out_features, bias, **place)
        self.weight, self.bias = inner.weight, inner.bias

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features]; returns [..., out_features]."""
        return layer_norm_linear(
            x, self.norm_weight, self.norm_bias, self.weight, self.bias, self.eps, self.activation
        )


class _GatedMLP(nn.Module):
    def __init__(
        self, in_features: int, hidden_features: int, out_features: int | None = None,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        place = {"device": device, "dtype": dtype, "bias": False}
        self.gate_proj = nn.Linear(in_features, hidden_features, **place)
        self.up_proj = nn.Linear(in_features, hidden_features, **place)
        self.down_proj = nn.Linear(hidden_features, out_features or in_features, **place)

    def _weights(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight


class SwiGLUMLP(_GatedMLP):
    """down(silu(gate(x)) · up(x)) by `swiglu_mlp`: [..., in_features] → [..., out_features].

    Parameters are named as in Llama: gate_proj.weight, up_proj.weight, down_proj.weight. Shazeer,
    arXiv 2002.05202.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features]; returns [..., out_features]."""
        return swiglu_mlp(x, *self._weights())


class GEGLUMLP(_GatedMLP):
    """down(gelu(gate(x)) · up(x)) by `geglu_mlp`, with `approximate` "none" or "tanh" (Gemma's);
    otherwise as `SwiGLUMLP`."""

    def __init__(
        self, in_features: int, hidden_features: int, out_features: int | None = None,
        approximate: str = "tanh", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(in_features, hidden_features, out_features, device, dtype)
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features]; returns [..., out_features]."""
        return geglu_mlp(x, *self._weights(), self.approximate)


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """`torch.nn.CrossEntropyLoss` by `cross_entropy`: logits [N, C], [N, C, ...] or [C], i64
    class numbers. Raises KernelValueInvalid for weights of classes."""

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        _refuse("CrossEntropyLoss", weight=(weight, None))
        super().__init__(None, None, ignore_index, None, reduction, label_smoothing)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """x: [N, C], [N, C, ...] or [C]; target: i64 [N], [N, ...] or []. Returns a number, or
        target's shape for "none", of x's type."""
        return cross_entropy(x, target, self.ignore_index, self.reduction, self.label_smoothing)


class LinearCrossEntropyLoss(nn.Module):
    """A last linear layer and cross-entropy by `linear_cross_entropy`, without logits in memory.

    Parameters: weight [classes, in_features], bias [classes] or None, as `torch.nn.Linear` begins
    them. forward: x [..., in_features], target i64 [...]. arXiv 2411.09009, 2410.10989.
    """

    def __init__(
        self, in_features: int, classes: int, bias: bool = False, ignore_index: int = -100,
        reduction: str = "mean", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        inner = nn.Linear(in_features, classes, bias, device, dtype)
        self.weight, self.bias = inner.weight, inner.bias
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """x: [..., in_features]; target: i64 [...]. Returns a number, or target's shape for
        "none", of x's type."""
        return linear_cross_entropy(
            x, self.weight, target, self.bias, self.ignore_index, self.reduction
        )


class EmbeddingBag(nn.EmbeddingBag):
    """`torch.nn.EmbeddingBag` by `embedding_bag`, with `mode` "sum" or "mean"; its gradient is
    dense. Raises KernelValueInvalid for torch's other options."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, mode: str = "mean", device: Any = None,
        dtype: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        _refuse("EmbeddingBag", **{name: (value, None) for name, value in options.items() if value})
        super().__init__(num_embeddings, embedding_dim, mode=mode, device=device, dtype=dtype)

    def forward(self, indices: Tensor, offsets: Tensor | None = None) -> Tensor:
        """indices: i64 [lists, length], or [count] with offsets i64 [lists]; returns
        [lists, embedding_dim]."""
        return embedding_bag(indices, self.weight, offsets, self.mode)


class Attention(nn.Module):
    """Self-attention of [batch, T, width] by `attention`, with its four linear layers.

    heads share keys in `groups` (as many as heads where None), D = width / heads. Parameters:
    q_proj, k_proj, v_proj, o_proj, and `sinks` [heads] where they are asked for, of zeros.
    """

    sinks: nn.Parameter | None

    def __init__(
        self, width: int, heads: int, groups: int | None = None, is_causal: bool = True,
        window: int | None = None, bias: bool = False, has_sinks: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if heads < 1 or width % heads:
            raise KernelValueInvalid(
                function="Attention", argument="heads", found=heads,
                expected=f"a divisor of the width {width}",
            )  # fmt: skip
        super().__init__()
        self.heads, self.groups, self.head_width = heads, groups or heads, width // heads
        self.is_causal, self.window = is_causal, window
        place = {"bias": bias, "device": device, "dtype": dtype}
        self.q_proj = nn.Linear(width, width, **place)
        self.k_proj = nn.Linear(width, self.groups * self.head_width, **place)
        self.v_proj = nn.Linear(width, self.groups * self.head_width, **place)
        self.o_proj = nn.Linear(width, width, **place)
        sinks = torch.zeros(heads, device=device, dtype=dtype) if has_sinks else None
        self.register_parameter("sinks", None if sinks is None else nn.Parameter(sinks))

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, T, width]; returns the same shape."""
        heads = (*x.shape[:-1], -1, self.head_width)
        q, k, v = (
            layer(x).view(heads).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        scale = 1.0 / math.sqrt(self.head_width)
        found = attention(q, k, v, self.is_causal, self.window, scale, self.sinks)
        result: Tensor = self.o_proj(found.transpose(1, 2).flatten(-2))
        return result
