"""Pointwise functions at the limits of their types: signs of zeros, infinities, NaN, subnormals.

A result is right if it is of the class (NaN, ±∞, ±0, a number) of eager's, or of eager's in f64
rounded to the type, and within the type's tolerance of that number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from torch.nn import functional as F

from aotc.aot.dynamo import aotc
from aotc.runtime.drivers.cpu.driver import ISA_FEATURES, features

INF, NAN = math.inf, math.nan
TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
Table = Mapping[str, Callable[..., torch.Tensor]]

NAMED = [
    "neg",
    "abs",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "frac",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "erf",
    "erfc",
    "lgamma",
    "digamma",
    "relu",
    "isnan",
    "isinf",
    "isfinite",
    "isposinf",
    "isneginf",
    "signbit",
    "square",
    "sgn",
    "nan_to_num",
    "logical_not",
]
UNARY: Table = {
    **{name: getattr(torch, name) for name in NAMED},
    **{
        name: getattr(F, name)
        for name in ("relu6", "silu", "softplus", "elu", "logsigmoid", "hardswish", "leaky_relu")
    },
    "x * -1": lambda x: x * -1.0,
    "-(-x)": lambda x: torch.neg(-x),
    "-x + 0": lambda x: -x + 0.0,
    "(-x) * 0": lambda x: (-x) * 0.0,
    "1 / -x": lambda x: 1.0 / (-x),
    "x + 0": lambda x: x + 0.0,
    "x + -0": lambda x: x + -0.0,
    "x - 0": lambda x: x - 0.0,
    "0 - x": lambda x: 0.0 - x,
    "x * 0": lambda x: x * 0.0,
    "x / 0": lambda x: x / 0.0,
    "x / inf": lambda x: x / INF,
    "x / 3": lambda x: x / 3.0,
    "1 / x": lambda x: 1.0 / x,
    "x ** 0": lambda x: x**0,
    "x ** 0.5": lambda x: x**0.5,
    "x ** -0.5": lambda x: x**-0.5,
    "x ** 2": lambda x: x**2,
    "x ** 3": lambda x: x**3,
    "x ** -1": lambda x: x**-1,
    "x ** 2.5": lambda x: x**2.5,
    "2 ** x": lambda x: 2.0**x,
    "0 ** x": lambda x: 0.0**x,
    "x // 2": lambda x: x // 2.0,
    "x // inf": lambda x: x // INF,
    "x // -inf": lambda x: x // -INF,
    "1 // x": lambda x: 1.0 // x,
    "x % 2": lambda x: x % 2.0,
    "x % -3": lambda x: x % -3.0,
    "fmod(x, 2)": lambda x: torch.fmod(x, 2.0),
    "clamp": lambda x: x.clamp(-1.0, 2.0),
    "max 0": lambda x: x.clamp(min=0.0),
    "xlogy": lambda x: torch.xlogy(x, x),
}
BINARY: Table = {
    **{
        name: getattr(torch, name)
        for name in [
            "add",
            "sub",
            "mul",
            "div",
            "remainder",
            "fmod",
            "pow",
            "atan2",
            "hypot",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "logical_and",
            "logical_or",
            "logical_xor",
            "copysign",
            "xlogy",
            "maximum",
            "minimum",
            "fmax",
            "fmin",
        ]
    },
    "floor division": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "where": lambda a, b: torch.where(a > b, a, b),
    "-(a - b)": lambda a, b: -(a - b),
    "(-a) * b": lambda a, b: (-a) * b,
    "(-a) / b": lambda a, b: (-a) / b,
}
# Of two zeros with different signs either is the larger one, in eager as its vectors have it.
EITHER_ZERO = {"maximum", "minimum", "fmax", "fmin"}
# Eager's vectors have NaN for rests of quotients above 2¹⁵⁰; test_remainders.py has exact ones.
RESTS = {"remainder", "fmod"}


def numbers(dtype: torch.dtype) -> torch.Tensor:
    limits = torch.finfo(dtype)
    least = 5e-324 if dtype == torch.float64 else limits.smallest_normal * limits.eps
    halves = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 0.1, 2.7, 10.0, 20.5, 88.0, 100.25, 1e4, INF]
    found = [*halves, limits.max, limits.tiny, least, 1 + limits.eps]
    both = [*found, *(-x for x in found), NAN]
    return torch.tensor(both, dtype=torch.float64).to(dtype)


def classes(x: torch.Tensor) -> torch.Tensor:
    """9 of NaN, ±3 of infinities, ±2 of numbers, ±1 of zeros."""
    size = torch.where(x.isinf(), 3, torch.where(x == 0, 1, 2))
    return torch.where(x.isnan(), 9, torch.where(x.signbit(), -size, size))


def is_like(found: torch.Tensor, expected: torch.Tensor, name: str) -> torch.Tensor:
    """Which elements are what is expected."""
    if not expected.is_floating_point():
        return found == expected
    limits, wide, wanted = torch.finfo(expected.dtype), found.double(), expected.double()
    same = classes(wide) == classes(wanted)
    if name in EITHER_ZERO:
        same |= (wide == 0) & (wanted == 0)
    error = (wide - wanted).abs()
    scale = wanted.abs().clamp(min=1.0) if name in ("lgamma", "gelu") else wanted.abs()
    near = error <= TOLERANCES[expected.dtype] * scale + limits.tiny
    vanishing = (wide.abs() <= limits.tiny) & (wanted.abs() <= limits.tiny)
    vanishing &= (wide.signbit() == wanted.signbit()) | ((wanted == 0) & (wide != 0))
    return (same & (near | ~wanted.isfinite())) | vanishing


def wrong(
    name: str, function: Callable[..., torch.Tensor], found: torch.Tensor, *given: torch.Tensor
) -> list[str]:
    expected = function(*given)
    assert found.dtype == expected.dtype, name
    right = is_like(found, expected, name)
    if given[0].is_floating_point() and given[0].dtype != torch.float64:
        exact = function(*(x.double() for x in given)).to(expected.dtype)
        right |= is_like(found, exact, name)
    if name in RESTS:
        is_large = (given[0].double() / given[1].double()).abs() > 2.0**150
        right |= is_large & expected.isnan() & (found.abs() < given[1].abs())
    return [
        f"{name}({', '.join(str(x[tuple(at)].item()) for x in given)}) = "
        f"{found[tuple(at)].item()}, eager {expected[tuple(at)].item()}"
        for at in (~right).nonzero()
    ]


def check(table: Table, target: str, *given: torch.Tensor) -> None:
    def model(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(*inputs) for function in table.values())

    options = {"fallback": "error", "target": target}
    compiled = torch.compile(model, backend="aotc", dynamic=False, options=options)
    found = compiled(*given)
    rows = zip(table.items(), found, strict=True)
    faults = [line for (name, f), result in rows for line in wrong(name, f, result, *given)]
    assert not faults, f"{len(faults)} wrong:\n" + "\n".join(faults[:40])


ROWS = [
    ("x86-64-v3", torch.float32),
    pytest.param("x86-64-v4", torch.float32, marks=pytest.mark.nightly),
    ("x86-64-v4", torch.float64),
    pytest.param("x86-64-v3", torch.float64, marks=pytest.mark.nightly),
    ("x86-64-v3", torch.float16),
    pytest.param("x86-64-v4", torch.float16, marks=pytest.mark.nightly),
    pytest.param("x86-64-v4", torch.bfloat16, marks=pytest.mark.nightly),
    pytest.param("x86-64-v3", torch.bfloat16, marks=pytest.mark.nightly),
]


def _target(isa: str) -> str:
    if not ISA_FEATURES[isa] <= features():
        pytest.skip(f"this processor is not {isa}")
    return f"cpu-{isa}"


@pytest.mark.parametrize(("isa", "dtype"), ROWS)
def test_functions_of_one_number(fresh, isa: str, dtype: torch.dtype) -> None:
    check(UNARY, _target(isa), numbers(dtype))


@pytest.mark.parametrize(("isa", "dtype"), ROWS)
def test_functions_of_two_numbers(fresh, isa: str, dtype: torch.dtype) -> None:
    row = numbers(dtype)
    first, second = torch.meshgrid(row, row, indexing="ij")
    check(BINARY, _target(isa), first.contiguous(), second.contiguous())


@pytest.mark.parametrize("place", [0, 1])
def test_functions_of_a_tensor_and_one_number(fresh, place: int) -> None:
    """One operand is the same in all lanes, which kernels compute once."""
    row = numbers(torch.float32)

    def model(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(*inputs) for function in BINARY.values())

    compiled = torch.compile(model, backend="aotc", dynamic=False, options={"fallback": "error"})
    faults = []
    for number in row:
        given = [row, row]
        given[place] = number
        wide = torch.broadcast_tensors(*given)
        for (name, f), result in zip(BINARY.items(), compiled(*given), strict=True):
            faults += wrong(name, f, result, *wide)
    assert not faults, f"{len(faults)} wrong:\n" + "\n".join(faults[:40])


WHOLE_UNARY: Table = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "bitwise_not": torch.bitwise_not,
    "x * -1": lambda x: x * -1,
    "x ** 2": lambda x: x**2,
    "x // 3": lambda x: x // 3,
    "x // -3": lambda x: x // -3,
    "x % 3": lambda x: x % 3,
    "x % -7": lambda x: x % -7,
    "fmod(x, 3)": lambda x: torch.fmod(x, 3),
    "x << 1": lambda x: x << 1,
    "x >> 1": lambda x: x >> 1,
    "relu": torch.relu,
    "clamp": lambda x: x.clamp(2, 5),
    "to float": lambda x: x.float(),
    "to i16": lambda x: x.to(torch.int16),
    "to u8": lambda x: x.to(torch.uint8),
    "to i64": lambda x: (x + 1).to(torch.int64),
    "sqrt": torch.sqrt,
}
WHOLE_BINARY: Table = {
    **{
        name: getattr(torch, name)
        for name in [
            "add",
            "sub",
            "mul",
            "maximum",
            "minimum",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "bitwise_and",
            "bitwise_or",
            "bitwise_xor",
            "bitwise_left_shift",
            "bitwise_right_shift",
            "logical_and",
            "true_divide",
        ]
    },
    "a + b as i64": lambda a, b: (a + b).to(torch.int64),
    "a * b as f32": lambda a, b: (a * b).float(),
}
DIVISIONS: Table = {
    "floor division": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "division": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_functions_of_integers(fresh, dtype: torch.dtype) -> None:
    limits, bits = torch.iinfo(dtype), torch.iinfo(dtype).bits
    found = [0, 1, 2, 3, 7, bits - 1, bits, limits.max, limits.max - 1, limits.max // 3]
    if limits.min:
        found += [-1, -2, -3, -bits, limits.min, limits.min + 1]
    row = torch.tensor(found, dtype=dtype)
    target = "cpu-x86-64-v3"
    table = {k: v for k, v in WHOLE_UNARY.items() if limits.min or k not in ("x // -3", "x % -7")}
    check(table, target, row)
    torch._dynamo.reset()
    first, second = (x.contiguous() for x in torch.meshgrid(row, row, indexing="ij"))
    check(WHOLE_BINARY, target, first, second)
    torch._dynamo.reset()
    divisors = row[(row != 0) & (row != -1)] if limits.min else row[row != 0]
    first, second = (x.contiguous() for x in torch.meshgrid(row, divisors, indexing="ij"))
    check(DIVISIONS, target, first, second)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_zeros_keep_their_signs(fresh, dtype: torch.dtype) -> None:
    def model(x):
        zero = torch.zeros_like(x)
        padded = torch.nn.functional.pad(x, (1, 0), value=-0.0)
        filled = torch.full_like(x, -0.0), torch.where(x > 0, x, -0.0)
        return x / -0.0, x / -zero, x / 0.0, 1 / padded, *filled, torch.angle(-zero)

    x = torch.tensor([1.5, -2.0, 0.0, -0.0, math.nan, math.inf], dtype=dtype)
    compiled = torch.compile(model, backend=aotc, options={"fallback": "error"})
    for found, expected in zip(compiled(x), model(x), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        is_number = ~torch.isnan(expected)
        assert torch.equal(torch.signbit(found)[is_number], torch.signbit(expected)[is_number])


def test_angles_of_real_numbers(fresh) -> None:
    def model(*given):
        return tuple(map(torch.angle, given))

    numbers = [-1.0, 0.0, -0.0, 2.0, math.inf, -math.inf, math.nan]
    given = [torch.tensor(numbers, dtype=each) for each in (torch.float64, torch.bfloat16)]
    given += [torch.tensor([-1, 0, 1]), torch.tensor([3, 0], dtype=torch.uint8)]
    compiled = torch.compile(model, backend=aotc, options={"fallback": "error"})
    for found, expected in zip(compiled(*given), model(*given), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quotients_are_rounded_as_eager_rounds_them(fresh, dtype: torch.dtype) -> None:
    limits = torch.finfo(dtype)
    edges = [limits.max, -limits.max, limits.max / 3, math.inf, math.nan, 0.0, -0.0]
    low, high = round(math.log10(limits.tiny)) + 20, round(math.log10(limits.max))
    scales = 10.0 ** torch.randint(low, high, (2000,)).to(torch.float64)
    x = torch.cat([torch.tensor(edges, dtype=torch.float64), torch.randn(2000) * scales]).to(dtype)

    def by_literals(x):
        return x / 0.001, x / -3e-5, x / 0.7, x / 3.0

    def by_one(x, divisor):
        return x / divisor

    compiled = torch.compile(by_literals, backend=aotc, options={"fallback": "error"})
    pairs = list(zip(compiled(x), by_literals(x), strict=True))
    compiled = torch.compile(by_one, backend=aotc, options={"fallback": "error"})
    for number in (3.0, 1e-6, -0.1, 7e20, limits.tiny, limits.max, 0.0, -0.0, math.inf, math.nan):
        divisor = torch.tensor(number, dtype=dtype)
        pairs.append((compiled(x, divisor), by_one(x, divisor)))
    for found, expected in pairs:
        is_normal = ~(expected.abs() < limits.tiny)  # below, within an ulp
        torch.testing.assert_close(
            found[is_normal], expected[is_normal], rtol=0, atol=0, equal_nan=True
        )
        is_number = ~torch.isnan(expected)
        assert torch.equal(torch.signbit(found)[is_number], torch.signbit(expected)[is_number])


@pytest.mark.parametrize("dynamic", [False, True])
def test_variances_of_few_elements(dynamic, fresh) -> None:
    def model(x):
        corrections = 0, 1.3, 8, 10
        return *(torch.var(x, -1, correction=each) for each in corrections), torch.var(x[:1, :1])

    compiled = torch.compile(model, backend=aotc, options={"fallback": "error"}, dynamic=dynamic)
    for dtype, size in ((torch.float32, 8), (torch.float64, 8), (torch.float32, 11)):
        x = torch.randn(3, size, dtype=dtype)
        for found, expected in zip(compiled(x), model(x), strict=True):
            torch.testing.assert_close(found, expected, equal_nan=True)
