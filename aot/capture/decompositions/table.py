"""The table of decompositions: ops that torch's own tables keep whole, as arithmetic of other ops.

They are gradients for the most part. Graphs of AOTAutograd have all of them taken apart, exported
programs those of which the import table has no row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch._decomp.decompositions as torch_decompositions
from torch import Tensor
from torch.nn import functional

from aotc.aot.capture.decompositions import activations, elements, foreach, lookups, pooling
from aotc.aot.capture.decompositions.replacing import CORRECTED

aten = torch.ops.aten
CHANCES = "an element given to `binary_cross_entropy` is not between 0 and 1"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _softmax_backward(gradient: Tensor, weights: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    """P ∘ (g - Σ g ∘ P), as eager's kernel: g ∘ P - P Σ g ∘ P loses a difference of small terms."""
    share = (gradient * weights).sum(dim, keepdim=True)
    return ((gradient - share) * weights).to(dtype)


def _products_of_three(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    without_first: Sequence[int],
    without_second: Sequence[int],
    without_third: Sequence[int],
    added: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """The sum over the dims `added` of three tensors' product, each without some of the dims:
    `nn.Bilinear` and its gradients, as products of matrices."""
    lacking = (without_first, without_second, without_third)
    dims = range(first.dim() + len(without_first))
    letters = ["".join(_LETTERS[dim] for dim in dims if dim not in row) for row in lacking]
    result = "".join(_LETTERS[dim] for dim in dims if dim not in added)
    return torch.einsum(f"{','.join(letters)}->{result}", first, second, third)


def _identity(rows: int, columns: int | None = None, **how: Any) -> Tensor:
    """Ones on the diagonal. torch's own compares places in the smallest type that holds them, which
    from 257 on is u16."""
    dtype, device = how.get("dtype") or torch.get_default_dtype(), how.get("device")
    across = torch.arange(rows if columns is None else columns, device=device)
    return (torch.arange(rows, device=device).unsqueeze(1) == across).to(dtype)


def _distance(left: Tensor, right: Tensor, p: float = 2) -> Tensor:
    return torch.linalg.vector_norm(left - right, p)


def _distances_backward(
    gradient: Tensor, left: Tensor, right: Tensor, p: float, distances: Tensor
) -> Tensor:
    """Of the distances of all rows to all rows, in those of `left`: g · sign(x) · (|x| / d)^(p-1)
    for a difference x; nothing where the distance is 0."""
    away = left.unsqueeze(-2) - right.unsqueeze(-3)
    whole, gradient = distances.unsqueeze(-1), gradient.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(left)
    if p == 1:
        share = away.sign()
    elif p == 2:
        share = away / whole
    elif math.isinf(p):
        share = away.sign() * (away.abs() == whole)
    else:
        share = away.sign() * (away.abs() / whole) ** (p - 1)
    return torch.where((whole == 0) | (away == 0), 0.0, gradient * share).sum(-2)


def _zeros_of_tangents(batched: Tensor, like: Tensor, *, self_num_batch_dims: int = 0) -> Tensor:
    """Zeros of the second shape, behind the first one's batch dims: where a view's tangent goes."""
    return batched.new_zeros((*batched.shape[:self_num_batch_dims], *like.shape))


def _masked_scatter_backward(gradient: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The gradients that a mask shows, in order, as the source's; others go behind its end."""
    count = math.prod(sizes)
    shown = mask.expand_as(gradient).flatten()
    places = torch.where(shown, shown.long().cumsum(0) - 1, count)
    whole = gradient.new_zeros(count + 1).scatter(0, places, gradient.flatten())
    return whole.narrow(0, 0, count).reshape(sizes)


def _put(data: Tensor, places: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """The elements at places of the flat tensor."""
    flat = data.flatten().index_put((places.flatten(),), source.flatten(), accumulate)
    return flat.reshape(data.shape)


def _places_shown(data: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The places of the first `size` elements that are not 0, a row each; then rows of a number."""
    shown = (data != 0).flatten()
    row = shown.cumsum(0) - 1
    row = torch.where(shown & (row < size), row, size)
    flat = torch.arange(shown.shape[0], device=data.device)
    found = flat.new_full((size + 1,), -1).scatter(0, row, flat).narrow(0, 0, size)
    rest, columns = found, []
    for extent in (torch.sym_max(each, 1) for each in reversed(data.shape)):
        columns.append(torch.where(found < 0, fill_value, rest % extent))
        rest = torch.div(rest, extent, rounding_mode="floor")
    return torch.stack(columns[::-1], 1) if columns else found.new_zeros(size, 0)


def _weight_norm_backward(
    gradient: Tensor, direction: Tensor, size: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Of `size · direction / norms`, where the norms are over all dims but one."""
    others = [axis for axis in range(direction.dim()) if axis != dim % direction.dim()]
    norms = norms.to(direction.dtype)
    along = (gradient * direction).sum(others, keepdim=True) / norms
    return size / norms * (gradient - direction * (along / norms)), along


def _diagonal_scatter(
    data: Tensor, source: Tensor, offset: int = 0, first: int = 0, second: int = 1
) -> Tensor:
    """Each place of a plane asks the diagonal, by its row or, below the main one, by its column."""
    if not source.shape[-1]:  # the offset is beyond the plane: there is no place to ask of
        return data.clone()
    planes = data.movedim((first, second), (-2, -1))
    rows = torch.arange(planes.shape[-2], device=data.device).unsqueeze(1)
    columns = torch.arange(planes.shape[-1], device=data.device)
    places, axis = (rows.squeeze(1), -1) if offset >= 0 else (columns, -2)
    values = source.index_select(-1, places.clamp(max=source.shape[-1] - 1)).unsqueeze(axis)
    return torch.where(columns - rows == offset, values, planes).movedim((-2, -1), (first, second))


def _encoder_layer(
    source: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Any:
    """The layer that `nn.TransformerEncoder` calls whole in inference; NotImplemented with masks,
    after which it changes rows that are padding."""
    if mask is not None or source.dim() != 3:
        return NotImplemented

    def attend(x: Tensor) -> Tensor:
        parts = functional.linear(x, qkv_weight, qkv_bias).chunk(3, -1)
        heads = (part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(*heads)
        return functional.linear(seen.transpose(1, 2).flatten(2), proj_weight, proj_bias)

    def feed(x: Tensor) -> Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        inner = functional.gelu(inner) if use_gelu else inner.relu()
        return functional.linear(inner, ffn_weight_2, ffn_bias_2)

    first = (source.shape[-1:], norm_weight_1, norm_bias_1, eps)
    second = (source.shape[-1:], norm_weight_2, norm_bias_2, eps)
    if norm_first:
        middle = source + attend(functional.layer_norm(source, *first))
        return middle + feed(functional.layer_norm(middle, *second))
    middle = functional.layer_norm(source + attend(source), *first)
    return functional.layer_norm(middle + feed(middle), *second)


def _cross_entropy_of_chances(
    data: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """torch's arithmetic, which does not ask what its kernels ask: chances are from 0 to 1."""
    aten._assert_async.msg(((data >= 0) & (data <= 1)).all(), CHANCES)
    return torch_decompositions.binary_cross_entropy(data, target, weight, reduction)  # type: ignore[no-any-return]


_ROWS: Mapping[Any, Callable[..., Any]] = {
    **{op: function for op, (_, function) in CORRECTED.items() if function is not None},
    aten._cdist_backward.default: _distances_backward,
    aten._efficientzerotensor.default: torch.zeros,  # gradients of steps
    aten._new_zeros_with_same_feature_meta.default: _zeros_of_tangents,
    aten._softmax_backward_data.default: _softmax_backward,
    aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    aten._trilinear.default: _products_of_three,
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
    aten.binary_cross_entropy.default: _cross_entropy_of_chances,
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.dist.default: _distance,
    aten.eye.default: _identity,
    aten.eye.m: _identity,
    aten.masked_scatter_backward.default: _masked_scatter_backward,
    aten.nonzero_static.default: _places_shown,
    aten.put.default: _put,
}


@functools.cache
def arithmetic() -> Mapping[Any, Callable[..., Any]]:
    """Op → its arithmetic; a row that does not know it returns `NotImplemented`."""
    table: dict[Any, Callable[..., Any]] = {}
    for rows in (
        pooling.GRADIENTS,
        activations.GRADIENTS,
        lookups.GRADIENTS,
        elements.ELEMENTS,
        _ROWS,
    ):
        table.update(rows)
    table.update(foreach.decompositions())
    return table
