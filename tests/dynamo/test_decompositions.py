"""Backward ops written in other ops give what torch's own kernels give."""

from __future__ import annotations

import functools
import random

import pytest
import torch
from functorch.compile import (
    aot_function,
    make_boxed_func,
    min_cut_rematerialization_partition,
)
from torch._dynamo.backends.common import aot_autograd

from aotc.aot.capture.custom_ops import base_name
from aotc.aot.capture.imports.table import OTHERWISE_DECOMPOSED
from aotc.aot.dynamo.composites import TRACED_OTHERWISE, traced_otherwise
from aotc.aot.dynamo.decompositions import decompositions

pytestmark = pytest.mark.torch
aten = torch.ops.aten


def assert_same(op, *arguments, **named):
    found = decompositions()[op](*arguments, **named)
    expected = op(*arguments, **named)
    for one, other in zip(found, expected, strict=True):
        if one is not None:  # torch also gives gradients that nobody asked for
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    return found


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 1, 0)])
def test_gradients_of_max_pooling(kernel, stride, padding):
    data = torch.randn(2, 3, 9, 8)
    rows = ([kernel] * 2, [stride] * 2, [padding] * 2, [1, 1], False)
    made, places = aten.max_pool2d_with_indices(data, *rows)
    gradient = torch.randn_like(made)
    op = aten.max_pool2d_with_indices_backward.default
    found = decompositions()[op](gradient, data, *rows, places)
    torch.testing.assert_close(found, op(gradient, data, *rows, places))


