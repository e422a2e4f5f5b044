"""Every example, scaled down: captured, rewritten, and run by the reference interpreter.

The golden outputs are those of the exported module; the scale of an output is its largest element.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen
from aotc.aot.ir.text import parse_graph, print_graph

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from aotc.aot.capture.capture import Captured, capture  # noqa: E402  needs torch
from aotc.aot.capture.spec import load_spec, spec_of  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite  # noqa: E402

pytestmark = pytest.mark.torch
EXAMPLES = Path(__file__).parents[2] / "examples"
WITHOUT_KERNELS = frozenset({"attention"})  # whose calls numpy cannot run; tests/build does

# name → arguments of `build_model` and of `example_inputs` for a small copy of the example
SMALL = {
    "mlp_block": ({"width": 32, "hidden": 80}, {"rows": 6, "width": 32}),
    "mlp_block_bf16": ({"width": 32, "hidden": 80}, {"rows": 6, "width": 32}),
    "mlp_block_silu_rms": ({"width": 32, "hidden": 80}, {"rows": 6, "width": 32}),
    "transformer_encoder": (
        {"width": 32, "heads": 4, "hidden": 48},
        {"batch": 3, "length": 10, "width": 32},
    ),
    "bert": (
        {"layers": 2, "width": 48, "heads": 4, "hidden": 96, "vocabulary": 100},
        {"batch": 2, "length": 12, "vocabulary": 100},
    ),
    "small_cnn": ({"channels": 8}, {"batch": 2, "extent": 32}),
    "black_scholes": (None, {"options": 500}),
}
# Matmuls that are left, whatever the model's size: joined and counted.
MATMULS = {"mlp_block": 2, "transformer_encoder": 12, "bert": 13, "small_cnn": 10}


@pytest.fixture(scope="module", params=SMALL)
def example(request) -> tuple[str, Captured]:
    name = request.param
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model_arguments, input_arguments = SMALL[name]
    torch.manual_seed(0)
    is_function = model_arguments is None
    model = module.model if is_function else module.build_model(**model_arguments)
    inputs = module.example_inputs(**input_arguments)
    return name, capture(spec_of(model, inputs, f"{name}.py"))


def assert_golden(name: str, captured: Captured, graph) -> None:
    found = interpret(graph, captured.golden_inputs)
    tolerance = 2e-2 if "bf16" in name else 1e-5
    for node, left, right in zip(graph.returned, found, captured.golden_outputs, strict=True):
        assert left.shape == right.shape
        result, expected = widen(left, node.dtype), widen(right, node.dtype)
        difference = numpy.max(numpy.abs(result.astype(float) - expected))
        assert difference <= tolerance * numpy.max(numpy.abs(expected))


def test_imported_graph_gives_the_golden_numbers(example):
    name, captured = example
    assert_golden(name, captured, captured.graph)


def test_rewritten_graph_gives_the_golden_numbers(example):
    name, captured = example
    graph, log = rewrite(captured.graph, skip=WITHOUT_KERNELS)
    assert_golden(name, captured, graph)
    assert len(graph.nodes()) <= len(captured.graph.nodes())
    assert log.counts()
    ops = Counter(node.op for node in graph.nodes())
    assert ops["convolution"] == 0
    if name in MATMULS:
        assert ops["matmul"] + ops["matmul_packed"] == MATMULS[name]


def test_text_of_every_example_round_trips(example):
    _, captured = example
    graph, _ = rewrite(captured.graph)
    text = print_graph(graph, with_sources=True)
    assert print_graph(parse_graph(text, graph.constants), with_sources=True) == text


def test_sources_are_lines_of_the_example(example):
    name, captured = example
    sources = [node.source for node in captured.graph.nodes() if node.inputs]
    named = [source for source in sources if source and " in " in source]
    assert len(named) >= len(sources) * 9 // 10
    if name in ("transformer_encoder", "small_cnn", "black_scholes"):
        assert [source for source in named if not source.startswith(f"{name}.py:")] == []


def test_a_line_is_that_of_the_model_that_is_captured(tmp_path):
    """Two models of one process may hold the same nodes."""
    text = "import torch\n{}\ndef model(x):\n    return torch.tan(x)\n"
    text += "example_inputs = (torch.ones(3),)\n"
    found = []
    for name, before in (("first.py", ""), ("second.py", "\n\n")):
        path = tmp_path / name
        path.write_text(text.format(before))
        captured = capture(load_spec(str(path)))
        found.append((captured, [node.source for node in captured.graph.nodes() if node.inputs]))
    assert [sources for _, sources in found] == [
        ["first.py:4 in model"], ["second.py:6 in model"],
    ]  # fmt: skip


def test_activations_and_joined_weights_are_found(example):
    name, captured = example
    counts = rewrite(captured.graph)[1].counts()
    expected = {
        "bert": {"join": 4},
        "small_cnn": {"convolution-scale": 9, "convolution-matmul": 9},
        "black_scholes": {"erf-neg": 2},
    }
    for rule, count in expected.get(name, {}).items():
        assert counts[rule] == count


def test_two_captures_of_a_spec_are_the_same(tmp_path):
    path = tmp_path / "unseeded.py"
    path.write_text(
        "import torch\nmodel = torch.nn.Linear(4, 3)\nexample_inputs = (torch.randn(2, 4),)\n"
    )
    first, second = (capture(load_spec(str(path))) for _ in range(2))
    assert print_graph(first.graph) == print_graph(second.graph)
    for name, constant in first.graph.constants.items():
        numpy.testing.assert_array_equal(constant.array, second.graph.constants[name].array)
    numpy.testing.assert_array_equal(first.golden_outputs[0], second.golden_outputs[0])
