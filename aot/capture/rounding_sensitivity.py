"""Which elements are decided by rounding: eager torch's own results for them vary when its
roundings are perturbed.

A comparison, an argmax or a floor of nearly equal floats depends on the last bits of its operands.
Another order of a sum decides it differently and is as right. The build and the fuzzer ask eager
torch itself, with every rounding moved by a few units in the last place: where its results differ,
an element cannot be judged; where they agree, a difference is an error.

Sums near the limits of their element type are treated likewise. A sum of terms near the largest
number is finite in one order and infinite or NaN in another; the square of a number near the
smallest one is 0 unless it is scaled before. There is no wider type to say which is right. So the
model is run with such operands replaced in a few ways, and its results differ where they matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from aotc.aot.capture.custom_ops import base_name
from aotc.aot.capture.decisions import WAYS, Comparisons, is_float
from aotc.aot.capture.eager import ATEN_NAMESPACES
from aotc.aot.capture.golden import golden_tensors, quiet_settings, widest
from aotc.aot.capture.imports.rng import GOLDEN_SEED, seeded
from aotc.aot.capture.op_modes import OpMode
from aotc.aot.capture.tf32 import with_tf32
from aotc.aot.ir.storage import Array

# -- sums near the limits --------------------------------------------------------------------------


# Op of ATen that sums → of which degree its terms are in an operand.
DEGREES: Mapping[str, float] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "convolution", "_trilinear"), 1.0),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "addmv"), 1.0),
    **dict.fromkeys(("sum", "nansum", "mean", "trace", "cumsum", "bincount", "col2im"), 1.0),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), 1.0),
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), 1.0),
    **dict.fromkeys(("scatter_add", "index_add"), 1.0),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only", "_fft_r2c"), 1.0),
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "linalg_vector_norm"), 2.0),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit"), 2.0),
    **dict.fromkeys(("var", "var_mean", "std", "std_mean", "_fused_rms_norm"), 2.0),
    **dict.fromkeys(("_cdist_forward", "_euclidean_dist", "_pdist_forward"), 2.0),
    **dict.fromkeys(("prod", "cumprod"), math.inf),
}
# Op that joins elements in one place → the argument that says how.
JOINING = {
    "scatter": "reduce", "scatter_reduce": "reduce", "index_reduce": "reduce",
    "index_put": "accumulate", "_unsafe_index_put": "accumulate", "put": "accumulate",
}  # fmt: skip
JOINED = {"sum": 1.0, "add": 1.0, "mean": 1.0, True: 1.0,
          "prod": math.inf, "multiply": math.inf}  # fmt: skip
# Of large operands. In a maximum 1 ties with a 1 of the data; the last ties with nothing.
REPLACEMENTS = math.inf, 1.0, 1.324717957244746
FACTORS = 8  # whose order in a product may be another
OVERFLOWED = math.inf, -math.inf, math.nan, 1.0  # what a sum that may overflow comes to


def large(operands: Sequence[torch.Tensor], degree: float) -> Iterator[torch.Tensor]:
    """Of each operand, floats all, the finite elements of which a sum may pass the largest number.

    degree: of the sum's terms in an operand, infinite for a product of all of them, which may also
    pass the smallest normal number: where FACTORS of its elements do. 16-bit floats are summed in
    f32.
    """
    sizes = [_largest(each) for each in operands]
    count = max((each.numel() for each in operands), default=0)
    for place, value in enumerate(operands):
        others = (*sizes[:place], *sizes[place + 1 :])
        limit = math.log2(torch.finfo(_summed(value)).max) - math.log2(max(count, 1))
        limit -= sum(max(math.log2(each), 0.0) for each in others)
        if not math.isinf(degree) and degree * math.log2(sizes[place]) < limit:
            yield torch.zeros((), dtype=torch.bool).expand(value.shape)
            continue  # without copies of large weights
        size = value.detach().double().abs()
        if math.isinf(degree):
            logs = torch.where(size.isfinite() & (size > 0), size, 1.0).log2()
            is_large = (size > 1) & (logs.clamp(min=0).sum() >= limit)
            least = math.log2(torch.finfo(_summed(value)).smallest_normal)
            is_small = logs < least / FACTORS
            is_large |= is_small & (
                logs.clamp(max=0).flatten().sort().values[:FACTORS].sum() < least
            )
        else:
            is_large = degree * size.log2() >= limit
        yield is_large & value.isfinite()


def of_size(value: torch.Tensor, size: float, degree: float) -> torch.Tensor:
    """Numbers of a size, with the signs of others; of factors below 1, of its reciprocal."""
    if not math.isinf(degree):
        return torch.sign(value) * size
    sizes = torch.where(value.detach().abs() < 1, 1 / size, size)
    return torch.sign(value) * sizes.to(value.dtype)


def small(value: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The elements whose square is not a normal number, and a power of two that makes it one."""
    least = math.log2(torch.finfo(_summed(value)).smallest_normal)
    size = value.detach().double().abs()
    return (size > 0) & (2 * size.log2() < least), 2.0 ** math.ceil(-least / 2)


