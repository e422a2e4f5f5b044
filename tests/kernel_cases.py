"""The functions of `aotc.kernels` with their references: one row a function and form.

A reference is torch's own function, run in f64 on the very numbers that ours is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from aotc import kernels

EPSILON = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
EPSILON[torch.float64] = 2.0**-53
"""Half a step of a type at 1: what one rounding changes a number by, relative to it."""


@dataclass(frozen=True)
class Case:
    """ours, reference: functions of the same tensors.

    shapes: from a shape of `x` to the shapes of all float arguments, `x` first.
    sizes: shapes of `x`, small ones first; long: those of the nightly test, beside them.
    even: axes of `x` whose sizes are even.
    terms: of the arguments, how large the terms are, for a gradient of 1, whose differences the
    results are; in short rows little of them is left.
    rounding: the reference with a function before the tensors, which rounds what ours rounds by its
    documentation on the way to the result.
    """

    name: str
    ours: Callable[..., Any]
    reference: Callable[..., Any]
    shapes: Callable[[tuple[int, ...]], Sequence[tuple[int, ...]]]
    sizes: tuple[tuple[int, ...], ...]
    long: tuple[tuple[int, ...], ...] = ()
    gradcheck: tuple[int, ...] = (3, 5)
    even: tuple[int, ...] = ()
    terms: Callable[..., float] = lambda *wide: 0.0
    rounding: Callable[..., torch.Tensor] | None = None

    def expected(self, dtype: torch.dtype, *wide: torch.Tensor) -> torch.Tensor:
        """The reference for arguments that ours is given in this type."""
        if self.rounding is None:
            return self.reference(*wide)
        return self.rounding(lambda value: _Rounded.apply(value, dtype), *wide)

    def tensors(
        self, shape: tuple[int, ...], dtype: torch.dtype, is_grad: bool = True
    ) -> list[torch.Tensor]:
        """Random arguments."""
        made = [torch.randn(each, dtype=torch.float64).to(dtype) for each in self.shapes(shape)]
        return [each.requires_grad_(is_grad) for each in made]


class _Rounded(torch.autograd.Function):
    """Numbers of f64 as another type has them; gradients pass."""

    @staticmethod
    def forward(ctx, value, dtype):
        return value.to(dtype).to(value.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def _norm_linear(rounded, x, gamma, beta, weight, bias=None):
    """A norm and a product, whose operands have the type of the arguments.

    Rounding the normalised rows is no error of a kernel: the product multiplies numbers of that
    type, as it says. But it changes each by half a step, and what comes of it in the product and,
    by the slope of gelu, in its gradients is that times sums of the weights: relative to the
    largest element of a gradient, which is a difference of such sums, it may be several steps (1.7
    times `tolerance` in 600 draws of 4 rows of 7, where all other roundings together came to 0.8).
    So the reference rounds there too.
    """
    normed = functional.layer_norm(x, x.shape[-1:], gamma, beta)
    return functional.linear(rounded(normed), weight, bias)


def _norm_linear_gelu_dropout(rounded, x, gamma, weight):
    return kernels.dropout(
        functional.gelu(_norm_linear(rounded, x, gamma, None, weight)), 0.25, seed=5
    )


def _alone(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [shape]


def _twice(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [shape, shape]


def _norm(count: int) -> Callable[[tuple[int, ...]], list[tuple[int, ...]]]:
    return lambda shape: [shape, *[shape[-1:]] * count]


def _group(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [shape, (shape[1],), (shape[1],)]


def _linear(outputs: int) -> Callable[[tuple[int, ...]], list[tuple[int, ...]]]:
    return lambda shape: [shape, (outputs, shape[-1]), (outputs,)]


def norm_terms(rows: Callable[[torch.Tensor], torch.Tensor], is_centered: bool = True) -> Any:
    """With r = 1 / the smallest root of a row's variance (or mean square) + 1e-5: a difference of x
    from its mean is off by a rounding of x, so what is normalised by a rounding of x r, and the
    gradient of x is a difference of terms of r."""

    def terms(x: torch.Tensor, *weights: torch.Tensor) -> float:
        if not x.numel():
            return 0.0
        flat = rows(x)
        spread = flat.var(1, unbiased=False) if is_centered else flat.square().mean(1)
        largest = float(weights[0].abs().max()) if weights else 1.0
        r = 1 / math.sqrt(float(spread.min()) + 1e-5)
        return largest * max(1.0, r) * (1 + float(x.abs().max()) * r)

    return terms


LAST = norm_terms(lambda x: x.reshape(-1, x.shape[-1]))


def linear_terms(x: torch.Tensor, gamma: torch.Tensor, *rest: torch.Tensor) -> float:
    """Those of a layer norm that a product follows: each is a sum by a row or column of weights."""
    weight = next(each for each in rest if each.dim() == 2).abs()
    return LAST(x, gamma) * max(float(weight.sum(dim).max()) for dim in (0, 1))


def attention_terms(axis: int) -> Any:
    """Where a query sees one key, the gradients of queries and keys are 0: a difference of terms of
    the size of v times that of q or k. axis: that of positions."""

    def terms(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> float:
        if not q.numel() or not k.numel() or min(q.shape[axis], k.shape[axis]) > 1:
            return 0.0
        return math.sqrt(q.shape[-1]) * float(v.abs().max() * max(q.abs().max(), k.abs().max()))

    return terms


ROWS = ((3, 7), (2, 300))
FEW, MANY = ((3, 5),), ((), (70001,), (2, 3, 4))
LONG_ROWS = ((5, 1), (4, 1000), (70, 64), (9, 128), (2, 9000), (3, 17001), (2, 70001))

CASES = (
    Case("vector_add", kernels.vector_add, torch.add, _twice, ((3, 5),), ((70001,), (2, 3, 4))),
    Case("softmax", kernels.softmax, lambda x: torch.softmax(x, -1), _alone, ROWS, LONG_ROWS),
    Case(
        "softmax over channels",
        lambda x: kernels.softmax(x, 1),
        lambda x: torch.softmax(x, 1),
        _alone,
        ((2, 5, 9),),
        ((3, 300, 33), (2, 3000, 40)),
    ),
    Case(
        "log_softmax",
        kernels.log_softmax,
        lambda x: torch.log_softmax(x, -1),
        _alone,
        ROWS[:1],
        LONG_ROWS,
    ),
    Case(
        "layer_norm",
        lambda x, w, b: kernels.layer_norm(x, x.shape[-1:], w, b),
        lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b),
        _norm(2),
        ROWS,
        LONG_ROWS[1:],
        terms=LAST,
    ),
    Case(
        "layer_norm without weights",
        lambda x: kernels.layer_norm(x, x.shape[-1:]),
        lambda x: functional.layer_norm(x, x.shape[-1:]),
        _alone,
        (),
        LONG_ROWS[1:],
        terms=LAST,
    ),
    Case(
        "rms_norm",
        lambda x, w: kernels.rms_norm(x, x.shape[-1:], w, 1e-5),
        lambda x, w: functional.rms_norm(x, x.shape[-1:], w, 1e-5),
        _norm(1),
        ROWS[:1],
        LONG_ROWS[1:],
        terms=norm_terms(lambda x: x.reshape(-1, x.shape[-1]), is_centered=False),
    ),
    Case(
        "group_norm",
        lambda x, w, b: kernels.group_norm(x, 2, w, b),
        lambda x, w, b: functional.group_norm(x, 2, w, b),
        _group,
        ((3, 4, 5),),
        ((3, 6), (2, 8, 30, 17), (600, 6, 3), (2, 4, 90000)),
        gradcheck=(2, 4, 3),
        even=(1,),
        terms=norm_terms(lambda x: x.reshape(2 * x.shape[0], -1)),
    ),
    Case("silu", kernels.silu, functional.silu, _alone, FEW, MANY),
    Case("gelu", kernels.gelu, functional.gelu, _alone, FEW, MANY),
    Case(
        "gelu by tanh",
        lambda x: kernels.gelu(x, "tanh"),
        lambda x: functional.gelu(x, approximate="tanh"),
        _alone,
        FEW,
        MANY,
    ),
    Case("relu_squared", kernels.relu_squared, lambda x: x.relu().square(), _alone, FEW, MANY),
    Case("swiglu", kernels.swiglu, lambda x, gate: functional.silu(x) * gate, _twice, FEW, MANY),
    Case(
        "geglu of halves",
        lambda x: kernels.geglu(*x.chunk(2, -1)),
        lambda x: torch.mul(functional.gelu(x.chunk(2, -1)[0]), x.chunk(2, -1)[1]),
        _alone,
        ((3, 8),),
        ((5, 4, 1000),),
        gradcheck=(3, 6),
        even=(-1,),
    ),
    Case(
        "cross_entropy",
        lambda x: kernels.cross_entropy(x, labels(x), reduction="none"),
        lambda x: functional.cross_entropy(x, labels(x), reduction="none"),
        _alone,
        ((4, 9),),
        ((3, 7, 2, 5), (3, 9000), (3, 70001)),
    ),
    Case(
        "cross_entropy with smoothing",
        lambda x: kernels.cross_entropy(x, labels(x), 1, "sum", 0.1),
        lambda x: functional.cross_entropy(
            x, labels(x), ignore_index=1, reduction="sum", label_smoothing=0.1
        ),
        _alone,
        ((3, 7, 5),),
        ((4, 9000), (3, 70001)),
        gradcheck=(3, 4, 2),
        terms=lambda x: 1.0,  # of one class the gradient is 1 - 0.9 - 0.1
    ),
    Case(
        "rope",
        lambda x: kernels.rope(x, *angles(x)),
        lambda x: rotated(x, False),
        _alone,
        ((2, 3, 5, 8),),
        ((5, 7), (3, 5, 128), (2, 9, 33, 64)),
        gradcheck=(2, 3, 4, 6),
    ),
    Case(
        "embedding_bag",
        lambda w: kernels.embedding_bag(rows_of(w), w),
        lambda w: functional.embedding_bag(rows_of(w), w),
        _alone,
        ((9, 5),),
        ((4, 1), (70, 2000)),
    ),
    Case(
        "embedding_bag with offsets",
        lambda w: kernels.embedding_bag(rows_of(w).flatten(), w, OFFSETS.to(w.device), "sum"),
        lambda w: functional.embedding_bag(
            rows_of(w).flatten(), w, OFFSETS.to(w.device), mode="sum"
        ),
        _alone,
        (),
        ((9, 5), (70, 2000)),
    ),
    Case(
        "rope of neighbours",
        lambda x: kernels.rope(x, *angles(x), interleaved=True),
        lambda x: rotated(x, True),
        _alone,
        (),
        ((2, 3, 5, 8), (5, 7), (2, 9, 33, 64)),
    ),
    Case(
        "matmul",
        kernels.matmul,
        torch.matmul,
        lambda shape: [shape, (shape[-1], 9)],
        ((2, 33, 70),),
        ((1, 1), (3, 7), (130, 300), (65, 129)),
    ),
    Case(
        "attention",
        lambda q, k, v: kernels.attention(q, k, v, True),
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda shape: [shape] * 3,
        ((2, 3, 5, 4),),
        ((1, 2, 70, 40), (2, 1, 33, 128)),
        gradcheck=(2, 2, 3, 2),
        terms=attention_terms(2),
    ),
    Case(
        "attention_varlen",
        lambda q, k, v: kernels.attention_varlen(q, k, v, *packing(q), True),
        lambda q, k, v: torch.cat(
            [
                functional.scaled_dot_product_attention(*part, is_causal=True).transpose(0, 1)
                for part in zip(*map(sequences, (q, k, v)), strict=True)
            ]
        ),
        lambda shape: [shape] * 3,
        ((7, 3, 4),),
        ((70, 2, 40), (33, 1, 128)),
        gradcheck=(5, 2, 3),
        terms=attention_terms(0),
    ),
    Case(
        "matmul of batches",
        kernels.matmul,
        torch.matmul,
        lambda shape: [shape, (shape[1], shape[-1], 2)],
        (),
        ((2, 6, 5, 3), (3, 2, 70, 33)),
    ),
    Case(
        "linear",
        kernels.linear,
        functional.linear,
        _linear(11),
        (),
        ((3, 7), (2, 5, 64), (130, 300)),
    ),
    Case(
        "linear with gelu",
        lambda x, w, b: kernels.linear(x, w, b, "gelu"),
        lambda x, w, b: functional.gelu(functional.linear(x, w, b)),
        _linear(17),
        ((4, 6),),
        ((2, 5, 64), (70, 130)),
    ),
    Case(
        "linear with squared relu",
        lambda x, w: kernels.linear(x, w, None, "relu_squared"),
        lambda x, w: functional.linear(x, w).relu().square(),
        lambda shape: _linear(17)(shape)[:2],
        (),
        ((4, 6), (70, 130)),
    ),
    Case(
        "layer_norm_linear",
        lambda x, gamma, beta, w, b: kernels.layer_norm_linear(x, gamma, beta, w, b),
        lambda *given: _norm_linear(lambda value: value, *given),
        lambda shape: [shape, shape[-1:], shape[-1:], *_linear(11)(shape)[1:]],
        (),
        ((4, 7), (2, 5, 64), (70, 130)),
        terms=linear_terms,
        rounding=_norm_linear,
    ),
    Case(
        "layer_norm_linear_gelu_dropout",
        lambda x, gamma, w: kernels.layer_norm_linear_gelu_dropout(
            x, gamma, None, w, p=0.25, seed=5
        ),
        lambda *given: _norm_linear_gelu_dropout(lambda value: value, *given),
        lambda shape: [shape, shape[-1:], (11, shape[-1])],
        ((4, 7),),
        ((2, 300, 64),),
        terms=linear_terms,
        rounding=_norm_linear_gelu_dropout,
    ),
    Case(
        "linear_cross_entropy",
        lambda x, w, b: kernels.linear_cross_entropy(x, w, classes(x), b, 1, "none"),
        lambda x, w, b: functional.cross_entropy(
            functional.linear(x, w, b).flatten(0, -2),
            classes(x).flatten(),
            None,
            None,
            1,
            reduction="none",
        ).reshape(x.shape[:-1]),
        _linear(150),
        ((4, 7),),
        ((2, 5, 64), (70, 130)),
        gradcheck=(3, 5),
    ),
    Case(
        "swiglu_mlp",
        kernels.swiglu_mlp,
        lambda x, gate, up, down: functional.linear(
            functional.silu(functional.linear(x, gate)) * functional.linear(x, up), down
        ),
        lambda shape: [shape, (9, shape[-1]), (9, shape[-1]), (6, 9)],
        (),
        ((3, 7), (2, 5, 64)),
    ),
)


def classes(x: torch.Tensor) -> torch.Tensor:
    """A number below 150 for each row."""
    count = math.prod(x.shape[:-1])
    return (torch.arange(count) * 37 % 150).reshape(x.shape[:-1])


def labels(x: torch.Tensor) -> torch.Tensor:
    """A class for each row, with all of them in turns."""
    shape = (x.shape[0], *x.shape[2:])
    return (torch.arange(math.prod(shape), device=x.device) * 3 % max(1, x.shape[1])).reshape(shape)


def lengths(rows: int) -> list[int]:
    """Of three packed sequences: a third, none, the rest."""
    return [rows // 3, 0, rows - rows // 3]


def packing(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int, int]:
    """What follows the tensors of packed attention."""
    first, _, last = lengths(x.shape[0])
    starts = torch.tensor([0, first, first, first + last], dtype=torch.int32)
    return starts, starts, last, last


def sequences(x: torch.Tensor) -> list[torch.Tensor]:
    """Packed sequences, each [heads, length, width]."""
    return [each.transpose(0, 1) for each in x.split(lengths(x.shape[0]))]


OFFSETS = torch.tensor([0, 4, 4, 9])


def rows_of(weight: torch.Tensor) -> torch.Tensor:
    """Three lists of row numbers of a table; none where it has no rows."""
    count = weight.shape[0]
    return torch.arange(12).reshape(3, 4) * 5 % count if count else torch.zeros(0, 4).long()


def angles(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines in f64, of each position or, of several batches, of each one's."""
    shape = (*(x.shape[:1] if x.dim() == 4 else ()), x.shape[-2], (x.shape[-1] - 1) // 2)
    turns = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape) * 0.7
    return turns.cos(), turns.sin()


