"""Attention as models write it: captured, recognised, and the same numbers."""

from __future__ import annotations

import math

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, Node, make
from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.ir.text import parse_graph
from aotc.aot.ir.types import TensorType
from aotc.aot.rewrites.attention_masks import known_masks
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.rewrites.rotary import join_rotaries
from aotc.aot.schedule.attention import mask_of

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import flex_attention  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.targets.cpu.target import CPU  # noqa: E402
from aotc.aot.targets.cuda.machines import GPUS  # noqa: E402
from aotc.kernels import attention  # noqa: E402

ROWS, SIZE = 6, 8


def causal(q, k, v):
    return sdpa(q, k, v, is_causal=True)


def shared_heads(q, k, v):
    return sdpa(q, k[:, :2], v[:, :2], is_causal=True, enable_gqa=True)


def repeated_heads(q, k, v):
    def repeat(x):
        batch, heads, rows, size = x.shape
        return x[:, :, None].expand(batch, heads, 2, rows, size).reshape(batch, -1, rows, size)

    return sdpa(q, repeat(k[:, :2]), repeat(v[:, :2]))


def bool_mask(q, k, v):
    return sdpa(q, k, v, attn_mask=(q[:, :1, :1, :] > 0)[..., :ROWS])


def float_mask(q, k, v):
    return sdpa(q, k, v, attn_mask=q[:, :1, :, :ROWS])


def causal_and_padding(q, k, v):
    place = torch.arange(ROWS)
    seen = (place[None, :] <= place[:, None])[None, None] & (q[:, :1, :1, :ROWS] > -1)
    return sdpa(q, k, v, attn_mask=seen)


def eager(q, k, v):
    weights = torch.matmul(q, k.transpose(2, 3)) * SIZE**-0.5
    weights = weights + torch.full((ROWS, ROWS), torch.finfo(q.dtype).min).triu(1)
    weights = torch.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(weights, v)


def scaled_before(q, k, v):
    weights = (q / math.sqrt(SIZE)) @ k.mT
    hidden = torch.ones(ROWS, ROWS, dtype=torch.bool).triu(1)
    return weights.masked_fill(hidden, -math.inf).softmax(-1) @ v


def scaled_both(q, k, v):
    return ((q * SIZE**-0.25) @ (k * SIZE**-0.25).transpose(-1, -2)).softmax(-1) @ v


def three_dims(q, k, v):
    q, k, v = (x.reshape(-1, ROWS, SIZE) for x in (q, k, v))
    weights = torch.bmm(q * SIZE**-0.5, k.transpose(1, 2)).view(2, 4, ROWS, ROWS)
    weights = (weights + v.view(2, 4, ROWS, SIZE)[:, :1, :, :ROWS]).view(-1, ROWS, ROWS)
    return torch.bmm(weights.softmax(-1), v)


def of_the_library(q, k, v):
    return attention(q, k[:, :2], v[:, :2], True)


def window_of_the_library(q, k, v):
    return attention(q, k, v, True, 3)


def capped(q, k, v):
    """Gemma 2's."""
    weights = torch.tanh(q @ k.mT * SIZE**-0.5 / 20.0) * 20.0
    weights = weights + torch.full((ROWS, ROWS), -math.inf).triu(1)
    return torch.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype) @ v


def capped_and_scaled(q, k, v):
    """The cap's factor in two, and the scale's."""
    weights = torch.tanh((q * SIZE**-0.25) @ (k.mT * (SIZE**-0.25 / 20.0)))
    return (5.0 * weights * 4.0).softmax(-1) @ v


def capped_by_a_score_function(q, k, v):
    def cap(score, batch, head, row, key):
        return 20.0 * torch.tanh(score / 20.0)

    return flex_attention(q, k[:, :2], v[:, :2], score_mod=cap, enable_gqa=True)


