"""Graphs of CUDA tensors, without a device: traced on the CPU, then said to be on `cuda:1`.

What is ours is compiled for the architecture of that device, what is not is left by name.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses import FakeTensor
from torch.utils._pytree import tree_map

from aotc.aot.capture.aten_signature import Given, Made
from aotc.aot.capture.sizes import Sizes
from aotc.aot.dynamo import calling, compiling, devices, graphs, programs, recipe
from aotc.aot.dynamo.errors import CaptureRefused
from aotc.aot.dynamo.options import read_options
from aotc.aot.ir.text import print_graph
from aotc.cache import Key
from aotc.runtime.drivers.cuda.errors import DeviceMemoryFull

pytestmark = pytest.mark.torch
NO_SIZES = Sizes({}, (), ())
DEVICE = torch.device("cuda:1")


class Stop(Exception):
    """A graph of ours is called, for which there is no device."""


class Seen:
    """What the back end was given and made: options, graphs, and the ordinals of the calls."""

    def __init__(self):
        self.options, self.graphs, self.ordinals = [], [], []

    def program_of(self, key, graph, sizes, options, blocks=()):
        self.options.append(options)
        self.graphs.append(graph)
        return SimpleNamespace(outputs=[None] * len(graph.returned))

    def call(self, interface, program, ordinal=None):
        self.ordinals.append(ordinal)

        def stop(arguments):
            raise Stop

        return stop


def moved(value):
    if not isinstance(value, FakeTensor) or value.dtype == torch.uint8:
        return value  # states of generators are on the CPU
    layout = value.shape, value.stride()
    meta = torch.empty_strided(*layout, dtype=value.dtype, device="meta")
    return FakeTensor(value.fake_mode, meta, DEVICE)


@pytest.fixture
def seen(fresh, monkeypatch):
    """Every graph is said to be on the device; nothing is compiled or run."""
    found, compiled = Seen(), graphs.compile_graph

    def compile_graph(module, examples, options, *ends):
        for node in module.graph.nodes:
            if node.target is torch.ops.aten.sin.default:  # stands for an op on the CPU
                continue
            node.meta["val"] = tree_map(moved, node.meta.get("val"))
        return compiled(module, [moved(each) for each in examples], options, *ends)

    monkeypatch.setattr(graphs, "compile_graph", compile_graph)
    monkeypatch.setattr(graphs, "program_of", found.program_of)
    monkeypatch.setattr(graphs, "Call", found.call)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda ordinal: (9, 0))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return found


def run(function, *arguments, **options):
    compiled = torch.compile(function, backend="aotc", options={"fallback": "eager", **options})
    with pytest.raises(Stop):
        compiled(*arguments)


def test_forward_and_backward_are_compiled_for_the_device_of_their_tensors(seen):
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
    run(module.bfloat16(), torch.randn(4, 8, dtype=torch.bfloat16), fallback="error")
    assert [(each.target, each.ordinal) for each in seen.options] == [("cuda-sm_90", 1)] * 2
    assert seen.ordinals == [1, 1]


def test_the_code_is_that_of_the_architecture_and_the_key_of_no_ordinal(seen):
    run(lambda x: torch.softmax(x * 2, -1), torch.randn(8, 64))
    (options,), (graph,) = seen.options, seen.graphs
    files = compiling._compiled_files(graph, NO_SIZES, options, ())
    assert b"\x7fELF" in files[compiling.LIBRARY_NAME]
    keys = [
        compiling.key_of(graph, NO_SIZES, each).digest
        for each in (options, replace(options, ordinal=0), read_options(None))
    ]
    assert keys[0] == keys[1] != keys[2]


class Opened:
    """Stands for a program."""


def test_a_program_is_opened_on_the_device_of_the_graph_once(fresh, monkeypatch):
    asked, key = [], Key.of("programs", graph="text")

    def load(folder, device, **named):
        asked.append(device)
        return Opened()

    monkeypatch.setattr(programs, "load", load)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    options = read_options(None)
    on_device = replace(options, ordinal=1)
    programs.opened("folder", options, key)
    assert programs.cached_program(key, options) is None
    kept = programs.opened("folder", on_device, key)
    assert asked == [None, "cuda:1"]
    assert programs.cached_program(key, on_device) is kept
    assert programs.cached_program(key, replace(options, ordinal=0)) is None
    del kept
    gc.collect()
    assert programs.cached_program(key, on_device) is None


def test_equal_layers_are_one_program(seen):
    """Attention or another op of torch's cuts a model; what lies between is the same each time."""

    def layers(x, *weights):
        for weight in weights:
            x = torch.linalg.qr(x @ weight + 1).Q
        return x

    compiled = torch.compile(layers, backend="aotc", options={"fallback": "eager"})
    graphs.Call = lambda *given: lambda arguments: [torch.ones(4, 4)]
    compiled(torch.randn(4, 4), *(torch.randn(4, 4) for _ in range(3)))
    texts = [print_graph(each) for each in seen.graphs]
    assert len(texts) == 3
    assert texts[1] == texts[2]  # the first has an argument that lies otherwise