def rotated(x: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """The reference of `rope`."""
    cos, sin = (each.unsqueeze(1) if x.dim() == 4 else each for each in angles(x))
    half = cos.shape[-1]
    step = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    first, second = step if interleaved else (slice(half), slice(half, 2 * half))
    parts = torch.empty_like(x[..., : 2 * half])
    parts[..., first] = x[..., first] * cos - x[..., second] * sin
    parts[..., second] = x[..., first] * sin + x[..., second] * cos
    return torch.cat([parts, x[..., 2 * half :]], -1)


def rounding_steps(dtype: torch.dtype, length: int) -> float:
    """Roundings of the type of the computation, relative to its terms: those of a sum of `length`
    terms by a tree and of some 16 functions and products on the way."""
    wide = EPSILON[torch.float64 if dtype == torch.float64 else torch.float32]
    steps = 16 + 4 * math.log2(max(2, length))
    return wide * steps * (2 if dtype == torch.float64 else 1)  # the reference of f64 rounds too


def tolerance(expected: torch.Tensor, dtype: torch.dtype, length: int) -> float:
    """How far a result may be from f64: relative to the largest element, 4 roundings to its type
    (the result, what the backward pass reads of the forward's results, and their two factors), and
    `rounding_steps`."""
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    return (4 * EPSILON[dtype] + rounding_steps(dtype, length)) * scale


def assert_near(
    found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, length: int, scale: float = 0.0
) -> None:
    """Fails where an element is further than `tolerance`, at least of `scale`."""
    assert found.dtype == dtype
    assert found.shape == expected.shape
    allowed = max(tolerance(expected, dtype, length), scale)
    away = (found.double() - expected).abs()
    assert bool((away <= allowed).all()), f"{float(away.max())} away, allowed {allowed}"


class Net(torch.nn.Module):
    """Functions of the library between others, so that they have something to fuse with."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(24))
        self.bias = torch.nn.Parameter(torch.randn(24))
        self.linear = torch.nn.Linear(24, 48)

    def forward(self, x):
        rows = torch.arange(12, device=x.device).reshape(6, 2) % 5
        x = x + kernels.embedding_bag(rows, self.linear.weight)
        x = kernels.layer_norm(x * 2, [24], self.weight, self.bias)
        x = kernels.vector_add(kernels.swiglu(*self.linear(x).chunk(2, -1)), x)
        x = kernels.group_norm(kernels.gelu(x), 3, self.weight, self.bias)
        x = kernels.dropout(x, 0.25, seed=5)
        turns = torch.arange(12.0, device=x.device).reshape(1, 12)
        x = kernels.rope(x.unsqueeze(1), turns.cos(), turns.sin()).squeeze(1)
        x = kernels.softmax(x) * kernels.rms_norm(kernels.relu_squared(x), [24], self.weight)
        targets = torch.arange(x.shape[0], device=x.device)
        return x, kernels.cross_entropy(x, targets, label_smoothing=0.1)


def compare(case: Case, tensors: Sequence[torch.Tensor], dtype: torch.dtype) -> None:
    """Results and gradients of all arguments against the reference in f64."""
    ours = [each.detach().requires_grad_() for each in tensors]
    wide = [each.detach().double().requires_grad_() for each in ours]
    shape = ours[0].shape
    found, expected = case.ours(*ours), case.expected(dtype, *wide)
    length = math.prod((3, *shape))
    with torch.no_grad():
        terms = case.terms(*wide) * rounding_steps(dtype, length)
    assert_near(found.detach(), expected.detach(), dtype, length, terms)
    gradient = torch.randn(expected.shape, dtype=torch.float64).to(expected.device, dtype)
    found = torch.autograd.grad(found, ours, gradient)
    expected = torch.autograd.grad(expected, wide, gradient.double())
    terms *= float(gradient.abs().max()) if gradient.numel() else 0.0
    for one, other in zip(found, expected, strict=True):
        assert_near(one, other, dtype, length, terms)
