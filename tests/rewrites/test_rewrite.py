"""The stage as a whole: folding, joining, packing, skipping, and what arrives at the schedule."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

from aotc.aot.ir.graph import Constant
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.text import parse_graph, print_graph
from aotc.aot.ir.types import TensorType
from aotc.aot.rewrites.rewrite import MEMORY, STAGES, rewrite, rewrite_each
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

BLOCK = """
%x = input(name='x') : f32[2, 3, 8]
%w = constant(name='w') : f32[16, 8]
%wt = permute(%w, dims=(1, 0)) : f32[8, 16]
%b = constant(name='b') : f32[16]
%rows = reshape(%x, shape=(6, 8)) : f32[6, 8]
%product = matmul(%rows, %wt) : f32[6, 16]
%back = reshape(%product, shape=(2, 3, 16)) : f32[2, 3, 16]
%bias = reshape(%b, shape=(1, 1, 16)) : f32[1, 1, 16]
%sum = add(%back, %bias) : f32[2, 3, 16]
%half = scalar(value=0.5, dtype='f32') : f32[]
%root = scalar(value=0.7071067811865476, dtype='f32') : f32[]
%one = scalar(value=1.0, dtype='f32') : f32[]
%scaled = mul(%sum, %root) : f32[2, 3, 16]
%erf = erf(%scaled) : f32[2, 3, 16]
%phi = add(%one, %erf) : f32[2, 3, 16]
%first = mul(%half, %sum) : f32[2, 3, 16]
%gelu = mul(%first, %phi) : f32[2, 3, 16]
return out=%gelu
"""

ATTENTION_INPUT = """
%x = input(name='x') : f32[6, 8]
%q = constant(name='q') : f32[8, 8]
%k = constant(name='k') : f32[8, 4]
%v = constant(name='v') : f32[8, 4]
%qb = constant(name='qb') : f32[1, 8]
%kb = constant(name='kb') : f32[1, 4]
%vb = constant(name='vb') : f32[1, 4]
%xq = matmul(%x, %q) : f32[6, 8]
%xk = matmul(%x, %k) : f32[6, 4]
%xv = matmul(%x, %v) : f32[6, 4]
%query = add(%xq, %qb) : f32[6, 8]
%key = add(%xk, %kb) : f32[6, 4]
%value = add(%xv, %vb) : f32[6, 4]
return query=%query, key=%key, value=%value
"""

RESIDUAL = """
%image = input(name='image') : f32[1, 3, 8, 8]
%w1 = constant(name='w1') : f32[4, 3, 3, 3]
%w2 = constant(name='w2') : f32[4, 4, 1, 1]
%scale = constant(name='scale') : f32[1, 4, 1, 1]
%shift = constant(name='shift') : f32[1, 4, 1, 1]
%first = convolution(%image, %w1, dilation=(1, 1), groups=1, padding=(1, 1), stride=(1, 1)) \
: f32[1, 4, 8, 8]
%scaled = mul(%first, %scale) : f32[1, 4, 8, 8]
%normal = add(%scaled, %shift) : f32[1, 4, 8, 8]
%bright = relu(%normal) : f32[1, 4, 8, 8]
%second = convolution(%bright, %w2, dilation=(1, 1), groups=1, padding=(0, 0), stride=(1, 1)) \
: f32[1, 4, 8, 8]
%sum = add(%second, %bright) : f32[1, 4, 8, 8]
%windows = window(%sum, axes=(2, 3), dilations=(1, 1), sizes=(2, 2), strides=(2, 2)) \
: f32[1, 4, 4, 4, 2, 2]
%peak = max(%windows, axes=(4, 5)) : f32[1, 4, 4, 4, 1, 1]
%pooled = reshape(%peak, shape=(1, 4, 4, 4)) : f32[1, 4, 4, 4]
return out=%pooled
"""


@pytest.mark.parametrize("text", [BLOCK, ATTENTION_INPUT, RESIDUAL], ids=["block", "qkv", "cnn"])
def test_rewritten_graph(text, fill, golden, random_inputs):
    graph = parse_graph(text, fill=fill)
    result, _ = rewrite(graph)
    inputs = random_inputs(graph, 1, has_specials=False)
    for before, after in zip(interpret(graph, inputs), interpret(result, inputs), strict=True):
        numpy.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-4)
    golden(print_graph(result))


def test_every_step_can_be_skipped_and_keeps_the_meaning(fill, random_inputs):
    graph = parse_graph(RESIDUAL, fill=fill)
    inputs = random_inputs(graph, 2, has_specials=False)
    (expected,) = interpret(graph, inputs)
    for stage in STAGES:
        result, log = rewrite(graph, skip=frozenset({stage.name}))
        assert (stage.name in [row.name for row in log.stages]) == (stage.name == MEMORY)
        (found,) = interpret(result, inputs)
        numpy.testing.assert_allclose(expected, found, rtol=1e-5, atol=1e-4)


def test_skipped_rule_does_not_fire(fill):
    graph = parse_graph(BLOCK, fill=fill)
    assert rewrite(graph)[1].counts()["gelu"] == 1
    result, log = rewrite(graph, skip=frozenset({"gelu"}))
    assert "gelu" not in log.counts()
    assert any(node.op == "erf" for node in result.nodes())


def test_without_packing_the_matmuls_stay(fill):
    graph = parse_graph(BLOCK, fill=fill)
    ops = {node.op for node in rewrite(graph, replace(CPU, packs_weights=False))[0].nodes()}
    assert "matmul" in ops
    assert "matmul_packed" not in ops


def test_rewriting_twice_changes_nothing(fill):
    once, _ = rewrite(parse_graph(RESIDUAL, fill=fill))
    twice, _ = rewrite(once)
    assert print_graph(once) == print_graph(twice)


def test_repeated_values_do_not_become_a_larger_constant(fill):
    text = """
    %c = constant(name='c') : f32[1, 4096]
    %x = input(name='x') : f32[4096, 4096]
    %wide = expand(%c, shape=(4096, 4096)) : f32[4096, 4096]
    %sum = add(%x, %wide) : f32[4096, 4096]
    return out=%sum, wide=%wide
    """
    lines = "\n".join(line.strip() for line in text.splitlines())
    result, _ = rewrite(parse_graph(lines, fill=fill))
    assert sum(constant.type.nbytes for constant in result.constants.values()) == 4096 * 4


def test_two_small_operands_do_not_hand_a_permute_to_each_other(fill):
    text = """
    %y = input(name='y') : f32[4, 8, 3, 3, 3]
    %windows = input(name='x') : f32[1, 1, 1, 4, 7, 7, 7, 3, 3, 3]
    %turned = permute(%y, dims=(1, 0, 2, 3, 4)) : f32[8, 4, 3, 3, 3]
    %f = reshape(%turned, shape=(1, 1, 8, 4, 1, 1, 1, 3, 3, 3)) : f32[1, 1, 8, 4, 1, 1, 1, 3, 3, 3]
    %all = mul(%windows, %f) : f32[1, 1, 8, 4, 7, 7, 7, 3, 3, 3]
    %product = sum(%all, axes=(3, 7, 8, 9)) : f32[1, 1, 8, 1, 7, 7, 7, 1, 1, 1]
    return out=%product
    """
    lines = "\n".join(line.strip() for line in text.splitlines())
    rewrite(parse_graph(lines, fill=fill))


GATHERED = """
%x = input(name='x') : f32[6, 8, 1]
%at = input(name='at') : i64[6]
%experts = constant(name='w') : f32[4, 16, 8]
%w = take(%experts, %at, axis=0) : f32[6, 16, 8]
%column = matmul(%w, %x) : f32[6, 16, 1]
%square = reshape(%x, shape=(6, 8)) : f32[6, 8]
%dense = constant(name='d') : f32[8, 1]
%score = matmul(%square, %dense) : f32[6, 1]
return column=%column, score=%score
"""


def test_only_the_processor_sums_gathered_columns_and_packed_weights_stay(fill):
    graph = parse_graph(GATHERED, fill=fill)
    ops = {
        device: {node.op for node in rewrite(graph, traits)[0].nodes()}
        for device, traits in (("cpu", CPU), ("cuda", GPUS[90]))
    }
    assert {"take", "sum", "matmul_packed"} <= ops["cpu"]
    assert "matmul" not in ops["cpu"]
    assert "matmul" in ops["cuda"]
    assert "sum" not in ops["cuda"]


def test_lookup_of_counted_places_becomes_a_slice(fill):
    text = """
    %table = constant(name='table') : f32[64, 2048]
    %x = input(name='x') : f32[8, 2048]
    %count = iota(shape=(8,), axis=0) : i64[8]
    %two = scalar(value=2, dtype='i64') : i64[]
    %places = add(%count, %two) : i64[8]
    %rows = take(%x, %count, axis=0) : f32[8, 2048]
    %known = take(%table, %places, axis=0) : f32[8, 2048]
    %sum = add(%rows, %known) : f32[8, 2048]
    return out=%sum
    """
    lines = "\n".join(line.strip() for line in text.splitlines())
    graph = parse_graph(lines, fill=fill)
    result, _ = rewrite(graph)
    assert [node.op for node in result.nodes()] == ["input", "constant", "add"]
    (folded,) = result.constants.values()
    numpy.testing.assert_array_equal(folded.array, graph.constants["table"].array[2:10])


def test_equal_elements_become_a_literal():
    zeros = Constant("zeros", TensorType("f32", (8,)), numpy.zeros(8, numpy.float32))
    text = (
        "%x = input(name='x') : f32[8]\n%c = constant(name='zeros') : f32[8]\n"
        "%sum = sub(%x, %c) : f32[8]\nreturn out=%sum\n"
    )
    result, _ = rewrite(parse_graph(text, {"zeros": zeros}))
    assert result.outputs == result.inputs


@pytest.mark.parametrize("text", [BLOCK, RESIDUAL], ids=["block", "cnn"])
def test_families_that_share_a_bundle_read_the_same_weights(text, fill, random_inputs):
    graph = parse_graph(text, fill=fill)
    both = rewrite_each(graph, {"cuda": GPUS[90], "cpu": CPU})
    together = {device: result for device, (result, _) in both.items()}
    names = {device: stored(result) for device, result in together.items()}
    assert names["cuda"] == names["cpu"]
    assert names["cuda"] == stored(rewrite(graph, traits=GPUS[90])[0])
    assert names["cpu"] != stored(rewrite(graph, traits=CPU)[0])
    inputs = random_inputs(graph, 1, has_specials=False)
    for before, after in zip(
        interpret(graph, inputs), interpret(together["cpu"], inputs), strict=True
    ):
        numpy.testing.assert_allclose(before, after, rtol=1e-5, atol=1e-4)


def stored(graph):
    """Name and type of every constant that a graph reads."""
    return {(node.attr("name"), node.type) for node in graph.nodes() if node.op == "constant"}
