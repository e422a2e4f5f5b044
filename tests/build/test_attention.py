"""Attention in bundles for the processor: where it is our kernel, and its numbers beside f64."""

import math

import pytest

torch = pytest.importorskip("torch")

from aotc.aot.pipeline import BuildOptions, build  # noqa: E402  needs torch
from aotc.aot.schedule import attention  # noqa: E402
from aotc.runtime import load  # noqa: E402

pytestmark = pytest.mark.torch

KERNEL = "attention"
TOLERANCES = {torch.float32: 5e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}
SPEC = """
import math
import torch
from torch.nn.functional import scaled_dot_product_attention as attend

HEADS, ROWS, KEYS, SIZE = {sizes}


class Model(torch.nn.Module):
    def forward(self, mixed, mask):
        split = (part.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for part in mixed.chunk(3, -1))
        q, k, v = split
        q, k, v = q[:, :, :ROWS], k[:, :, :KEYS], v[:, :, :KEYS]
        return {results}


torch.manual_seed(0)
model = Model()
example_inputs = (torch.randn(2, max(ROWS, KEYS), 3 * HEADS * SIZE).to({dtype}), {mask})
"""
NO_MASK, SEEN = "torch.zeros(1)", "torch.rand(2, 1, ROWS, KEYS) > 0.4"
ADDED = "torch.randn(HEADS, ROWS, KEYS)"
CAPPED = "((q @ k.mT / 30).tanh() * 7.5 + mask).softmax(-1) @ v"
SINKS = "torch.linspace(-2, 3, HEADS).view(1, HEADS, 1, 1).expand(2, HEADS, q.shape[2], 1)"
WITH_SINKS = f"torch.cat([q @ k.mT + mask, {SINKS}.to(q)], -1).softmax(-1)[..., :-1] @ v"
BY_HAND = "(q @ k.mT * SIZE**-0.5 + mask).softmax(-1) @ v"


@pytest.fixture
def small_blocks(monkeypatch):
    """Few rows are several blocks; kernels of small blocks compile faster."""
    monkeypatch.setattr(attention, "LARGEST_BLOCK", attention.SMALLEST_BLOCK)


@pytest.fixture
def built(tmp_path):
    """Builds a spec; gives the program, the model and its example."""

    def make(*results, sizes=(4, 48, 48, 16), mask=NO_MASK, dtype="torch.float32", extra=""):
        body = f"({', '.join(results)},)"
        text = SPEC.format(sizes=sizes, results=body, mask=mask, dtype=dtype) + extra
        spec = tmp_path / "spec.py"
        spec.write_text(text)
        options = BuildOptions(cache_folder=tmp_path / "cache", force=True)
        build(str(spec), tmp_path / "bundle", ("cpu",), options)
        program, names = load(tmp_path / "bundle"), {}
        exec(compile(text, str(spec), "exec"), names)
        return program, names["model"], names["example_inputs"]

    return make


def launches(program):
    """The names of the kernels that a call launches, in order."""
    return [program.plan.kernels[step.kernel].name for step in program.plan.at().steps]


def assert_as_in_f64(program, model, arguments):
    """Every result beside the model's own in f64, and what it is."""

    def wide(data):
        return data.double() if data.is_floating_point() else data

    expected = model(*map(wide, arguments))
    for one, other in zip(program(*arguments), expected, strict=True):
        assert one.shape == other.shape
        largest = float(other.nan_to_num().abs().max())
        allowed = TOLERANCES[one.dtype] * max(1.0, largest)
        torch.testing.assert_close(one.double(), other, rtol=0, atol=allowed, equal_nan=True)
    return expected


def fresh(mixed, mask):
    """Other numbers than those of the build's own check."""
    torch.manual_seed(7)
    return torch.randn(mixed.shape).to(mixed.dtype), mask


