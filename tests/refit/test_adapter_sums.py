"""W + s · B · A on the CPU at any sizes: the very bits of the order that docs/weights.md names."""

import ctypes
import math
import random
from fractions import Fraction

import numpy
import pytest
import torch
from rounding import multiply_add, product

from aotc import runtime
from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import build

SPEC = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("float32", "float16", "bfloat16"):
            weight = torch.randn(8, 8, dtype=getattr(torch, name))
            self.register_parameter(f"of_{name}", nn.Parameter(weight))

    def forward(self, x):
        return x + self.of_float32 + self.of_float16 + self.of_bfloat16

model, example_inputs = Model().eval(), (torch.randn(8, 8),)
"""
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
TYPICAL = (2048, 2048, 64)  # what costs are taken at
ROWS_CHECKED = 24


@pytest.fixture(scope="module")
def program(cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sums")
    (folder / "model.py").write_text(SPEC)
    build(str(folder / "model.py"), folder / "out", ["cpu"], BuildOptions(cache, adapters=True))
    with runtime.load(folder / "out") as program:
        yield program


def drawn(seed):
    """Sizes of each range that has kernels of its own, and ranks around their blocks."""
    chosen = random.Random(seed)
    rows, columns = (chosen.choice((9, 16, 127, 128, 300, 1025)) for _ in range(2))
    sides = [
        chosen.randint(1, max(1, end)) if chosen.random() < 0.5 else end for end in (rows, columns)
    ]
    rank = chosen.choice((1, 2, 3, 8, 16, 31, 32, 33, 63, 64, 65, 128, 200, 512))
    return *sides, rank


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_are_in_the_order_of_the_rank_at_all_sizes(program, dtype):
    cases = [TYPICAL, (2048, 1536, 64), (64, 2048, 64), *(drawn(seed) for seed in range(40))]
    wrong = [case for case in cases if not is_exact(program, dtype, *case)]
    assert not wrong, f"{len(wrong)} of {len(cases)} sizes (rows, columns, rank): {wrong}"


def is_exact(program, dtype, rows, columns, rank):
    torch.manual_seed(rank)
    scale = ctypes.c_float(1.7 / rank)
    weight = torch.randn(rows, columns).to(DTYPES[dtype])
    a, b, found = torch.randn(rank, columns), torch.randn(rows, rank), torch.empty_like(weight)

    def place(tensor):
        return tensor.data_ptr(), tensor.nbytes

    weights = program._weights
    code = {each.dtype: each for each in weights.parameters.adapters}[dtype]
    given = [place(weight), place(a), place(b), (ctypes.addressof(scale), 4)]
    weights._call(code, given, [place(found)], {}, (columns, rows, rank))
    some = torch.linspace(0, rows - 1, min(rows, ROWS_CHECKED)).long()
    change = product(b[some].numpy() * numpy.float32(scale.value), a.numpy())
    expected = torch.from_numpy(weight[some].float().numpy() + change).to(DTYPES[dtype])
    return torch.equal(found[some], expected)


def test_the_reference_rounds_a_product_and_a_sum_once():
    chosen = random.Random(0)

    def number():
        value = chosen.choice((1.0, -1.0)) * (1 + chosen.randrange(1 << 23) / (1 << 23))
        return numpy.float32(math.ldexp(value, chosen.randint(-30, 30)))

    for _ in range(3000):
        left, right = number(), number()
        near = -float(left) * float(right) * (1 + math.ldexp(chosen.randint(-4, 4), -25))
        addend = chosen.choice((number(), numpy.float32(near)))
        exact = Fraction(float(left)) * Fraction(float(right)) + Fraction(float(addend))
        one = (numpy.array([each], numpy.float32) for each in (left, right, addend))
        assert multiply_add(*one)[0] == nearest(exact)


def nearest(exact):
    """The f32 number nearest to a fraction, ties to even; not for numbers without full digits."""
    if not exact:
        return numpy.float32(0)
    shift = 24 - (abs(exact.numerator).bit_length() - exact.denominator.bit_length())
    for least in (shift + 1, shift, shift - 1):
        digits = round(abs(exact) * Fraction(2) ** least)  # `round` takes ties to even
        if digits <= 1 << 24:
            value = math.ldexp(digits, -least)
            return numpy.float32(value if exact > 0 else -value)
    raise AssertionError(exact)
