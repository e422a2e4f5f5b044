"""Attention behind `backend="aotc"`: results and every gradient beside eager's in f64, and what of
it are kernels of ours."""

from __future__ import annotations

import math

import pytest
import torch
from torch._functorch import config as functorch_config
from torch.nn import functional

from aotc.aot.capture.imports.table import ROWS
from aotc.aot.dynamo import attention
from aotc.aot.dynamo.attention import FEWEST
from aotc.aot.dynamo.calling import Call
from aotc.aot.schedule import attention as attention_price

pytestmark = pytest.mark.torch
FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
BOTH = {FORWARD, f"{FORWARD}_backward"}
TOLERANCES = {torch.float32: 5e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@pytest.fixture(autouse=True)
def uncached(fresh):
    """Graphs are made anew, so that every test looks at its own."""
    with functorch_config.patch(enable_autograd_cache=False):
        yield


@pytest.fixture
def calls(monkeypatch):
    """The kernels of attention that graphs were given, by the name of their import row."""
    found = []
    for name in BOTH:

        def row(*arguments, name=name, own=ROWS[name], **named):
            found.append(name)
            return own(*arguments, **named)

        monkeypatch.setitem(ROWS, name, row)
    return found


@pytest.fixture
def small_blocks(monkeypatch):
    """Few rows are several blocks; kernels of small blocks compile faster."""
    monkeypatch.setattr(attention_price, "LARGEST_BLOCK", FEWEST)


def test_blocks_as_they_are(calls):
    assert_as_in_f64([heads(1, 1, rows, 16) for rows in (70, 130, 130)], is_causal=True)
    assert set(calls) == BOTH


def heads(batch, count, rows, element, dtype=torch.float32, lies=(0, 2, 1, 3)):
    """[batch, count, rows, element], whose memory has its dims in the order `lies`."""
    extents = (batch, count, rows, element)
    data = torch.randn([extents[axis] for axis in lies], dtype=dtype)
    return data.permute(sorted(range(4), key=lies.__getitem__)).requires_grad_()


def assert_as_in_f64(operands, mask=None, **named):
    """The result and the gradients of all that asks for one."""

    def attend(query, key, value, mask):
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, **named)

    def wide(data):
        if data is None or not data.is_floating_point():
            return data
        return data.detach().double().requires_grad_(data.requires_grad)

    def all_of(call, given, gradient):
        made = call(*given)
        asking = [each for each in given if each is not None and each.requires_grad]
        return made, *torch.autograd.grad(made, asking, gradient.to(made.dtype))

    given = (*operands, mask)
    shape = (*operands[0].shape[:3], operands[2].shape[3])
    gradient = torch.randn(shape)
    compiled = torch.compile(attend, backend="aotc", options={"fallback": "error"})
    found = all_of(compiled, given, gradient)
    expected = all_of(attend, tuple(map(wide, given)), gradient.to(operands[0].dtype).double())
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        allowed = TOLERANCES.get(one.dtype, 1e-12) * max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(one.double(), other, rtol=0, atol=allowed)
    return found


LARGER = [
    (rows, keys, element, width, mask, is_causal)
    for rows, keys, element, width in [
        (64, 64, 64, 64), (70, 33, 24, 40), (16, 130, 96, 16), (150, 150, 16, 16)
    ]
    for mask, is_causal in ((None, False), (None, True), ("shared", False))
]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "keys", "element", "width", "mask", "is_causal"),
    [
        (32, 16, 16, 16, "shared", False),
        (40, 40, 12, 12, None, True),
        (19, 41, 24, 24, "bool", False),
        (16, 33, 24, 12, None, True),
        *(pytest.param(*case, marks=pytest.mark.matrix) for case in LARGER),
    ],
)
def test_results_and_gradients(calls, small_blocks, rows, keys, element, width, mask, is_causal):
    operands = (heads(2, 3, rows, element), heads(2, 3, keys, element), heads(2, 3, keys, width))
    masks = {"shared": torch.randn(2, 1, rows, keys), "bool": torch.rand(2, 3, rows, keys) > 0.4}
    assert_as_in_f64(operands, masks.get(mask), is_causal=is_causal)
    assert set(calls) == (BOTH if width == element else set())  # else torch has none


def test_operands_are_read_where_they_lie(calls, small_blocks):
    lies = ((0, 1, 2, 3), (2, 0, 1, 3), (1, 2, 0, 3))
    assert_as_in_f64([heads(2, 3, 20, 16, lies=each) for each in lies], scale=0.3)
    assert set(calls) == BOTH


@pytest.mark.parametrize("hidden", [False, -math.inf])
def test_rows_that_are_masked_whole_are_zeros_and_give_no_gradient(calls, small_blocks, hidden):
    operands = [heads(2, 3, 40, 16) for _ in range(3)]
    mask = torch.ones(2, 1, 40, 40, dtype=torch.bool) if hidden is False else torch.zeros(40, 40)
    mask[..., 7, :] = hidden
    mask[..., 9:20] = hidden
    made, of_query, of_key, _ = assert_as_in_f64(operands, mask)
    assert not made[:, :, 7].any()
    assert not of_query[:, :, 7].any()
    assert not of_key[:, :, 9:20].any()
    assert set(calls) == BOTH


def test_a_mask_that_wants_a_gradient_gets_it(calls):
    operands = [heads(1, 2, 16, 8) for _ in range(3)]
    found = assert_as_in_f64(operands, torch.randn(16, 16, requires_grad=True))
    assert len(found) == 5
    assert not calls  # the kernels have none


