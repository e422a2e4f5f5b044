"""Which products of a graph on a CUDA device go to torch's library; graphs as AOTAutograd traces
them, read on the host."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from aotc.aot.capture.aten_graph import import_aten
from aotc.aot.capture.aten_signature import CHOSEN
from aotc.aot.dynamo import library_products
from aotc.aot.dynamo.graphs import sizes_in
from aotc.aot.dynamo.library_products import PRODUCT, WIDE_PRODUCT, choose
from aotc.aot.dynamo.options import read_options
from aotc.aot.dynamo.regions import regions

aten = torch.ops.aten
CONVERSION = torch.ops.prims.convert_element_type.default
CONVERSIONS = (CONVERSION, lambda value, dtype: aten._to_copy.default(value, dtype=dtype))
OPTIONS = replace(read_options({}), ordinal=0)


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch):
    monkeypatch.setattr(library_products, "FEWEST_MULTIPLICATIONS", 1)


def weight_gradient(g, x):
    return converted_gradient(g, x, CONVERSION)


def converted_gradient(g, x, convert):
    """As AOTAutograd writes it under autocast: f32 of the transposed product of 16-bit tensors."""
    product = aten.mm.default(aten.permute.default(g, [1, 0]), x)
    transposed = aten.permute.default(aten.permute.default(product, [1, 0]), [1, 0])
    return (convert(transposed, torch.float32),)


def half(*shape):
    return torch.randn(shape).bfloat16()


def traced(function, *given):
    return make_fx(function)(*given)


def chosen(module):
    return [node.target for node in module.graph.nodes if CHOSEN in node.meta]


@pytest.mark.parametrize("convert", CONVERSIONS)
def test_a_gradient_of_a_weight_is_one_call_that_gives_f32(convert):
    module = traced(lambda g, x: converted_gradient(g, x, convert), half(8, 3), half(8, 5))
    choose(module, OPTIONS)
    assert chosen(module) == [aten.permute.default, WIDE_PRODUCT, *[aten.permute.default] * 2]
    assert not {node.target for node in module.graph.nodes} & {CONVERSION, aten._to_copy.default}
    (output,) = module.graph.find_nodes(op="output")
    assert output.args[0][0].meta["val"].dtype == torch.float32


def test_rounded_intermediates_keep_the_conversion():
    module = traced(weight_gradient, half(8, 3), half(8, 5))
    before = module(given := half(8, 3), other := half(8, 5))
    choose(module, replace(OPTIONS, round_intermediates=True))
    assert {PRODUCT, CONVERSION} <= set(chosen(module))
    assert torch.equal(module(given, other)[0], before[0])


def fused_behind(a, b):
    return (aten.relu.default(aten.mm.default(a, b)),)


def read_twice(a, b):
    product = aten.mm.default(a, b)
    return product, aten.sum.default(product)


def of_f32(a, b):
    return (aten.mm.default(CONVERSION(a, torch.float32), CONVERSION(b, torch.float32)),)


@pytest.mark.parametrize("function", [fused_behind, read_twice, of_f32])
def test_products_that_stay(function):
    module = traced(function, half(4, 6), half(6, 5))
    choose(module, OPTIONS)
    assert not chosen(module)


def test_small_products_stay(monkeypatch):
    monkeypatch.setattr(library_products, "FEWEST_MULTIPLICATIONS", 8 * 3 * 5 + 1)
    module = traced(weight_gradient, half(8, 3), half(8, 5))
    choose(module, OPTIONS)
    assert not chosen(module)


def test_an_operand_that_others_read_too_keeps_its_view():
    def function(g, x):
        transposed = aten.permute.default(g, [1, 0])
        return aten.mm.default(transposed, x), aten.relu.default(transposed)

    module = traced(function, half(8, 3), half(8, 5))
    choose(module, OPTIONS)
    assert chosen(module) == [PRODUCT]


def test_nothing_is_refused_and_the_rest_is_ours():
    def function(g, x):
        own = aten.relu.default(g)
        return aten.mm.default(aten.permute.default(own, [1, 0]), x), aten.sum.dim_IntList(own, [0])

    given = half(8, 3), half(8, 5)
    module = traced(function, *given)
    choose(module, OPTIONS)
    walked = import_aten(module.graph, module, sizes_in(given))
    assert (walked.refusals, walked.imported) == ((), None)
    assert {node.target for node in walked.left} == {PRODUCT, aten.permute.default}
    first, second = regions(module, walked.left)
    assert [first.is_left, second.is_left] == [False, True]
    assert import_aten(first.module.graph, first.module, sizes_in(given)).imported is not None