def groups_by_einsum(q, k, v):
    grouped = q.view(2, 2, 2, ROWS, SIZE)
    weights = torch.einsum("bkgtd,bksd->bkgts", grouped, k[:, :2]) * SIZE**-0.5
    weights = weights.masked_fill(torch.ones(ROWS, ROWS, dtype=torch.bool).triu(1), -1e9)
    return torch.einsum("bkgts,bksd->bkgtd", weights.softmax(-1), v[:, :2]).reshape(q.shape)


def scaled_by_head(q, k, v):
    """Swin V2's."""
    factors = torch.linspace(0.5, 2, 4).view(4, 1, 1)
    return (q @ k.mT * SIZE**-0.5 * factors).softmax(-1) @ v


def slopes(q, k, v):
    """ALiBi, causal."""
    place = torch.arange(ROWS)
    away = place[None, :] - place[:, None]
    weights = q @ k.mT * SIZE**-0.5 + away * torch.tensor([0.5, 0.25, 0.125, 0.1]).view(4, 1, 1)
    return weights.masked_fill(away > 0, -math.inf).softmax(-1) @ v


def with_one_more(q, k, v):
    """A sink before the keys: 1 + the sum of powers."""
    weights = q @ k.mT * SIZE**-0.5
    zeros = torch.zeros(*weights.shape[:-1], 1)
    return torch.cat([zeros, weights], dim=-1).softmax(-1)[..., 1:] @ v


def with_sinks(q, k, v):
    """gpt-oss's."""
    weights = q @ k.mT * SIZE**-0.5 + torch.full((ROWS, ROWS), -math.inf).triu(1)
    sinks = torch.linspace(-1, 2, 4).reshape(1, -1, 1, 1).expand(2, -1, ROWS, -1)
    joined = torch.cat([weights, sinks], dim=-1)
    joined = joined - joined.max(dim=-1, keepdim=True).values
    return torch.softmax(joined, dim=-1)[..., :-1] @ v


# Variant → what must be known of the attention afterwards: causal, whether a mask is left, heads.
VARIANTS = {
    causal: (True, False, 4),
    shared_heads: (True, False, 2),
    repeated_heads: (False, False, 2),
    bool_mask: (False, True, 4),
    float_mask: (False, True, 4),
    causal_and_padding: (True, True, 4),
    eager: (True, False, 4),
    scaled_before: (True, False, 4),
    scaled_both: (False, False, 4),
    three_dims: (False, True, 4),
    of_the_library: (True, False, 2),
    window_of_the_library: (True, False, 4),
    groups_by_einsum: (True, False, 2),
    scaled_by_head: (False, False, 4),
    slopes: (True, True, 4),
    with_one_more: (False, False, 4),
    with_sinks: (True, False, 4),
    capped: (True, False, 4),
    capped_and_scaled: (False, False, 4),
    capped_by_a_score_function: (False, False, 2),
}
WINDOWS = {window_of_the_library: 3}
CAPS = dict.fromkeys((capped, capped_and_scaled, capped_by_a_score_function), 20.0)


def attentions(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes() if node.op == "attention"]


@pytest.mark.parametrize("function", VARIANTS, ids=lambda function: function.__name__)
def test_variant_is_recognised(function):
    torch.manual_seed(3)
    inputs = tuple(torch.randn(2, 4, ROWS, SIZE) for _ in range(3))
    graph = capture(spec_of(function, inputs)).graph
    result, _ = rewrite(graph, traits=GPUS[90])
    (node,) = attentions(result)
    is_causal, has_mask, heads = VARIANTS[function]
    assert (node.attr("causal"), mask_of(node) is not None) == (is_causal, has_mask)
    assert node.attr("has_sinks") == (function in (with_sinks, with_one_more))
    assert node.inputs[1].shape[1] == heads
    assert node.attr("window") == WINDOWS.get(function, 0)
    assert node.attr("scale") == pytest.approx(SIZE**-0.5)
    assert node.attr("softcap") == pytest.approx(CAPS.get(function, 0.0))
    assert not [other for other in result.nodes() if other.op in ("exp", "matmul", "tanh")]
    (found,) = interpret(result, [item.numpy() for item in inputs])
    wanted = function(*inputs).numpy()
    numpy.testing.assert_allclose(found, wanted, atol=1e-5)


