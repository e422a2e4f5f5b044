"""Each variant of `rows.py` through torch.export, our import and the rewrites: found and right."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy
import pytest
import torch
from torch import nn

from aotc.aot.capture.capture import capture
from aotc.aot.capture.spec import Spec
from aotc.aot.ir.graph import Graph
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.schedule.schedule import schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS
from tests.rewrites.variants import rows

pytestmark = pytest.mark.torch
WORK = {"exp", "tanh", "erf", "sigmoid", "div", "pow", "max", "sum"}


class Together(nn.Module):
    """All variants that take the same arguments: one export for many of them."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions
        self.modules_of_functions = nn.ModuleList(
            each for each in functions if isinstance(each, nn.Module)
        )

    def forward(self, *arguments):
        return tuple(function(*arguments) for function in self.functions)


@functools.cache
def captured(key):
    """The variants of `rows` whose arguments have an id, and their capture."""
    named_rows = (value for value in vars(rows).values() if isinstance(value, list))
    variants = [each for row in named_rows for each in row if id(each.arguments) == key]
    module = Together([each.function for each in variants]).eval()
    return variants, capture(Spec("rows", "rows", variants[0].arguments, {}, module))


def alone(variant):
    """The graph of one variant, its inputs and what torch makes of them."""
    if any(variant in row for row in vars(rows).values() if isinstance(row, list)):
        variants, model = captured(id(variant.arguments))
    else:
        module = Together([variant.function]).eval()
        variants, model = [variant], capture(Spec("one", "one", variant.arguments, {}, module))
    place = variants.index(variant)
    whole = model.graph
    graph = Graph(
        whole.inputs,
        (whole.outputs[place],),
        whole.input_names,
        (whole.output_names[place],),
        whole.constants,
    ).with_outputs((whole.outputs[place],))
    return graph, list(model.golden_inputs), model.golden_outputs[place]


def named(variants):
    return pytest.mark.parametrize(
        "variant", variants, ids=[f"{each.op}-{each.name}" for each in variants]
    )


def rewritten(variant, device="cpu"):
    """The rewritten graph, after its numbers were compared with torch's."""
    graph, inputs, expected = alone(variant)
    graph, _ = rewrite(graph, {"cpu": replace(CPU, packs_weights=False), "cuda": GPUS[90]}[device])
    (found,), (output,) = interpret(graph, inputs), graph.outputs
    tolerance = 2e-2 if output.dtype in ("f16", "bf16") else 1e-4
    numpy.testing.assert_allclose(
        widen(found, output.dtype), widen(expected, output.dtype), rtol=tolerance, atol=tolerance
    )
    return graph


def ops(graph):
    return [node.op for node in graph.nodes()]


@named([*rows.SIGMOID, *rows.SILU, *rows.GELU, *rows.GELU_TANH])
def test_an_activation_is_one_op(variant):
    found = ops(rewritten(variant))
    assert found.count(variant.op) == 1
    assert not (WORK - {variant.op}) & set(found)


@named([*rows.LAYER_NORM, *rows.RMS_NORM, *rows.SOFTMAX])
def test_a_norm_is_one_kernel(variant):
    (group,) = schedule(rewritten(variant), CPU).groups
    assert group.kind == "row"
    assert group.label == variant.op


@named([*rows.ATTENTION, *rows.CAUSAL])
def test_attention_is_one_op(variant):
    graph = rewritten(variant, "cuda")
    (node,) = [each for each in graph.nodes() if each.op == "attention"]
    assert not WORK & set(ops(graph))
    assert node.attr("causal") == (variant in rows.CAUSAL)
    keys = variant.arguments[1].shape[1]
    assert node.inputs[1].shape[1] in (keys, rows.BATCH * keys)  # heads are not repeated


@named(rows.ROTARY)
def test_rotary_is_one_kernel(variant):
    assert len(schedule(rewritten(variant), CPU).groups) == 1


@named(rows.GATED)
def test_a_gate_is_one_product_and_one_kernel(variant):
    graph = rewritten(variant)
    assert ops(graph).count("matmul") == 1
    assert len(schedule(graph, CPU).groups) == 2


class Normalized(nn.Module):
    """A product and a batch norm behind it, the latter as a module or by hand."""

    def __init__(self, product, norm, by_hand=False):
        super().__init__()
        self.product, self.norm, self.by_hand = product, norm, by_hand
        with torch.no_grad():
            for tensor in (norm.running_mean, norm.weight, norm.bias):
                tensor.uniform_(0.5, 1.5)
            norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x):
        product, norm = self.product(x), self.norm
        if not self.by_hand:
            return norm(product)
        column = (-1, *[1] * (product.dim() - 2))
        scale = torch.sqrt(norm.running_var + norm.eps).view(column)
        centered = product - norm.running_mean.view(column)
        return centered / scale * norm.weight.view(column) + norm.bias.view(column)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Normalized(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8)), (2, 4, 6, 6)),
        (Normalized(nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8)), (2, 4, 6, 6)),
        (Normalized(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), by_hand=True), (2, 4, 6, 6)),
        (Normalized(nn.ConvTranspose2d(4, 8, 2, 2), nn.BatchNorm2d(8)), (2, 4, 6, 6)),
        (Normalized(nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8)), (2, 4, 9)),
        (Normalized(nn.Linear(16, 8), nn.BatchNorm1d(8)), (4, 16)),
    ],
    ids=["bias", "no bias", "by hand", "transposed", "one dim", "linear"],
)
def test_batch_norm_goes_into_the_weights(model, shape):
    variant = rows.Variant("batch norm", model, (torch.randn(shape),), "")
    found = ops(rewritten(variant))
    assert not {"mul", "div", "sub", "sqrt", "rsqrt", "reciprocal"} & set(found)
    assert found.count("matmul") == 1
    assert found.count("add") == 1


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("width", [16, 8])
def test_linears_of_one_input_are_one_product(width, bias):
    class Three(nn.Module):
        def __init__(self):
            super().__init__()
            widths = (16, width, width)
            self.linears = nn.ModuleList(nn.Linear(16, each, bias=bias) for each in widths)

        def forward(self, x):
            return torch.cat([linear(x) for linear in self.linears], -1)

    graph = rewritten(rows.Variant("three", Three(), rows.X, ""))
    assert ops(graph).count("matmul") == 1


@named(rows.SCALARS)
def test_scalar_chains_are_one_factor(variant):
    assert ops(rewritten(variant)) == ["input", "scalar", "mul"]


@named(rows.NOTHING)
def test_what_changes_nothing_is_gone(variant):
    assert ops(rewritten(variant)) == ["input"]


def test_zero_is_added_where_a_sign_depends_on_it():
    adding, positive = (
        rows.Variant("zero", function, rows.X, "")
        for function in (lambda x: x + 0.0, lambda x: x.exp() + 0.0)
    )
    assert ops(rewritten(adding)) == ["input", "scalar", "add"]
    assert ops(rewritten(positive)) == ["input", "exp"]


def test_softmax_without_the_largest_taken_off_is_left_alone():
    """It overflows where softmax does not: no rule may mend it."""
    variant = rows.Variant("bare", lambda x: x.exp() / x.exp().sum(-1, True), rows.X, "")
    assert "max" not in ops(rewritten(variant))


def test_equal_work_is_done_once_and_unused_work_not_at_all():
    def function(x):
        unused = torch.tanh(x)  # noqa: F841
        return torch.sigmoid(x) * 2 + torch.sigmoid(x) * 2

    found = ops(rewritten(rows.Variant("repeated", function, rows.X, "")))
    assert found.count("sigmoid") == found.count("mul") == 1
    assert "tanh" not in found
