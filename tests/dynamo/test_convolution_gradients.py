"""Gradients of convolutions, plain and transposed, are those of eager in f64."""

from __future__ import annotations

import itertools
import operator

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as some

from aotc.aot.capture.aten_graph import import_aten, memory_order
from aotc.aot.capture.sizes import Sizes
from aotc.aot.dynamo import aotc
from aotc.aot.ir.reference import interpret

pytestmark = pytest.mark.torch
aten = torch.ops.aten
GROUPS = 2


def imported(op, tensors, rest, results):
    """Our graph of one call, and of those of its results that it has."""
    graph = torch.fx.Graph()
    places = [graph.placeholder(f"operand_{place}") for place in range(len(tensors))]
    for place, value in zip(places, tensors, strict=True):
        place.meta["val"] = value
    call = graph.call_function(op, (*places, *rest))
    call.meta["val"] = tuple(results)
    ends = []
    for number, value in enumerate(results):
        if value is not None:
            ends.append(graph.call_function(operator.getitem, (call, number)))
            ends[-1].meta["val"] = value
    graph.output(tuple(ends))
    walked = import_aten(graph, torch.nn.Module(), Sizes({}, (), ()))
    assert not walked.refusals
    return walked.imported.graph


@settings(deadline=None, max_examples=40)
@given(
    sizes=some.lists(some.integers(3, 9), min_size=1, max_size=3),
    reach=some.integers(1, 3),
    stride=some.integers(1, 3),
    padding=some.integers(0, 2),
    dilation=some.integers(1, 2),
    channels=some.sampled_from([(1, 4, 6), (2, 4, 6), (4, 4, 4), (4, 4, 8)]),
    mask=some.sampled_from(list(itertools.product([True, False], repeat=3))[:-1]),
    more=some.integers(-1, 2),
)
@example([7, 6], 3, 1, 1, 2, (1, 4, 6), (True, True, True), 1)  # places beyond the data's last
def test_of_all_shapes(sizes, reach, stride, padding, dilation, channels, mask, more):
    """`more`: output padding of a transposed convolution, -1 for a plain one."""
    rank, (groups, before, after), is_transposed = len(sizes), channels, more >= 0
    assume(all(size + 2 * padding > dilation * (reach - 1) for size in sizes))
    assume(not is_transposed or all((s - 1) * stride >= 2 * padding for s in sizes))
    assume(more < max(stride, dilation))
    extra = [max(more, 0)] * rank
    rows = ([stride] * rank, [padding] * rank, [dilation] * rank, is_transposed, extra, groups)
    ends = (before, after // groups) if is_transposed else (after, before // groups)
    data = torch.randn(2, before, *sizes, dtype=torch.float64)
    weight = torch.randn(*ends, *[reach] * rank, dtype=torch.float64)
    gradient = torch.randn_like(aten.convolution(data, weight, None, *rows))

    operands, rest = (gradient, data, weight), ([after], *rows, list(mask))
    made = aten.convolution_backward(*operands, *rest)
    wanted = [each if is_wanted else None for each, is_wanted in zip(made, mask, strict=True)]
    graph = imported(aten.convolution_backward.default, operands, rest, wanted)
    seen = [operands[int(name[-1])] for name in graph.input_names]
    inputs = [each.permute(memory_order(each)).numpy() for each in seen]
    expected = [each for each in wanted if each is not None]
    for found, one in zip(interpret(graph, inputs), expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(found.copy()), one.permute(memory_order(one)))


@settings(deadline=None, max_examples=40)
@given(
    sizes=some.lists(some.integers(2, 6), min_size=1, max_size=2),
    reach=some.integers(1, 3),
    stride=some.integers(1, 4),
    padding=some.integers(0, 1),
    dilation=some.integers(1, 3),
    groups=some.sampled_from([1, GROUPS, 4]),
    is_transposed=some.booleans(),
    more=some.integers(0, 2),
)
@example([5, 5], 3, 3, 1, 2, 4, True, 2)
@example([6], 2, 1, 0, 3, 1, False, 0)
def test_what_is_not_finite_stays_where_it_is_seen(
    sizes, reach, stride, padding, dilation, groups, is_transposed, more
):
    """An element of the weight's gradient is NaN where a position sees NaN by its kernel offset."""
    rank = len(sizes)
    assume(all(size + 2 * padding > dilation * (reach - 1) for size in sizes))
    assume(not is_transposed or all((s - 1) * stride >= 2 * padding for s in sizes))
    assume(more < max(stride, dilation))
    extra = [more if is_transposed else 0] * rank
    rows = ([stride] * rank, [padding] * rank, [dilation] * rank, is_transposed, extra, groups)
    data = torch.randn(2, 4, *sizes, dtype=torch.float64)
    weight = torch.randn(4, 4 // groups, *[reach] * rank, dtype=torch.float64)
    gradient = torch.randn_like(aten.convolution(data, weight, None, *rows))
    windowed = gradient if is_transposed else data
    windowed[torch.rand(windowed.shape) < 0.1] = torch.nan
    operands, rest = (gradient, data, weight), ([4], *rows, [False, True, False])

    def eager(change):
        return aten.convolution_backward(*(change(each) for each in operands), *rest)[1]

    made = eager(torch.nan_to_num)
    is_seen = eager(
        lambda each: (each.isnan() if each is windowed else torch.isfinite(each)).double()
    )
    graph = imported(aten.convolution_backward.default, operands, rest, (None, made, None))
    seen = [operands[int(name[-1])] for name in graph.input_names]
    inputs = [each.permute(memory_order(each)).numpy() for each in seen]
    (found,) = interpret(graph, inputs)
    expected = torch.where(is_seen > 0, torch.nan, made)
    expected = expected.permute(memory_order(made))
    torch.testing.assert_close(torch.from_numpy(found.copy()), expected, equal_nan=True)


@pytest.mark.parametrize("groups", [1, GROUPS, 8])
def test_as_native_code(groups):
    weight = torch.randn(8, 8 // groups, 3, 2, requires_grad=True)
    bias, data = (torch.randn(*shape, requires_grad=True) for shape in ((8,), (3, 8, 9, 7)))

    def convolution(data, weight, bias):
        return torch.nn.functional.conv2d(data, weight, bias, (2, 1), (1, 2), (1, 2), groups)

    operands = (data, weight, bias)
    compiled = torch.compile(convolution, backend="aotc", options={"fallback": "error"})
    expected = convolution(*(each.double() for each in operands))
    factors = torch.randn_like(expected)
    found = torch.autograd.grad((compiled(*operands) * factors.float()).sum(), operands)
    wanted = torch.autograd.grad((expected * factors).sum(), operands)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


MANY = {
    "stride": ((3, 67, 13, 11), (19, 67, 3, 3), 2, 1, 1, 1),
    "odd stride, few rows": ((2, 31, 29, 31), (21, 31, 5, 5), 3, 2, 1, 1),
    "dilation": ((4, 64, 17, 15), (33, 64, 3, 3), 2, 2, 2, 1),
    "groups": ((2, 192, 14, 14), (33, 64, 3, 3), 2, 1, 1, 3),
    "one offset": ((5, 96, 15, 14), (40, 96, 1, 1), 2, 0, 1, 1),
    "one offset, one place": ((5, 96, 7, 7), (40, 96, 1, 1), 1, 0, 1, 1),
    "no stride": ((4, 80, 9, 33), (24, 80, 3, 3), 1, 1, 1, 1),
    "one image": ((1, 128, 28, 28), (16, 128, 3, 3), 2, 0, 1, 1),
    "one dim": ((3, 65, 40), (17, 65, 4), 3, 2, 1, 1),
    "three dims": ((2, 64, 7, 6, 9), (8, 64, 2, 3, 2), 2, 1, 1, 1),
    "one row": ((2, 64, 1, 40), (8, 64, 1, 5), 2, 2, 1, 1),
    "gradient of 4.5 MB": ((4, 64, 64, 64), (72, 64, 3, 3), 1, 1, 1, 1),
    "gradient of 5 MB, groups": ((2, 128, 130, 128), (154, 64, 2, 2), 2, 0, 1, 2),
}


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", MANY)
def test_kernels_of_many_channels_give_the_gradient_of_eager_in_f64(case, dtype):
    """Of windows whose channels lie side by side; all sums of a few thousand products at most."""
    shape, kernel, stride, padding, dilation, groups = MANY[case]
    rank = len(shape) - 2
    rows = ([stride] * rank, [padding] * rank, [dilation] * rank, False, [0] * rank, groups)
    data, weight = torch.randn(shape, dtype=dtype), torch.randn(kernel, dtype=dtype)
    gradient = torch.randn_like(aten.convolution(data, weight, None, *rows))

    def own(gradient, data, weight):
        mask = (False, True, False)
        return aten.convolution_backward(gradient, data, weight, None, *rows, mask)[1]

    operands = (gradient, data, weight)
    compiled = torch.compile(own, backend=aotc, options={"fallback": "error"})
    expected = own(*(each.double() for each in operands))
    scale = expected.abs().max()
    error = (compiled(*operands).double() - expected).abs().max() / scale
    assert error < (1e-5 if dtype == torch.float32 else 1e-2)
