"""`--quantize`: linear layers and embeddings in few bits, tied ones too, with the error it cost."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch import nn
from torch._higher_order_ops import while_loop

from aotc.aot.capture.capture import capture
from aotc.aot.capture.quantise import quantise_module
from aotc.aot.capture.spec import spec_of, specs_of
from aotc.aot.errors import NothingToQuantise
from aotc.aot.ir.reference import interpret
from aotc.aot.lower import lower
from aotc.aot.rewrites.quantise import quantise_weights
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.schedule.schedule import schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS


class Language(nn.Module):
    """An embedding that is the last layer too, and a layer whose rows have no whole groups."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(96, 128)
        self.up, self.down = nn.Linear(128, 192), nn.Linear(192, 128)
        self.odd = nn.Linear(96, 64)
        self.head = nn.Linear(128, 96, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        hidden = self.tokens(tokens)
        hidden = hidden + self.down(nn.functional.gelu(self.up(hidden)))
        return self.odd(self.head(hidden))


@pytest.mark.parametrize(
    ("kind", "share", "error"), [("int8", 0.29, 0.02), ("int4", 0.17, 0.3), ("fp8", 0.29, 0.1)]
)
def test_weights_are_stored_in_few_bits_and_give_the_golden_numbers(kind, share, error) -> None:
    torch.manual_seed(5)
    model = Language().eval()
    whole = sum(each.nbytes for each in (model.tokens.weight, model.up.weight, model.down.weight))
    rest = sum(each.nbytes for each in model.parameters()) - whole
    spec = spec_of(model, (torch.arange(12).reshape(2, 6),))
    quantised = quantise_module((spec,), kind)
    assert 0 < quantised.output_error < error
    assert set(quantised.originals) == {"tokens.weight", "head.weight", "up.weight", "down.weight"}
    captured = capture(spec)
    graph = quantise_weights(captured.graph, quantised.originals, kind)
    again = model.tokens.weight.nbytes * share  # tied weights are packed for the product too
    for traits in (CPU, GPUS[90]):
        found, _log = rewrite(graph, traits)
        # No kernel stores widened weights: what kernels store is of the size of activations.
        groups = schedule(found, traits).groups
        assert all(root.node.type.numel <= 12 * 192 for group in groups for root in group.roots)
        stored = sum(each.type.nbytes for each in found.constants.values())
        assert stored <= share * whole * 1.05 + again * 1.4 + rest
        (output,) = interpret(found, captured.golden_inputs)
        expected = captured.golden_outputs[0]
        assert numpy.abs(output - expected).max() <= 1e-5 * numpy.abs(expected).max()


@pytest.mark.parametrize("kind", ["int8", "int4", "fp8"])
def test_layers_with_transposed_weights_are_quantised_by_their_columns(kind) -> None:
    """As GPT-2's are; the kernels are those of `nn.Linear`."""
    layers = pytest.importorskip("transformers.pytorch_utils")
    torch.manual_seed(5)
    model = nn.Sequential(layers.Conv1D(192, 128), nn.GELU(), layers.Conv1D(64, 192)).eval()
    plain = nn.Sequential(nn.Linear(128, 192), nn.GELU(), nn.Linear(192, 64)).eval()
    for place in (0, 2):
        plain[place].weight.data.copy_(model[place].weight.t())
        plain[place].bias.data.copy_(model[place].bias)
    x, found = torch.randn(3, 128), []
    for each in (model, plain):
        spec = spec_of(each, (x,))
        quantised = quantise_module((spec,), kind)
        assert quantised.share > 0.98
        assert bool(quantised.transposed) == (each is model)
        captured = capture(spec)
        given = quantised.originals, kind, quantised.transposed
        graph = quantise_weights(captured.graph, *given)
        (output,) = interpret(graph, captured.golden_inputs)
        assert numpy.abs(output - captured.golden_outputs[0]).max() < 1e-5
        for traits in (CPU, GPUS[90]):
            lowered = rewrite(graph, traits)[0]
            found.append(sorted(each.type.nbytes for each in lowered.constants.values()))
    assert found[:2] == found[2:]


class Tokens(Language):
    """The most likely tokens alone, as a language model gives them."""

    def forward(self, tokens):
        return super().forward(tokens).argmax(-1)


class Functional(nn.Module):
    """Whole numbers of a layer whose own call never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return nn.functional.linear(x, self.layer.weight).argmax(-1)


def test_where_outputs_are_whole_numbers_the_last_layer_says_what_it_cost() -> None:
    torch.manual_seed(5)
    found = quantise_module((spec_of(Tokens().eval(), (torch.arange(12).reshape(2, 6),)),), "int4")
    assert found.measured == "results of `head`"  # `odd` is not quantised
    assert found.output_error is not None
    assert 0 < found.output_error < 0.3
    found = quantise_module((spec_of(Functional(), (torch.randn(2, 64),)),), "int4")
    assert found.originals
    assert found.output_error is None


@pytest.mark.parametrize("kind", ["int8", "int4", "fp8"])
@pytest.mark.parametrize("rows", [1, 8, 9])
def test_few_rows_multiply_codes_as_they_are(kind, rows) -> None:
    """On a CPU: to round each product of a code and its factor takes longer than all else."""
    torch.manual_seed(5)
    spec = spec_of(nn.Linear(128, 192).bfloat16().eval(), (torch.randn(rows, 128).bfloat16(),))
    quantised = quantise_module((spec,), kind)
    graph = quantise_weights(capture(spec).graph, quantised.originals, kind)
    (kernel,) = lower(schedule(rewrite(graph, CPU)[0], CPU), CPU)
    (form,) = kernel.forms
    loop = form.source.partition("for start")[2].partition("tl.dot")[0]
    assert ("bfloat16" in loop) == (rows > 8)


def test_what_has_no_layers_to_quantise_is_refused() -> None:
    model, inputs = nn.Linear(64, 64), (torch.randn(2, 64),)
    for found, example, words in (
        (torch.export.export(model, inputs), inputs, "an exported program"),
        (torch.sin, inputs, "a model without such layers"),
        (nn.Linear(63, 64), (torch.randn(2, 63),), "a model without such layers"),
    ):
        with pytest.raises(NothingToQuantise, match=f"--quantize int8.*{words}"):
            quantise_module((spec_of(found, example),), "int8")


class Branches(nn.Module):
    """Layers in branches, in the body of a loop and behind both; whole numbers come out."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 96), nn.Linear(96, 64)
        self.head = nn.Linear(64, 8)

    def forward(self, x):
        x = torch.cond(x.sum() > 0, lambda x: self.up(x), lambda x: self.up(-x), (x,))

        def more(x, turns):
            return turns < 3

        def turn(x, turns):
            return self.up(torch.tanh(self.down(x))), turns + 1

        x, _ = while_loop(more, turn, (x, torch.zeros((), dtype=torch.int64)))
        return self.head(self.down(x)).argmax(-1)


def test_layers_in_branches_and_loops_are_quantised() -> None:
    torch.manual_seed(5)
    model = Branches().eval()
    spec = spec_of(model, (torch.randn(3, 64),))
    quantised = quantise_module((spec,), "int4")
    assert 0 < quantised.output_error < 0.3
    assert quantised.measured == "results of `head`"
    captured = capture(spec)
    graph = quantise_weights(captured.graph, quantised.originals, quantised.kind)
    assert {each.type.dtype for name, each in graph.constants.items() if ".q" in name} == {"u8"}
    (output,) = interpret(graph, captured.golden_inputs)
    assert numpy.array_equal(output, captured.golden_outputs[0])


class Entries(nn.Module):
    """Entry points of which one has no weights, one gives whole numbers, and one floats."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.head = nn.Linear(64, 64), nn.Linear(64, 8)

    def shares(self, x):
        return torch.softmax(x, -1)

    def count(self, x):
        return torch.tensor(x.shape[0])

    def best(self, x):
        return self.head(self.up(x)).argmax(-1)

    def rows(self, x):
        return self.up(x)


@pytest.mark.parametrize(
    ("names", "measured"),
    [
        (("shares", "rows"), "outputs"),
        (("shares", "count", "best"), "results of `head`"),
        (("best", "shares"), "results of `head`"),
    ],
)
def test_the_error_is_that_of_the_entry_with_the_largest(names, measured) -> None:
    torch.manual_seed(5)
    model, x = Entries().eval(), torch.randn(3, 64)
    entries = {name: {"example_inputs": (x,)} for name in names}
    specs = specs_of(model, None, "the model", entry_points=entries)
    quantised = quantise_module(specs, "int4")
    assert 0.01 < quantised.output_error < 0.3
    assert quantised.measured == measured


def test_weights_that_calls_change_stay_as_they_are() -> None:
    table = nn.Embedding(20, 64, max_norm=1.0)
    model = nn.Sequential(table, nn.Linear(64, 64)).eval()
    quantised = quantise_module((spec_of(model, (torch.arange(20),)),), "int8")
    assert set(quantised.originals) == {"1.weight"}


def test_weights_without_elements_of_their_own_stay_as_they_are() -> None:
    empty, none, expanded = nn.Linear(64, 0), nn.Linear(0, 64), nn.Linear(64, 64)
    expanded.weight = nn.Parameter(torch.randn(1, 64).expand(64, 64))
    model = nn.Sequential(empty, none, expanded, nn.Linear(64, 64)).eval()
    quantised = quantise_module((spec_of(model, (torch.randn(2, 64),)),), "int8")
    assert set(quantised.originals) == {"3.weight"}


def test_weights_that_inference_mode_made_are_rounded() -> None:
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).eval()
    before = model[0].weight.detach().clone()
    quantised = quantise_module((spec_of(model, (torch.randn(2, 64),)),), "int8")
    assert numpy.array_equal(quantised.originals["0.weight"], before.numpy())
    assert 0 < (model[0].weight - before).abs().max() < 0.01