@pytest.mark.parametrize("rows", [40, 5])
def test_heads_that_share_keys(small_blocks, rows):
    operands = (heads(2, 6, rows, 16), heads(2, 2, 33, 16), heads(2, 2, 33, 16))
    assert_as_in_f64(operands, enable_gqa=True, is_causal=rows == 5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_types(calls, small_blocks, dtype):
    operands = [heads(2, 3, rows, 16, dtype) for rows in (20, 35, 35)]
    assert_as_in_f64(operands)
    assert set(calls) == BOTH


@pytest.mark.parametrize(
    ("rows", "dtype", "groups"),
    [
        (FEWEST - 1, torch.float32, 3),
        (FEWEST, torch.float64, 3),
        (FEWEST, torch.float64, 1),
        (5, torch.bfloat16, 3),
    ],
)
def test_arithmetic_where_there_are_no_kernels(rows, dtype, groups):
    operands = [heads(2, 3, rows, 16, dtype), *(heads(2, groups, 33, 16, dtype) for _ in range(2))]
    mask = torch.randn(rows, 33).to(dtype)
    mask[-1] = -math.inf
    gradient = torch.randn(2, 3, rows, 16).to(dtype)
    out, sums = attention.forward(*operands, attn_mask=mask, scale=0.3)
    named = {"attn_mask": mask, "scale": 0.3}
    found = attention.backward(gradient, *operands, out, sums, 0.0, False, **named)
    wide = [each.detach().double().requires_grad_() for each in operands]
    wide_named = {"attn_mask": mask.double(), "scale": 0.3, "enable_gqa": True}
    expected = functional.scaled_dot_product_attention(*wide, **wide_named)
    gradients = torch.autograd.grad(expected, wide, gradient.double())
    for one, other in zip((out, *found), (expected, *gradients), strict=True):
        assert one.dtype == dtype
        allowed = TOLERANCES.get(dtype, 1e-12) * max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(one.double(), other, rtol=0, atol=allowed)


def test_the_op_stays_where_there_are_kernels():
    operands = [heads(2, 3, FEWEST, 16) for _ in range(3)]
    assert attention.forward(*operands) is NotImplemented
    assert attention.forward(*operands, 0.5) is NotImplemented


def test_an_open_number_of_heads_is_arithmetic(calls):
    def attend(data):
        return functional.scaled_dot_product_attention(data, data, data)

    compiled = torch.compile(attend, backend="aotc")
    for count in (3, 5):
        data = heads(1, count, 33, 8)
        torch._dynamo.mark_dynamic(data, 1, min=2, max=64)
        found = torch.autograd.grad(compiled(data).sum(), data)
        torch.testing.assert_close(found, torch.autograd.grad(attend(data).sum(), data))
    assert not calls


@pytest.fixture
def programs(monkeypatch):
    """The calls that are made of graphs, forward first, each with its program."""
    found = []
    original = Call.__init__

    def made(self, interface, program, *rest):
        found.append((interface, program))
        original(self, interface, program, *rest)

    monkeypatch.setattr(Call, "__init__", made)
    return found


def test_what_one_linear_gave_is_kept_where_it_lies(programs, small_blocks):
    mixed = torch.nn.Linear(48, 144)

    def attend(x):
        split = (part.view(2, 40, 3, 16).transpose(1, 2) for part in mixed(x).chunk(3, -1))
        return functional.scaled_dot_product_attention(*split).transpose(1, 2).reshape(2, 40, 48)

    x, gradient = torch.randn(2, 40, 48, requires_grad=True), torch.randn(2, 40, 48)
    found = torch.autograd.grad(torch.compile(attend, backend="aotc")(x), x, gradient)
    torch.testing.assert_close(found, torch.autograd.grad(attend(x), x, gradient))
    (_, forward), (taken, backward) = programs
    names = [forward.plan.kernels[step.kernel].name for step in forward.plan.at().steps]
    assert len(names) == 2  # the product and attention: nothing is copied
    given = sum(math.prod(output.shape) for output in forward.outputs)
    assert given == 2 * 40 * (144 + 48 + 3)  # what the linear gave, the result, its rows' sums
    assert [row.steps for row in taken.taken].count((40 * 144, 16, 144, 1)) == 3
    names = [backward.plan.kernels[step.kernel].name for step in backward.plan.at().steps]
    assert not [name for name in names if "copy" in name]


def test_one_linear_gets_its_gradient_as_one(calls, monkeypatch):
    from aotc.aot.rewrites import memory

    joined = []

    def counted(*given, own=memory._joined):
        joined.append(own(*given))
        return joined[-1]

    monkeypatch.setattr(memory, "_joined", counted)
    mixed = torch.nn.Linear(48, 144)

    def attend(x):
        parts = mixed(x).chunk(3, -1)
        split = (part.view(2, 44, 3, 16).transpose(1, 2) for part in parts)
        return functional.scaled_dot_product_attention(*split).transpose(1, 2).reshape(2, 44, 48)

    x = torch.randn(2, 44, 48, requires_grad=True)
    gradient = torch.randn(2, 44, 48)
    wanted = (x, *mixed.parameters())
    found = torch.autograd.grad(torch.compile(attend, backend="aotc")(x), wanted, gradient)
    torch.testing.assert_close(found, torch.autograd.grad(attend(x), wanted, gradient))
    assert [each.shape for each in joined if each is not None] == [(2, 44, 144)]