def of_products_in_f32(q, k, v):
    """Widened before they are seen in groups."""
    wide_q, wide_k = (each.float().view(2, 2, 2, ROWS, SIZE) for each in (q, k))
    weights = torch.softmax(wide_q @ wide_k.mT * SIZE**-0.5, -1).to(q.dtype)
    return (weights @ v.view(2, 2, 2, ROWS, SIZE)).view(q.shape)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("function", [of_products_in_f32, of_the_library, eager])
def test_operands_of_16_bits_stay_narrow(function, dtype):
    """Kernels keep scores in f32 by themselves; what is widened is not copied."""
    inputs = tuple(torch.randn(2, 4, ROWS, SIZE).to(dtype) for _ in range(3))
    result, _ = rewrite(capture(spec_of(function, inputs)).graph, traits=GPUS[90])
    (node,) = attentions(result)
    assert {each.dtype for each in node.inputs[:3]} == {node.dtype}
    assert not [each for each in result.nodes() if each.op in ("cast", "exp", "matmul")]


@pytest.mark.parametrize("hidden", [-1e9, torch.finfo(torch.float32).min, -math.inf])
@pytest.mark.parametrize("window", [0, 5])
def test_finite_numbers_hide_keys_of_dynamic_lengths(hidden, window):
    def function(q, k, v):
        place = torch.arange(q.shape[2])
        away = place[:, None] - place[None, :]
        seen = (away >= 0) & (away < window) if window else away >= 0
        return (q @ k.mT).masked_fill(~seen, hidden).softmax(-1) @ v

    inputs = tuple(torch.randn(2, 4, 12, SIZE) for _ in range(3))
    dims = ({2: torch.export.Dim("rows", min=2, max=64)},) * 3
    graph = capture(spec_of(function, inputs, dynamic_shapes=dims)).graph
    (node,) = attentions(rewrite(graph, traits=GPUS[90])[0])
    assert (len(node.inputs), node.attr("causal"), node.attr("window")) == (3, True, window)
    found, _ = rewrite(graph, traits=GPUS[90])
    given = [item.numpy() for item in inputs]
    (numbers,) = interpret(at_sizes(found, {"rows": 12}), given)
    numpy.testing.assert_allclose(numbers, function(*inputs).numpy(), atol=1e-5)


def test_the_cpu_keeps_its_own_path():
    inputs = tuple(torch.randn(1, 2, ROWS, SIZE) for _ in range(3))
    result, _ = rewrite(capture(spec_of(causal, inputs)).graph, traits=CPU)
    assert not attentions(result)


def hidden_before_the_cap(q, k, v):
    """Keys that a mask hides weigh e^-cap."""
    hidden = torch.ones(ROWS, ROWS, dtype=torch.bool).triu(1)
    return torch.tanh((q @ k.mT).masked_fill(hidden, -math.inf)).softmax(-1) @ v


def capped_twice(q, k, v):
    return torch.tanh(torch.tanh(q @ k.mT) * 2.0).softmax(-1) @ v


@pytest.mark.parametrize("function", [hidden_before_the_cap, capped_twice])
def test_what_is_no_cap_of_products_stays_arithmetic(function):
    inputs = tuple(torch.randn(1, 2, ROWS, SIZE) for _ in range(3))
    result, _ = rewrite(capture(spec_of(function, inputs)).graph, traits=GPUS[90])
    assert not attentions(result)


def weights_are_wanted(q, k, v):
    weights = (q @ k.mT).softmax(-1)
    return weights @ v, weights


def test_weights_that_are_wanted_are_computed():
    inputs = tuple(torch.randn(1, 2, ROWS, SIZE) for _ in range(3))
    result, _ = rewrite(capture(spec_of(weights_are_wanted, inputs)).graph, traits=GPUS[90])
    assert not attentions(result)