def _summed(value: torch.Tensor) -> torch.dtype:
    return torch.promote_types(value.dtype, torch.float32)


def _largest(value: torch.Tensor) -> float:
    """The largest finite absolute value; 1 where that is 0 or there is none."""
    if value.numel() and value.dtype.itemsize > 1:
        ends = [float(each) for each in torch.aminmax(value.detach())]
        if all(map(math.isfinite, ends)):
            return max(map(abs, ends)) or 1.0
    size = value.detach().double().abs()
    finite = torch.where(size.isfinite(), size, 0.0)
    return (finite.max().item() if finite.numel() else 0.0) or 1.0


class ReplacedLarge(OpMode):
    """Operands of which a sum may overflow are replaced by one size, with their signs; factors that
    may pass the smallest number by its reciprocal."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self._size = size

    def run_op(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        degree = _degree(function, args, kwargs)
        if degree:
            args = self._replaced(function, args, degree)
        return function(*args, **kwargs)

    def _replaced(self, function: Any, args: Sequence[Any], degree: float) -> Sequence[Any]:
        places = [
            at for at, each in enumerate(args) if is_float(each) and not _writes(function, at)
        ]
        found = list(args)
        for at, is_large in zip(places, large([args[at] for at in places], degree), strict=True):
            if bool(is_large.any()):
                found[at] = torch.where(is_large, of_size(args[at], self._size, degree), args[at])
        return found


class OverflowedSums(OpMode):
    """The elements of sums that may pass the largest number in some order are one value all."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def run_op(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        result = function(*args, **kwargs)
        if _degree(function, args, kwargs) != 1.0 or function._schema.is_mutable:
            return result
        if not kwargs and is_float(result) and not _may_overflow(result, args):
            return result
        # The sum of a mean is divided after it may have overflowed.
        is_mean = base_name(function) == "mean" and is_float(result)
        count = args[0].numel() // result.numel() if is_mean else 1
        return overflowed(result, self._value, args, lambda own: count * function(*own, **kwargs))


def _may_overflow(result: torch.Tensor, operands: Sequence[Any]) -> bool:
    """Whether as many products of the largest operands as there are elements pass the limit."""
    floats = [each for each in operands if is_float(each)]
    terms = 2 * max((each.numel() for each in floats), default=0) + 1
    size = math.log2(terms) + sum(max(math.log2(_largest(each)), 0.0) for each in floats)
    return size >= math.log2(torch.finfo(_summed(result)).max)


def overflowed(
    result: Any, value: float, operands: Sequence[Any], summed: Callable[[Sequence[Any]], Any]
) -> Any:
    """A sum of degree 1 with `value` at the elements whose terms' absolute values, summed in f64,
    pass the largest number. `summed` gives the sum of other operands."""
    if not is_float(result):
        return result
    sizes = [_sizes(each) if is_float(each) else each for each in operands]
    with torch.no_grad():
        bound = summed(sizes)
    may_overflow = bound.nan_to_num(torch.inf) >= torch.finfo(_summed(result)).max
    return torch.where(may_overflow, value, result) if bool(may_overflow.any()) else result


def _sizes(value: torch.Tensor) -> torch.Tensor:
    return value.detach().double().abs().nan_to_num(0.0, 0.0, 0.0)