def test_forms_of_attention_are_our_kernel(built, small_blocks):
    program, model, example = built(
        "attend(q, k, v, is_causal=True)",
        "attend(q, k[:, :2], v[:, :2], scale=0.3, enable_gqa=True)",
        "attend(q, k, v[..., :8])",
        "attend(q, k, v, mask)",
        BY_HAND,
        CAPPED,
        WITH_SINKS,
        sizes=(4, 37, 48, 16),
        mask=ADDED,
    )
    assert launches(program).count(KERNEL) == 7
    assert not [name for name in launches(program) if "matmul" in name]
    assert_as_in_f64(program, model, fresh(*example))


def test_heads_of_a_linear_are_read_where_they_lie(built, small_blocks):
    program, _, _ = built("attend(q, k, v).transpose(1, 2).flatten(2)")
    assert launches(program) == [KERNEL]


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "torch.float16"])
def test_other_types(built, small_blocks, dtype):
    program, model, example = built(
        "attend(q, k, v, mask)",
        "(((q * 2) @ k.mT / 30).tanh() * 7.5).masked_fill(~mask, -math.inf).softmax(-1) @ v",
        sizes=(4, 40, 70, 24), mask=SEEN, dtype=dtype,
    )  # fmt: skip
    assert launches(program).count(KERNEL) == 2
    assert_as_in_f64(program, model, fresh(*example))


def test_rows_that_see_nothing_are_as_torch_has_them(built, small_blocks):
    program, model, (mixed, mask) = built(
        "attend(q, k, v, mask)",
        "attend(q, k, v, mask == 0)",
        BY_HAND,
        mask="torch.zeros(ROWS, KEYS)",
    )
    assert launches(program).count(KERNEL) == 3
    mask[3], mask[20:40] = -math.inf, -math.inf
    mask[5, 10:] = -math.inf
    added, seen, by_hand = assert_as_in_f64(program, model, fresh(mixed, mask))
    assert not added[:, :, 3].any()
    assert not seen[:, :, 3].any()
    assert by_hand[:, :, 3].isnan().all()


def test_what_stays_arithmetic(built):
    program, model, example = built(
        "(q @ k.mT).softmax(-1)",  # the weights are wanted too
        "(q @ k.mT).softmax(-1) @ v",
        "(q @ weight.to(q)).softmax(-1) @ weight.mT.to(q)",
        sizes=(4, 16, 16, 16),
        extra="\nweight = torch.randn(4, SIZE, 16)\n",
    )
    assert KERNEL not in launches(program)
    assert_as_in_f64(program, model, fresh(*example))


def test_sinks_of_rows_that_see_nothing(built, small_blocks):
    """All their weight is the sink's, but for one that is -inf: torch gives no numbers then."""
    program, model, (mixed, mask) = built(
        WITH_SINKS,
        f"torch.cat([q @ k.mT + mask, {SINKS}.to(q) - math.inf], -1).softmax(-1)[..., :-1] @ v",
        mask="torch.zeros(ROWS, KEYS)",
    )
    mask[3], mask[20:40] = -math.inf, -math.inf
    finite, infinite = assert_as_in_f64(program, model, fresh(mixed, mask))
    assert not finite[:, :, 3].any()
    assert infinite[:, :, 3].isnan().all()
    assert not infinite[:, :, 2].isnan().any()


@pytest.mark.parametrize("result", ["attend(q, k, v)", CAPPED, WITH_SINKS])
def test_lengths_of_the_call_have_the_kernel(built, result):
    varying = "\ndynamic_shapes = ({1: torch.export.Dim('length', max=512)}, None)\n"
    program, model, _ = built(result, sizes=(4, 512, 512, 16), mask="torch.zeros(1)", extra=varying)
    assert KERNEL in [kernel.name for kernel in program.plan.kernels]
    for length in (1, 70, 512):
        assert_as_in_f64(program, model, (torch.randn(2, length, 192), torch.zeros(1)))


def test_sizes_of_the_call_have_the_kernel(built):
    varying = "\ndynamic_shapes = ({0: torch.export.Dim('batch', max=4)}, None)\n"
    program, model, _ = built("attend(q, k, v)", extra=varying)
    assert KERNEL in [kernel.name for kernel in program.plan.kernels]
    assert_as_in_f64(program, model, (torch.randn(3, 48, 192), torch.zeros(1)))