def test_an_op_on_another_device_is_left_by_name(seen, caplog):
    with caplog.at_level(logging.WARNING, "aotc"):
        run(lambda x: (x.sin() + 1).cos() * 2, torch.randn(4))
    assert "a tensor on `cpu` in a graph on `cuda:1`" in caplog.text
    assert len(seen.graphs) == 1  # what follows


def test_checked_indices_are_left_by_name_unless_they_are_taken_as_they_come(seen, caplog):
    weights, places = torch.randn(10, 4), torch.tensor([1, 2])
    given = lambda table, at: torch.nn.functional.embedding(at, table) * 2  # noqa: E731
    with caplog.at_level(logging.WARNING, "aotc"):
        run(given, weights, places)
    assert "`aten.embedding.default`" in caplog.text
    assert "one call late" in caplog.text
    torch._dynamo.reset()
    caplog.clear()
    run(given, weights, places, unchecked_indices=True, fallback="error")
    assert not seen.graphs[-1].checks


def test_products_of_f32_have_the_precision_of_torchs_switch(seen, monkeypatch):
    """The code multiplies in TF32, and its key differs; what is f16 is the same either way."""
    keys, sources = [], []
    for precision in ("highest", "high"):
        torch._dynamo.reset()
        torch.set_float32_matmul_precision(precision)
        try:
            run(lambda x: x @ x + 1, torch.randn(64, 64), fallback="error")
        finally:
            torch.set_float32_matmul_precision("highest")
        options, graph = seen.options[-1], seen.graphs[-1]
        keys.append(compiling.key_of(graph, NO_SIZES, options).digest)
        sources.append(options.dot_precision)
    assert sources == ["ieee", "tf32"]
    assert keys[0] != keys[1]
    dumped = compiled_source(seen.graphs[-1], seen.options[-1], monkeypatch)
    assert 'input_precision="tf32"' in dumped
    assert 'input_precision="tf32x3"' in compiled_source(
        seen.graphs[0], seen.options[0], monkeypatch
    )


def compiled_source(graph, options, monkeypatch):
    """The sources of a graph's kernels, one after the other."""
    found, compile_for = [], compiling.compile_for

    def noted(*given, **named):
        made = compile_for(*given, **named)
        found.append(made)
        return made

    monkeypatch.setattr(compiling, "compile_for", noted)
    compiling._compiled_files(graph, NO_SIZES, options, ())
    return str(found[-1].sources)


@pytest.mark.parametrize(
    ("of_products", "of_convolutions", "is_left"),
    [("ieee", "ieee", False), ("ieee", "tf32", True), ("tf32", "ieee", True)],
)
def test_convolutions_of_f32_are_left_where_a_switch_asks_for_tf32(
    of_products, of_convolutions, is_left, seen, monkeypatch, caplog
):
    asked = {False: of_products, True: of_convolutions}
    monkeypatch.setattr(
        devices, "uses_tf32", lambda is_convolution: asked[is_convolution] == "tf32"
    )
    given = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3)
    with caplog.at_level(logging.WARNING, "aotc"):
        run(lambda x, w: torch.nn.functional.conv2d(x, w).exp(), *given)
    assert is_left == ("where torch's switches ask for TF32" in caplog.text)


def test_random_numbers_are_drawn_ahead_by_the_generator_of_the_device(seen, monkeypatch):
    found, split = [], graphs.split

    def noted(module, examples, sizes):
        found.append(split(module, examples, sizes))
        return found[-1]

    monkeypatch.setattr(graphs, "split", noted)
    monkeypatch.setattr(recipe.RandomStep, "opened", lambda step: lambda arguments: [])
    run(lambda x: torch.rand_like(x) + x.cos() * x.uniform_(), torch.randn(4, 6), fallback="error")
    ((first, second),) = [each.drawn.draws for each in found]
    assert [first.operator, second.operator] == ["rand_like.default", "uniform.default"]
    for each in (first, second):
        assert each.ordinal == 1
        assert each.args[0] == recipe.Blank((4, 6), (6, 1), torch.float32, 1)