def _degree(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> float:
    """Of which degree the terms of an op's sums are in an operand; 0 where it sums nothing."""
    name = base_name(function).rstrip("_")
    if name not in JOINING:
        return DEGREES.get(name, 0.0)
    named = [each.name for each in function._schema.arguments]
    given = {**dict(zip(named, args, strict=False)), **kwargs}
    return JOINED.get(given.get(JOINING[name], False), 0.0)


def answers_without_large(call: Callable[[], Any]) -> tuple[tuple[torch.Tensor, ...], ...]:
    """What a model gives with such operands replaced by each size, and with sums that may overflow
    as each of what they come to; nothing where it raises."""
    found = []
    for mode in (*map(ReplacedLarge, REPLACEMENTS), *map(OverflowedSums, OVERFLOWED)):
        try:
            with mode, sdpa_kernel(SDPBackend.MATH):
                found.append(golden_tensors(call))
        except Exception:  # an op does not take what was replaced
            return ()
    return tuple(found)


# -- moved roundings -------------------------------------------------------------------------------


class Undecided(Protocol):
    """What was found, and how far each output may be apart → masks of the elements."""

    def __call__(
        self, found: Sequence[Array], limits: Sequence[float], has_tf32: bool = False
    ) -> tuple[Array, ...]:
        """`has_tf32`: where convolutions of f32 are of TF32."""


RUNS = 16
LEAST_RUNS, MOVED_LIMIT = 4, 1 << 28  # elements: some seconds
UNITS = (1.0, 4.0)  # in the last place; two runs of either in turn
EDGE = 1 / 8  # of the span of answers, which are few: so far beyond them is among them
BLOCK_ELEMENTS = 1 << 18  # of large tensors that are moved at once
PART = 0.05  # of an element's size: answers of a float that are further apart part altogether

# Ops of ATen that round nothing: what they give are elements of their operands, or exact.
EXACT = frozenset({
    "_debug_has_internal_overlap", "_reshape_alias", "_stack", "_to_copy", "_unsafe_index",
    "_unsafe_index_put", "_unsafe_view", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "abs", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "alias", "amax", "amin", "aminmax", "as_strided", "as_strided_scatter",
    "bernoulli", "cat", "ceil", "channel_shuffle", "clamp", "clamp_max", "clamp_min", "clone",
    "constant_pad_nd", "contiguous", "copy", "copysign", "cummax", "cummin", "detach",
    "diag_embed", "diagonal", "diagonal_copy", "diagonal_scatter", "embedding", "empty_like",
    "expand", "expand_copy", "fill", "flip", "floor", "fmax", "fmin", "fmod", "frac", "full_like",
    "gather", "hardtanh", "heaviside", "im2col", "index", "index_copy", "index_fill", "index_put",
    "index_select", "kthvalue", "lift_fresh", "lift_fresh_copy", "masked_fill", "masked_scatter",
    "masked_select", "max", "max_pool2d_with_indices", "max_pool3d_with_indices", "maximum",
    "median", "min", "minimum", "nan_to_num", "nanmedian", "neg", "new_empty", "new_full",
    "new_ones", "new_zeros", "nextafter", "ones_like", "permute", "permute_copy", "pixel_shuffle",
    "pixel_unshuffle", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "relu",
    "repeat", "repeat_interleave", "replication_pad1d", "replication_pad2d", "replication_pad3d",
    "roll", "rot90", "round", "scatter", "select", "select_copy", "select_scatter", "sgn", "sign",
    "slice", "slice_copy", "slice_scatter", "sort", "split", "split_with_sizes", "squeeze",
    "squeeze_copy", "stack", "t", "take", "threshold", "to", "topk", "transpose", "transpose_copy",
    "tril", "triu", "trunc", "unbind", "unfold", "unfold_copy", "unsqueeze", "unsqueeze_copy",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "view", "view_as_complex",
    "view_as_real", "view_copy", "where", "zero", "zeros_like",
})  # fmt: skip

ATTENTION = (
    torch.nn.functional.scaled_dot_product_attention,
    torch.ops.aten.scaled_dot_product_attention.default,
)
# Sums whose every term has a factor of two operands.
PRODUCTS = frozenset({
    "mm", "bmm", "mv", "dot", "vdot", "addmm", "baddbmm", "addbmm", "addmv", "linear", "matmul",
    "convolution", "conv1d", "conv2d", "conv3d",
})  # fmt: skip
SUMS_OF_TERMS = frozenset({"addcdiv", "addcmul", "lerp"})  # element by element


def moved(value: torch.Tensor, units: float, generator: torch.Generator) -> torch.Tensor:
    """Each element moved at random by up to `units` in its last place; values of the same type.

    An element that moves does so by a smallest subnormal at least; 0 and what is not finite stay,
    and what is finite stays finite.
    """
    own = value.detach()
    if own.numel() > BLOCK_ELEMENTS:
        return _moved_by_blocks(own, units, generator)
    noise = torch.rand(own.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return _moved_by(noise, own, units)


def _moved_by_blocks(own: torch.Tensor, units: float, generator: torch.Generator) -> torch.Tensor:
    """The same of large tensors, such as weights: blocks that caches hold, in parts of one row of
    random numbers that begin anywhere, since to draw as many as there are weights takes minutes."""
    found = torch.empty_like(own)  # in the same order where that has no gaps
    dense = own if found.stride() == own.stride() else own.contiguous()
    found = torch.empty_like(dense)
    flat, target = (each.as_strided((each.numel(),), (1,)) for each in (dense, found))
    dtype = torch.float32 if own.dtype.itemsize == 2 else torch.float64
    noise = torch.rand(2 * BLOCK_ELEMENTS, generator=generator, dtype=dtype) * 2 - 1
    starts = torch.randint(
        BLOCK_ELEMENTS, (-(-own.numel() // BLOCK_ELEMENTS),), generator=generator
    )
    blocks = zip(flat.split(BLOCK_ELEMENTS), target.split(BLOCK_ELEMENTS), starts, strict=True)
    for block, changed, start in blocks:
        changed.copy_(_moved_by(noise[int(start) :][: len(block)], block, units))
    return found


def _moved_by(noise: torch.Tensor, own: torch.Tensor, units: float) -> torch.Tensor:
    """Elements moved by noise from -1 to 1, of the type to compute in, times so many units."""
    kind = torch.finfo(own.dtype)
    wide = own.to(noise.dtype)
    step = noise * wide.abs() * (units * kind.eps)
    least = kind.smallest_normal * kind.eps  # the smallest subnormal
    is_lost = (step.abs() < least) & (wide.abs() < kind.smallest_normal)
    if bool(is_lost.any()):
        step = torch.where(is_lost, (noise * 3).trunc().clamp(-1, 1) * least, step)
    changed = (wide + step).to(own.dtype)
    return torch.where(changed.isfinite() & (own != 0), changed, own)


def parts(answers: torch.Tensor) -> torch.Tensor:
    """At which elements answers, stacked along the first axis, part altogether.

    Whole numbers and booleans: where they are not all equal. Floats, in f64: where one is a number
    and another is not, or infinite of another sign, or where they are apart by more than a
    twentieth of their size.
    """
    if not answers.is_floating_point():
        return (answers != answers[0]).any(0)
    low, high, has_finite = span_of(answers)
    kinds = torch.where(answers.isfinite(), 0, torch.where(answers.isnan(), 2, torch.sign(answers)))
    size = torch.maximum(low.abs(), high.abs())
    return (kinds != kinds[0]).any(0) | (has_finite & (high - low > PART * size))


def hidden_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention that never looks at scores which are hidden, by a mask of flags or because they
    are later, as fused kernels do it; torch's plain implementation adds -inf to them, which makes
    NaN of one that is infinite or NaN."""
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (each.repeat_interleave(groups, -3) for each in (key, value))
    wide = torch.promote_types(query.dtype, torch.float32)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query.to(wide) @ key.to(wide).transpose(-2, -1)) * factor
    is_seen = torch.ones(scores.shape[-2:], dtype=torch.bool)
    if is_causal:
        is_seen = is_seen.tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        is_seen = is_seen & attn_mask
    elif attn_mask is not None:
        scores = scores + attn_mask
    scores = scores.masked_fill(~is_seen, -torch.inf)
    is_empty = (scores == -torch.inf).all(-1, keepdim=True)
    shares = scores.softmax(-1).masked_fill(is_empty, 0.0)
    value, is_finite = value.to(wide), value.isfinite()
    counts = is_seen.to(wide) @ (~is_finite).to(wide)  # of 0 · inf, none is summed where hidden
    found = torch.where(counts > 0, shares @ value, shares @ value.where(is_finite, 0.0))
    return found.to(query.dtype)


def parts_near_limits(answers: Sequence[torch.Tensor]) -> torch.Tensor:
    """At which elements answers without large operands part, or those with overflowed sums."""
    count = len(REPLACEMENTS)
    replaced, of_sums = torch.stack([*answers[:count]]), torch.stack([*answers[count:]])
    return parts(replaced) | parts(of_sums)


def span_of(answers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The least and the largest finite answer of each element, and whether there is one."""
    finite = answers.isfinite()
    low = torch.where(finite, answers, float("inf")).amin(0)
    high = torch.where(finite, answers, float("-inf")).amax(0)
    return low, high, finite.any(0)


class MovedRoundings(OpMode):
    """Every result of an op that rounds is moved; of one that sums, the operands too."""

    def __init__(self, seed: int, units: float, comparisons: Comparisons | None = None) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)
        self._units = units
        self._comparisons = comparisons
        self.elements = 0  # how many were moved

    def run_op(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        if self._comparisons is not None:
            args = _with_writes(function, args, self._comparisons.operands(function, args, kwargs))
        if _is_exact(function, args, kwargs):
            return function(*args, **kwargs)
        is_changing = function._schema.is_mutable
        is_aten = function.namespace in ATEN_NAMESPACES
        if not is_changing and is_aten and _has_terms(function):
            args, kwargs = self._with_moved_terms(function, args), self._moved(kwargs)
        result = function(*args, **kwargs)
        if is_changing:
            self._move_in_place(function, args)
            return result
        return self._moved(result)

    def _with_moved_terms(self, function: Any, args: Sequence[Any]) -> Sequence[Any]:
        """The operands of a sum moved; of products all but a large one, mostly weights: each term
        moves with its other factor, and a copy of a model's weights for each run takes long."""
        largest = max(filter(is_float, args), key=torch.Tensor.numel, default=None)
        if base_name(function) not in PRODUCTS or largest is None:
            return self._moved(args)
        is_kept = largest.numel() > BLOCK_ELEMENTS
        return [each if is_kept and each is largest else self._moved(each) for each in args]

    def _moved(self, values: Any) -> Any:
        return pytree.tree_map(self._one, values)

    def _one(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_complex() and value.numel():
            pair = torch.view_as_real(value.detach().resolve_conj())
            return torch.view_as_complex(self._one(pair).contiguous())
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            self.elements += value.numel()
            return moved(value, self._units, self._generator).as_subclass(type(value))
        return value

    def _move_in_place(self, function: Any, args: Any) -> None:
        for place, value in enumerate(args):
            is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
            if is_float and _writes(function, place):
                value.copy_(moved(value, self._units, self._generator))


def _with_writes(function: Any, args: Sequence[Any], changed: Sequence[Any]) -> tuple[Any, ...]:
    """Changed operands; those that an op writes to are the operands themselves, changed."""
    found = []
    for place, (own, new) in enumerate(zip(args, changed, strict=True)):
        is_written = new is not own and _writes(function, place)
        found.append(own.copy_(new) if is_written else new)
    return tuple(found)


def _writes(function: Any, place: int) -> bool:
    """Whether an op writes into an argument."""
    alias = function._schema.arguments[place].alias_info
    return alias is not None and alias.is_write


def _hides_scores(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, **_: Any
) -> bool:  # fmt: skip
    return is_causal or (attn_mask is not None and attn_mask.dtype == torch.bool)


class MovedAttention(TorchFunctionMode):
    """Operands and result of attention moved, in their own type.

    Its plain implementation works in f32 where its operands are 16-bit floats; the fused ones round
    the probabilities to 16 bits, as our kernels do. Where it `hides`, attention with hidden scores
    is that of `hidden_attention`.
    """

    def __init__(self, seed: int, units: float, hides: bool = False) -> None:
        super().__init__()
        self._hides = hides
        self._generator = torch.Generator().manual_seed(seed)
        self._units = units

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function not in ATTENTION:
            return function(*args, **(kwargs or {}))
        args, kwargs = pytree.tree_map(self._one, (args, kwargs or {}))
        hides = self._hides and _hides_scores(*args, **kwargs)
        return self._one((hidden_attention if hides else function)(*args, **kwargs))

    def _one(self, value: Any) -> Any:
        if not is_float(value) or not self._units:
            return value
        away = moved(value, self._units, self._generator) - value.detach()
        return value + torch.where(away.isfinite(), away, 0.0)  # gradients pass


def _has_terms(function: Any) -> bool:
    """Whether an op rounds terms on its way, whose sum may be far smaller than they are."""
    name = function._schema.name.rpartition("::")[2].rstrip("_")
    is_one_by_one = torch.Tag.pointwise in function.tags
    return not is_one_by_one or name in SUMS_OF_TERMS or name.endswith("_backward")


def _is_exact(function: Any, args: Any, kwargs: Any) -> bool:
    name = function._schema.name.rpartition("::")[2]
    if name.rstrip("_") in EXACT or name in EXACT:
        is_sum = name.rstrip("_").endswith("index_put") and len(args) > 3 and bool(args[3])
        return not is_sum and function._overloadname != "decimals"
    leaves = pytree.tree_leaves((args, kwargs))
    return not any(isinstance(leaf, torch.Tensor) for leaf in leaves)


def answers(call: Callable[[], Any], runs: int = RUNS) -> Iterator[tuple[torch.Tensor, ...]]:
    """What a model gives with its roundings moved, run after run; less those in which it raises.

    Runs end where they have moved `MOVED_LIMIT` elements, after four at the least. Every second run
    is with torch's plain implementation of attention: of rows whose every score is not a number,
    the fused one makes zeros. In the last ones comparisons that may come out otherwise do so.
    """
    moved_elements = 0
    comparisons = Comparisons()
    for seed in range(runs + WAYS):
        plain = sdpa_kernel(SDPBackend.MATH) if seed % 2 and seed < runs else nullcontext()
        comparisons.begin(None if seed < runs else seed - runs)
        watching = None if seed % 2 and seed < runs else comparisons
        mode = MovedRoundings(seed + 1, UNITS[seed % 4 > 1], watching)
        try:
            with mode, plain, MovedAttention(seed + 1, UNITS[0], hides=seed % 4 == 3):
                given = golden_tensors(call)
        except Exception:  # an op does not take what was moved
            continue
        if seed >= runs and not comparisons.found:
            return
        yield given
        moved_elements += mode.elements
        if moved_elements > MOVED_LIMIT and seed >= LEAST_RUNS - 1:
            return


def undecided_of(call: Callable[[], Any], expected: Sequence[Array]) -> Undecided:
    """`undecided` of a model's call, to be asked later: the settings are those of a capture."""

    def asked(
        found: Sequence[Array], limits: Sequence[float], has_tf32: bool = False
    ) -> tuple[Array, ...]:
        with torch.no_grad(), quiet_settings(), seeded(GOLDEN_SEED):
            return undecided(with_tf32(call) if has_tf32 else call, expected, found, limits)

    return asked


def undecided(
    call: Callable[[], Any],
    expected: Sequence[Array],
    found: Sequence[Array],
    limits: Sequence[float],
) -> tuple[Array, ...]:
    """For each output of a model, a mask of the elements that roundings decide.

    call: gives the model's tensors, each time anew; expected: what it gave; found: what is judged;
    limits: how far apart they may be, relative to the largest expected value. An element is in a
    mask where it is further apart than that, the model's own answers part there by more too, and
    `found` lies among them (where one of these is not finite, anything does), or where it hangs on
    operands of which a sum may overflow. Runs the model up to `RUNS` times, and `WAYS` times more,
    until all that differs is explained.
    """
    masks = [numpy.zeros(array.shape, bool) for array in expected]
    outputs: list[_Differing] = []
    for given in answers(call):
        if not outputs:
            rows = zip(masks, expected, found, limits, given, strict=True)
            outputs = [_Differing.of(*row) for row in rows]
        for each, answer in zip(outputs, given, strict=True):
            each.compare(answer)
        if not any(each.places.numel() for each in outputs):
            return tuple(masks)
    with suppress(Exception):  # an op does not take what was widened
        wide = widest(call, [each.found.dtype for each in outputs]) if outputs else ()
        for each, answer in zip(outputs, wide, strict=True):
            each.compare(answer)
    for each, *given in zip(outputs, *answers_without_large(call), strict=False):
        each.explain(parts_near_limits([one.detach().reshape(-1)[each.places] for one in given]))
    return tuple(masks)


@dataclass(slots=True)
class _Differing:
    """The elements of one output that differ and that no answer has explained yet.

    mask: of the whole output, set where an element is explained; places: in the flat output;
    answers: what the model gave there, [runs, places], of which the first is the expected one.
    """

    mask: Array
    found: torch.Tensor
    apart: float  # how far answers are apart at least where they explain an element
    places: torch.Tensor
    answers: torch.Tensor

    @classmethod
    def of(
        cls, mask: Array, expected: Array, found: Array, limit: float, like: torch.Tensor
    ) -> _Differing:
        own, other = (_tensor(each, like).reshape(-1) for each in (expected, found))
        apart = limit * _scale(own) if own.is_floating_point() else 0.0
        places = _differs(own, other, apart).nonzero()[:, 0]
        return cls(mask, other[places], apart, places, own[places][None])

    def compare(self, answer: torch.Tensor) -> None:
        """Take one more answer into account, the whole output."""
        if not self.places.numel():
            return
        new = answer.detach().reshape(-1)[self.places]
        self.answers = torch.cat((self.answers, new[None]))
        self.explain(_among(self.answers, self.found, self.apart))

    def explain(self, is_explained: torch.Tensor) -> None:
        """Set the mask where differing elements are explained, and keep the others."""
        self.mask.reshape(-1)[self.places[is_explained].numpy()] = True
        self.places = self.places[~is_explained]
        self.found = self.found[~is_explained]
        self.answers = self.answers[:, ~is_explained]


def _tensor(array: Array, like: torch.Tensor) -> torch.Tensor:
    tensor = torch.from_numpy(numpy.array(array))
    return tensor if tensor.dtype == like.dtype else tensor.view(like.dtype)


def _differs(expected: torch.Tensor, found: torch.Tensor, apart: float) -> torch.Tensor:
    differs = (found != expected) & ~(found.isnan() & expected.isnan())
    if not expected.is_floating_point():
        return differs
    return differs & ~((found.double() - expected.double()).abs() <= apart)


def _among(rows: torch.Tensor, found: torch.Tensor, apart: float) -> torch.Tensor:
    """Where answers are more than so far `apart` with `found` among them, or part otherwise."""
    if not rows.is_floating_point():
        return parts(rows)
    rows, found = rows.double(), found.double()
    low, high, _ = span_of(rows)
    edge = (high - low) * EDGE
    is_among = (high - low > apart) & (found >= low - edge) & (found <= high + edge)
    return is_among | (~rows.isfinite().all(0) & explained(rows, found, 1.0))


def explained(rows: torch.Tensor, found: torch.Tensor, times: float) -> torch.Tensor:
    """Where answers, floats in f64, part altogether and `found` lies among them: within so many
    `times` their span, or infinite where they are on both sides of a pole. Where not all of them
    are finite, anything does."""
    low, high, _ = span_of(rows)
    away = times * (high - low)
    is_between = (found >= low - away) & (found <= high + away)
    has_pole = found.isinf() & (low < 0) & (high > 0)
    return parts(rows) & (is_between | has_pole | ~rows.isfinite().all(0))


def _scale(expected: torch.Tensor) -> float:
    """The largest finite absolute value; 1 where there is none: differences are absolute then."""
    sizes = expected.double().abs()
    largest = torch.where(sizes.isfinite(), sizes, 0.0).max().item() if sizes.numel() else 0.0
    return largest or 1.0