@pytest.mark.parametrize("seed", range(24))
def test_gradients_of_max_pooling_of_any_window(seed):
    rng = random.Random(seed)
    kernel, stride, gaps = ([rng.randint(1, 5) for _ in range(2)] for _ in range(3))
    padding = [rng.randint(0, size // 2) for size in kernel]
    reaches = [(size - 1) * gap + 1 for size, gap in zip(kernel, gaps, strict=True)]
    extents = [max(1, reach - margin) + rng.randint(0, 9)
               for reach, margin in zip(reaches, padding, strict=True)]  # fmt: skip
    rows = (kernel, stride, padding, gaps, rng.random() < 0.5)
    data = torch.randint(0, 5, (2, 3, *extents)).float()  # with ties
    made, places = aten.max_pool2d_with_indices(data, *rows)
    op, gradient = aten.max_pool2d_with_indices_backward.default, torch.randn_like(made)
    found = decompositions()[op](gradient, data, *rows, places)
    torch.testing.assert_close(found, op(gradient, data, *rows, places))


@pytest.mark.parametrize(("size", "dtype"), [(3, torch.uint8), (20, torch.int16)])
def test_of_a_maximum_the_smallest_number_is_kept(size, dtype):
    kept = []

    def seen(graph, _):
        (output,) = graph.graph.find_nodes(op="output")
        kept.extend(each.meta["val"].dtype for each in output.args[0][1:])
        return make_boxed_func(graph.forward)

    compiler = aot_autograd(
        fw_compiler=seen,
        bw_compiler=lambda graph, _: make_boxed_func(graph.forward),
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    pool = torch.nn.MaxPool2d(size, size // 2, 1)
    x = torch.randn(1, 4, 64, 64, requires_grad=True)
    found = torch.compile(lambda x: pool(torch.sin(x)), backend=compiler)(x)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    (expected,) = torch.autograd.grad(pool(torch.sin(x)).sum(), x)
    torch.testing.assert_close(gradient, expected)
    assert dtype in kept
    assert torch.int64 not in kept


def test_gradients_of_other_maxima():
    data = torch.randn(2, 3, 6, 5, 4)
    rows = ([2, 3, 2], [2, 1, 2], [1, 1, 0], [1, 1, 1], False)
    made, places = aten.max_pool3d_with_indices(data, *rows)
    op, gradient = aten.max_pool3d_with_indices_backward.default, torch.randn_like(made)
    found = decompositions()[op](gradient, data, *rows, places)
    torch.testing.assert_close(found, op(gradient, data, *rows, places))
    made, places = aten.adaptive_max_pool2d(data[0], [3, 4])
    op, gradient = aten.adaptive_max_pool2d_backward.default, torch.randn_like(made)
    found = decompositions()[op](gradient, data[0], places)
    torch.testing.assert_close(found, op(gradient, data[0], places))


AVERAGES = {  # kernel, stride, padding, ceil mode, whether margins count, divisor
    "plain": ([2, 2], [], [0, 0], False, True, None),
    "overlapping": ([3, 3], [2, 2], [1, 1], False, True, None),
    "uneven": ([3, 2], [2, 3], [1, 0], True, False, None),
    "gaps": ([2, 2], [3, 3], [0, 1], True, True, None),
    "divisor": ([3, 3], [1, 2], [1, 1], False, True, 5),
}


@pytest.mark.parametrize("row", AVERAGES.values(), ids=AVERAGES)
def test_gradients_of_average_pooling(row):
    data = torch.randn(2, 3, 9, 8)
    gradient = torch.randn_like(aten.avg_pool2d(data, *row))
    op = aten.avg_pool2d_backward.default
    torch.testing.assert_close(decompositions()[op](gradient, data, *row), op(gradient, data, *row))


def test_gradients_of_average_pooling_of_three_dims():
    data, row = torch.randn(2, 3, 5, 6, 7), ([3, 2, 3], [2, 2, 1], [1, 0, 1], False, False, None)
    gradient = torch.randn_like(aten.avg_pool3d(data, *row))
    op = aten.avg_pool3d_backward.default
    torch.testing.assert_close(decompositions()[op](gradient, data, *row), op(gradient, data, *row))


@pytest.mark.parametrize("planes", [(9, 8), (1, 2), (7, 13)])
@pytest.mark.parametrize("size", [(3, 4), (4, 8), (1, 1), (9, 3), (20, 16), (5, 100)])
def test_gradients_of_adaptive_pooling(size, planes):
    data, gradient = torch.randn(2, 3, *planes), torch.randn(2, 3, *size)
    op = aten._adaptive_avg_pool2d_backward.default
    torch.testing.assert_close(decompositions()[op](gradient, data), op(gradient, data))
    gradient[0, 0, size[0] // 2, 0], gradient[1, 1, 0, size[1] // 2] = torch.nan, torch.inf
    found, expected = decompositions()[op](gradient, data), op(gradient, data)
    torch.testing.assert_close(found, expected, equal_nan=True)  # no other element is spoilt


@pytest.mark.parametrize("shape", [(2, 3, 5, 6), (2, 3, 1, 2)])
def test_gradients_of_copied_edges(shape):
    data, padding = torch.randn(shape), [2, 1, 0, 3]
    gradient = torch.randn_like(aten.replication_pad2d(data, padding))
    op = aten.replication_pad2d_backward.default
    torch.testing.assert_close(
        decompositions()[op](gradient, data, padding), op(gradient, data, padding)
    )


@pytest.mark.parametrize(("is_causal", "masked"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_and_its_gradients(is_causal, masked, scale):
    query, key, value = (torch.randn(2, 3, 7, 8) for _ in range(3))
    mask = torch.randn(2, 1, 7, 7) if masked else None
    named = {"attn_mask": mask, "scale": scale}
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    assert_same(forward, query, key, value, 0.0, is_causal, **named)
    made, sums = forward(query, key, value, 0.0, is_causal, **named)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    rest = (torch.randn_like(made), query, key, value, made, sums, 0.0, is_causal)
    assert_same(backward, *rest, **named)


def test_rows_that_are_masked_whole_are_zeros_and_give_no_gradient():
    query, key, value = (torch.randn(2, 3, 7, 8) for _ in range(3))
    mask = torch.zeros(2, 1, 7, 7)
    mask[0, 0, 2] = -torch.inf
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    made, sums = decompositions()[forward](query, key, value, attn_mask=mask)
    torch.testing.assert_close(made, forward(query, key, value, attn_mask=mask)[0])
    assert not made[0, :, 2].any()
    gradient = torch.randn_like(made)
    rest = (gradient, query, key, value, made, sums, 0.0, False)
    found = decompositions()[backward](*rest, attn_mask=mask)
    assert not found[0][0, :, 2].any()
    assert all(each.isfinite().all() for each in found)


@pytest.mark.parametrize("dim", [0, 2, -1])  # those that torch has a kernel for
def test_gradients_of_weight_norm(dim):
    direction = torch.randn(4, 3, 2)
    size = torch.rand([extent if axis == dim % 3 else 1 for axis, extent in enumerate((4, 3, 2))])
    made, norms = aten._weight_norm_interface(direction, size, dim % 3)
    backward = aten._weight_norm_interface_backward.default
    found = decompositions()[backward](torch.ones_like(made), direction, size, norms, dim)
    for each in (direction, size):
        each.requires_grad_()
    others = [axis for axis in range(3) if axis != dim % 3]
    plain = size * direction / direction.norm(2, others, keepdim=True)
    for one, other in zip(found, torch.autograd.grad(plain.sum(), (direction, size)), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("offset", [0, 2, 4, -1, -3, 5, -6])  # the last two are beyond the plane
@pytest.mark.parametrize("dims", [(0, 1), (2, 0)])
def test_a_diagonal_is_written_to(offset, dims):
    data = torch.randn(4, 5, 4)
    source = torch.randn_like(data.diagonal(offset, *dims))
    arguments = (data, source, offset, *dims)
    op = aten.diagonal_scatter.default
    assert torch.equal(decompositions()[op](*arguments), op(*arguments))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_gradients_of_distances(p):
    left, right = torch.randn(2, 5, 3), torch.randn(2, 4, 3)
    left[0, 1] = right[0, 2]
    right[1, 0, 1] = left[1, 0, 1]
    distances = torch.cdist(left, right, p)
    op, gradient = aten._cdist_backward.default, torch.randn_like(distances)
    given = gradient, left, right, p, distances
    torch.testing.assert_close(decompositions()[op](*given), op(*given))


@pytest.mark.parametrize("shape", [(3, 5), (5,), (3, 1)])
def test_gradients_of_elements_under_a_mask(shape):
    op, gradient, mask = aten.masked_scatter_backward.default, torch.randn(3, 5), torch.rand(shape)
    given = gradient, mask < 0.6, (4, 5)
    torch.testing.assert_close(
        decompositions()[op](*given), op(*given[:1], given[1].expand(3, 5), (4, 5))
    )


@pytest.mark.parametrize("accumulate", [False, True])
def test_elements_at_places_of_the_flat_tensor(accumulate):
    data, places = torch.randn(3, 4).t(), torch.tensor([[1, -1], [7, 1 - int(not accumulate)]])
    op, source = aten.put.default, torch.randn(2, 2)
    given = data, places, source, accumulate
    torch.testing.assert_close(decompositions()[op](*given), op(*given))


def test_small_gradients_of_softmax_are_those_of_eager():
    """A difference of terms that are no normal numbers keeps what eager's kernel keeps."""
    weights = torch.tensor([[1.4e-45, 4.2e-45, 1.0], [0.25, 0.5, 0.25]])
    gradient = torch.tensor([[-0.62, -0.86, -0.44], [1.0, 2.0, 3.0]])
    op = aten._softmax_backward_data.default
    found = decompositions()[op](gradient, weights, 1, torch.float32)
    assert torch.equal(found, op(gradient, weights, 1, torch.float32))


@pytest.mark.parametrize("name", OTHERWISE_DECOMPOSED)
def test_what_some_torch_decomposes_into_other_numbers_stays_whole(name):
    """torch 2.11 has x - floor(|x|) sign(x) for `frac`: -0 of -0, where eager gives 0."""
    assert all(base_name(op) != name for op in decompositions())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("zeros", [0, 1, 2, 5])
def test_gradients_of_running_products(zeros, dtype):
    _, backward = TRACED_OTHERWISE[aten.cumprod_backward.default]
    for dim in (0, 1, -1):
        data = torch.randn(5, 6, 7).to(dtype)
        data.view(-1)[torch.randperm(210)[: zeros * 7]] = 0
        data.requires_grad_()
        made, gradient = data.cumprod(dim), torch.randn(5, 6, 7).to(dtype)
        (expected,) = torch.autograd.grad(made, data, gradient)
        torch.testing.assert_close(backward(gradient, data, dim, made), expected)


def test_the_graph_of_a_running_products_gradient_does_not_grow_with_the_row():
    """torch 2.11 traces its own function as a loop over the elements; that of later versions looks
    the product before the first 0 up, ours does not."""
    counts = []

    def counted(graph, inputs):
        counts.append(len(graph.graph.nodes))
        assert not graph.graph.find_nodes(op="call_function", target=aten.gather.default)
        return graph

    for length in (3, 40):
        data = torch.rand(length, requires_grad=True)
        traced = aot_function(lambda x: x.cumprod(0), lambda graph, _: graph, counted)
        with traced_otherwise():
            traced(data).sum().backward()
    assert counts[0] == counts[1] < 40


# Sizes at which no place is that of an element, where last bits decide whether a share is 0.
SIZES = {
    "linear": ((2, 2, 7), (10,)),
    "bilinear": ((2, 3, 6, 5), (9, 12)),
    "trilinear": ((1, 2, 4, 5, 3), (7, 4, 8)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", SIZES)
def test_linear_resizes_of_infinite_values_are_eagers(mode, corners, dtype):
    """torch's decomposition subtracts neighbours (`pooling 20261127457`)."""
    shape, sizes = SIZES[mode]
    special = torch.tensor([0.0, torch.inf, -torch.inf, torch.nan, 1.0, -2.5], dtype=dtype)
    data = torch.where(torch.rand(shape) < 0.5, torch.randn(shape, dtype=dtype),
                       special[torch.randint(0, 6, shape)])  # fmt: skip
    one_row = data[..., :1].contiguous()
    same = (*shape[2:-1], sizes[-1])  # only the last axis is changed
    plain = torch.randn(shape, dtype=dtype)
    for given, wanted in ((data, sizes), (one_row, sizes), (plain, sizes), (data, same)):
        given = given.clone().requires_grad_()
        resized = functools.partial(
            torch.nn.functional.interpolate, size=wanted, mode=mode, align_corners=corners
        )
        traced = aot_function(resized, lambda graph, _: graph, decompositions=decompositions())
        with traced_otherwise():
            found = traced(given)
        expected = resized(given)
        torch.testing.assert_close(found, expected, equal_nan=True)
        if bool(given.isfinite().all()):
            slopes = torch.randn_like(expected)
            ours, eagers = (torch.autograd.grad(y, given, slopes)[0] for y in (found, expected))
            torch.testing.assert_close(ours, eagers)


def test_ops_are_traced_otherwise_only_inside_a_trace():
    before = [dict(op.py_kernels) for op in TRACED_OTHERWISE]
    resize = torch._decomp.decompositions._upsample_linear
    with pytest.raises(KeyError), traced_otherwise():
        raise KeyError
    assert [dict(op.py_kernels) for op in TRACED_OTHERWISE] == before
    assert torch._decomp.decompositions._upsample_linear is resize