def test_a_checkpoint_hands_on_the_state_of_the_devices_generator(seen, monkeypatch):
    found, split = [], graphs.split

    def noted(module, examples, sizes):
        found.append(split(module, examples, sizes))
        return found[-1]

    def inner(x):
        return torch.nn.functional.dropout(torch.tanh(x), 0.5)

    monkeypatch.setattr(graphs, "split", noted)
    monkeypatch.setattr(recipe.RandomStep, "opened", lambda step: lambda arguments: [])
    run(
        lambda x: torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False).exp(),
        torch.randn(4, 6, requires_grad=True),
        fallback="error",
    )
    (first,), (second,) = [each.drawn.draws for each in found]
    assert first.saves_state
    assert second.state is not None
    assert first.ordinal == second.ordinal == 1


def test_memory_that_a_draw_takes_its_layout_from_begins_as_far_behind_an_aligned_address():
    blank = recipe.Blank((3, 4), (4, 1), torch.bfloat16, offset=5)
    made = blank.made(lambda number: number)
    assert made.shape == (3, 4)
    assert made.storage_offset() == 5


def test_arguments_that_kernels_cannot_read_in_vectors_are_copied():
    whole = torch.arange(40.0)
    assert not whole.data_ptr() % calling.ALIGNMENT_BYTES
    given = [whole, whole[4:], whole[1:]]
    ready = list(map(calling._aligned, given))
    assert [one is other for one, other in zip(given, ready, strict=True)] == [True, True, False]
    assert not ready[2].data_ptr() % calling.ALIGNMENT_BYTES
    assert torch.equal(ready[2], given[2])


def test_a_first_call_inside_of_a_capture_is_refused(seen, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    compiled = torch.compile(lambda x: x + 1, backend="aotc")
    with pytest.raises(Exception, match="inside of a capture"):
        compiled(torch.ones(2))
    assert not seen.graphs


@pytest.fixture
def recorded(monkeypatch):
    """A call of a program for `cuda:0` while the stream is recorded, and what was asked for."""
    asked = []

    def record_at(addresses, take, shapes):
        asked.append((list(addresses), take(96)))

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(calling, "device_at", lambda ordinal: torch.device("cpu"))
    program = SimpleNamespace(
        record_at=record_at,
        run_at=None,
        inputs=(),
        outputs=(SimpleNamespace(shape=(3,)),),
        dims=(),
    )
    interface = calling.Interface((), (Made((0,), torch.float32),), (Given(0),))
    return calling.Call(interface, program, 0), asked, program


def test_a_call_inside_of_a_capture_is_recorded_on_memory_of_torchs(recorded, monkeypatch):
    kept: dict = {}
    monkeypatch.setattr(calling, "_RECORDED", kept)
    call, asked, program = recorded
    (result,) = call([])
    ((addresses, between),) = asked
    assert addresses == [result.data_ptr()]
    assert between
    assert list(kept.values()) == [program]


def test_no_program_is_loaded_inside_of_a_capture(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(CaptureRefused, match="compiled inside of a capture"):
        programs.opened(
            "folder", replace(read_options(None), ordinal=0), Key.of("programs", graph="")
        )


def test_a_full_device_is_asked_again_once_torch_has_given_back_what_it_keeps(monkeypatch):
    calls, freed = [], []

    def run_at(addresses):
        calls.append(addresses)
        if len(calls) == 1:
            raise DeviceMemoryFull(
                purpose="an arena", needed_text="2", ordinal=0, free_text="1", total_text="1"
            )

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(len(calls)))
    spec = SimpleNamespace(shape=(3,))
    program = SimpleNamespace(run_at=run_at, inputs=(), outputs=(spec,), dims=())
    interface = calling.Interface((), (Made((0,), torch.float32),), (Given(0),))
    assert calling.Call(interface, program)([])[0].shape == (3,)
    assert len(calls) == 2
    assert freed == [1]


class Block(torch.nn.Module):
    """Heads that are parts of one product, for an op of torch's, and kept for the gradients."""

    def __init__(self):
        super().__init__()
        self.mixed = torch.nn.Linear(64, 192)

    def forward(self, x):
        parts = self.mixed(x).chunk(3, -1)
        heads = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in parts)
        return sum((torch.linalg.qr(head).Q * head).sum() for head in heads)


def test_heads_lie_as_traced_but_for_the_gaps_between_them(seen, monkeypatch):
    """torch's attention gives gradients that lie like its arguments, and those lie as traced."""
    found = []
    monkeypatch.setattr(graphs, "Call", lambda interface, *rest: found.append(interface))
    with pytest.raises(TypeError):  # nothing is there to be called
        torch.compile(Block(), backend="aotc", options={"fallback": "eager"})(
            torch.randn(2, 32, 64, requires_grad=True)
        )
    heads = [row.order for row in found[0].made if len(row.order) == 4]
    assert heads == [(0, 2, 1, 3)] * 3
