"""All readers of a 16-bit value see it rounded, or there is one: results of pairs of them are 0."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from aotc.aot.capture.capture import capture
from aotc.aot.capture.importer import to_array
from aotc.aot.capture.spec import Spec
from aotc.aot.dynamo import aotc
from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.rounding import shared
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS
from tests.rounding import readers

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

from schedule_runner import Job

pytestmark = [pytest.mark.torch, pytest.mark.triton]
CHAINS = 4
STRICT = {"fallback": "error"}


@pytest.fixture(autouse=True)
def forgetful(tmp_path_factory, monkeypatch):
    """A Dynamo that has met nothing."""
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _without_maps(spec):
    """A form that runs as native code: tensor maps are of GPUs."""
    return next(candidate for candidate in spec.candidates if not candidate.maps)


def test_readers_agree_on_both_families_of_targets(tmp_path):
    """The kernels for a GPU run as native code here."""
    model, arguments = readers.Readers(0, CHAINS), readers.arguments(0)
    captured, job, outputs = capture(Spec("readers", "", arguments, {}, model)), Job(), {}
    for device, traits in (("cpu", CPU), ("cuda", GPUS[90])):
        graph, _ = rewrite(captured.graph, traits=traits)
        outputs[device] = job.add(graph, captured.golden_inputs, _without_maps, traits)
    results = job.run(tmp_path, "native")
    assert not job.errors, next(iter(job.errors.values()))
    expected = [to_array(each) for each in model(*arguments)]
    zeros = [not (array & 0x7FFF if array.dtype == "uint16" else array).any() for array in expected]
    assert sum(zeros) > 50
    different = [
        f"{name} on {device}"
        for device, rows in outputs.items()
        for name, row, wanted, is_zero in zip(model.names(), rows, expected, zeros, strict=True)
        if is_zero and not _equal(results[row[0]].reshape(row[1]), wanted)
    ]
    assert different == []


def _equal(found, expected) -> bool:
    """Whether zeros are zeros of some sign."""
    if expected.dtype == "uint16":  # bits of bf16
        found, expected = found & 0x7FFF, expected & 0x7FFF
    return bool((found == expected).all())


def test_readers_in_torch_compile_agree():
    program, arguments = readers.chain(3), readers.arguments(3)
    found = torch.compile(program, backend=aotc, options=STRICT)(*arguments)
    pairs = [(each, wanted) for each, wanted in zip(found, program(*arguments), strict=True)]
    checked = [found for found, wanted in pairs if not wanted.any()]
    assert len(checked) > 2
    assert [int(each.count_nonzero()) for each in checked] == [0] * len(checked)


def _squared(x, y, u):
    value = x * 0.37 + y
    return value * value * u, value * value


def _chosen(x, y, u):
    value = (x * 0.37 + y).tanh()
    found = torch.where(value > 0.1, value, -value)
    return found * u, found


@pytest.mark.parametrize("program", [_squared, _chosen])
def test_gradients_are_of_the_values_that_the_forward_graph_gave(program):
    """d(f · u)/du is f, to the bit."""
    x, y, _ = (each.half() for each in readers.arguments(1))
    factor = torch.ones_like(x, requires_grad=True)
    product, expected = torch.compile(program, backend=aotc, options=STRICT)(
        x.requires_grad_(), y, factor
    )
    product.backward(torch.ones_like(product))
    assert torch.equal(factor.grad, expected)


def test_results_are_readers_and_numbers_are_not_shared():
    x = make("input", (), {"name": "x", "dtype": "f16", "shape": (4,)})
    number = build.expand(build.scalar(0.1, "f16"), (4,))
    once, twice, result = (x * value for value in (2.0, 3.0, 5.0))
    third = x * number
    read = build.unary("exp", twice) + build.unary("exp", once)
    outputs = (build.unary("sin", twice) + read, result, build.unary("cos", result))
    outputs += (third, number + third)
    graph = Graph((x,), outputs, ("x",), tuple("abcde"), {})
    assert shared(graph) == {x, twice, result, third}


def _literals(is_result: bool) -> Graph:
    """(x · 0.37) · 2, of which x · 0.37 may be a result too."""
    x = make("input", (), {"name": "x", "dtype": "bf16", "shape": (4,)})
    inner = x * 0.37
    outputs = (inner * 2.0, *([inner] if is_result else []))
    return Graph((x,), outputs, ("x",), tuple("ab"[: len(outputs)]), {})


@pytest.mark.parametrize("is_result", [True, False])
def test_literals_are_joined_where_nobody_reads_the_value_between(is_result):
    graph, log = rewrite(_literals(is_result))
    assert log.counts().get("mul-mul-literals", 0) == (not is_result)
    assert (shared(graph) != set()) == is_result


@pytest.mark.parametrize("is_result", [True, False])
def test_attention_is_recognised_where_nobody_reads_its_scores(is_result):
    def attention(q, k, v):
        scores = q @ k.transpose(-1, -2)
        product = torch.softmax(scores * 0.125, -1) @ v
        return (product, scores) if is_result else product

    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return attention(q, k, v)

    arguments = tuple(torch.randn(1, 2, 64, 64).bfloat16() for _ in range(3))
    graph, _ = rewrite(capture(Spec("scores", "", arguments, {}, Model())).graph, traits=GPUS[90])
    assert any(node.op == "attention" for node in graph.nodes()) == (not is_result)