@pytest.mark.parametrize("scale", [-0.3, 0.0])
def test_a_scale_that_turns_scores_round_is_computed_plainly(scale):
    def attend(q, k, v):
        return sdpa(q, k, v, is_causal=True, scale=scale)

    torch.manual_seed(4)
    inputs = tuple(torch.randn(1, 2, ROWS, SIZE) for _ in range(3))
    result, _ = rewrite(capture(spec_of(attend, inputs)).graph, traits=GPUS[90])
    assert not attentions(result)
    (found,) = interpret(result, [item.numpy() for item in inputs])
    q, k, v = inputs
    scores = (q @ k.mT * scale).masked_fill(torch.ones(ROWS, ROWS).triu(1) > 0, -math.inf)
    wanted = scores.softmax(-1) @ v  # torch's own kernel gives no numbers here
    numpy.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)


MASKED = """
%q = input(name='q') : f32[1, 1, 4, 8]
%row = iota(axis=2, shape=(1, 1, 4, 6)) : i64[1, 1, 4, 6]
%column = iota(axis=3, shape=(1, 1, 4, 6)) : i64[1, 1, 4, 6]
%k = input(name='k') : f32[1, 1, 6, 8]
%shift = scalar(value={shift}, dtype='i64') : i64[]
%last = add(%row, %shift) : i64[1, 1, 4, 6]
%seen = {compare}(%column, %last) : bool[1, 1, 4, 6]
%out = attention(%q, %k, %k, %seen, causal=False, has_sinks=False, is_safe=False, offset=0, \
scale=0.5, softcap=0.0, window=0) : f32[1, 1, 4, 8]
return out=%out
"""


@pytest.mark.parametrize(
    ("shift", "compare", "expected"),
    [
        (0, "le", (True, 0, 0)),
        (2, "le", (True, 2, 0)),
        (-1, "le", (True, -1, 0)),
        (3, "lt", (True, 2, 0)),
        (5, "le", (False, 0, 0)),  # hides nothing
        (0, "ge", (True, 5, 6)),  # no keys before the query
        (-2, "gt", (True, 5, 7)),
        (-3, "ge", (False, 0, 0)),
        (0, "ne", None),
    ],
)
def test_masks_are_known_by_their_values(shift, compare, expected, random_inputs):
    graph = parse_graph(MASKED.format(shift=shift, compare=compare))
    result, count = known_masks(graph)
    (node,) = attentions(result)
    if expected is None:
        assert (count, len(node.inputs)) == (0, 4)
    else:
        assert tuple(map(node.attr, ("causal", "offset", "window"))) == expected
        assert (count, len(node.inputs)) == (1, 3)
    inputs = random_inputs(graph, 4, has_specials=False)
    (before,), (after,) = interpret(graph, inputs), interpret(result, inputs)
    numpy.testing.assert_allclose(before, after, atol=1e-6)


BANDS = """
%q = input(name='q') : f32[1, 2, {rows}, 8]
%k = input(name='k') : f32[1, 2, {keys}, 8]
%seen = constant(name='seen') : bool[1, 1, {rows}, {keys}]
%out = attention(%q, %k, %k, %seen, causal=False, has_sinks=False, is_safe=True, offset=0, \
scale=0.5, softcap=0.0, window=0) : f32[1, 2, {rows}, 8]
return out=%out
"""


@pytest.mark.parametrize("seed", range(40))
def test_bands_of_any_place_and_width_become_attributes(seed, random_inputs):
    draw = numpy.random.default_rng(seed)
    rows, keys = int(draw.integers(1, 20)), int(draw.integers(2, 20))
    first, last = sorted(map(int, draw.integers(-24, 24, 2)))
    apart = numpy.arange(keys)[None, :] - numpy.arange(rows)[:, None]
    seen = ((first <= apart) & (apart <= last))[None, None]
    is_spoilt = seed % 5 == 0
    if is_spoilt:
        seen[0, 0, draw.integers(rows), draw.integers(keys)] ^= True
    mask = Constant("seen", TensorType("bool", seen.shape), seen)
    graph = parse_graph(BANDS.format(rows=rows, keys=keys), {"seen": mask})
    result, count = known_masks(graph)
    (node,) = attentions(result)
    sees_a_bound = seen.any() and not seen.all()
    assert count == 1 or is_spoilt or not seen.any(), (rows, keys, first, last)
    assert len(node.inputs) == 4 - count
    assert node.attr("causal") or not (count and sees_a_bound)
    inputs = random_inputs(graph, seed, has_specials=False)
    (before,), (after,) = interpret(graph, inputs), interpret(result, inputs)
    numpy.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("form", ["slices", "negated", "numbers"])
@pytest.mark.parametrize("seed", range(8))
def test_corners_of_known_masks_are_bands_of_any_length(seed, form, random_inputs):
    """Causal masks that models keep as a buffer and cut to the length of a call."""
    draw = numpy.random.default_rng(seed)
    length, most = size_of(Dim("n", 2, 20, 7)), 24
    first, last = sorted(map(int, draw.integers(-24, 24, 2)))
    apart = numpy.arange(most)[None, :] - numpy.arange(most)[:, None]
    seen = ((first <= apart) & (apart <= last))[None, None]
    is_spoilt = seed % 4 == 3
    if is_spoilt:
        seen[0, 0, 3, 4] ^= True
    kept = ~seen if form == "negated" else seen
    dtype = "f32" if form == "numbers" else "bool"
    kept = kept.astype("f4" if dtype == "f32" else bool)
    whole = Constant("mask", TensorType(dtype, seen.shape), kept)
    part = make("constant", (), {"name": "mask", "dtype": dtype, "shape": seen.shape})
    for axis in (2, 3):
        part = build.slice_axis(part, axis, 0, length)
    if form == "negated":
        part = ~part
    if form == "numbers":
        part = make("ne", (part, build.scalar(0.0, "f32")))
    given = {"dtype": "f32", "shape": (1, 2, length, 8)}
    q, k = (make("input", (), {"name": name, **given}) for name in "qk")
    how = {
        "scale": 0.5,
        "causal": False,
        "offset": 0,
        "window": 0,
        "softcap": 0.0,
        "has_sinks": False,
        "is_safe": True,
    }
    out = make("attention", (q, k, k, part), how)
    graph = Graph((q, k), (out,), ("q", "k"), ("out",), {"mask": whole})
    result, count = known_masks(graph)
    if is_spoilt:
        assert not count
    elif first <= 0 <= last:
        assert count
    for n in (2, 5, 20):
        before, after = (at_sizes(each, {"n": n}) for each in (graph, result))
        inputs = random_inputs(before, seed, has_specials=False)
        (one,), (other,) = interpret(before, inputs), interpret(after, inputs)
        numpy.testing.assert_array_equal(one, other)


def rotary(x, angle):
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Rotary(torch.nn.Module):
    """Queries and keys of one product, turned by angles that depend on the place alone."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(5, 6 * SIZE))

    def forward(self, x, angle):
        product = x @ self.weight
        query = product[:, : 4 * SIZE].view(1, ROWS, 4, SIZE)
        key = product[:, 4 * SIZE :].view(1, ROWS, 2, SIZE)
        return rotary(query, angle), rotary(key, angle)


def test_rotary_embeddings_of_neighbours_become_one(random_inputs):
    example = (torch.randn(ROWS, 5), torch.randn(ROWS, SIZE))
    graph = capture(spec_of(Rotary(), example)).graph
    plain, _ = rewrite(graph, skip=frozenset({"rotary"}), traits=GPUS[90])
    result, count = join_rotaries(plain)
    assert count == 2
    assert len([node for node in result.nodes() if node.op == "concat"]) == 1
    inputs = random_inputs(graph, 5, has_specials=False)
    for before, after in zip(interpret(plain, inputs), interpret(result, inputs), strict=True):
        numpy.testing.assert_allclose(before, after, atol=1e-5)
