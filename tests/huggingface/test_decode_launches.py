"""Decode steps on a GPU: how many launches a layer takes, and that they give eager's numbers.

The kernels that a GPU gets are run as native code of the processor.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("transformers")

from architectures import make  # noqa: E402  needs transformers

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import entry_specs  # noqa: E402
from aotc.aot.entry_points import EntryPoint  # noqa: E402
from aotc.aot.huggingface import causal_lm  # noqa: E402
from aotc.aot.ir.reference import interpret  # noqa: E402
from aotc.aot.ir.storage import widen  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite, rewrite_entries  # noqa: E402
from aotc.aot.schedule import schedule  # noqa: E402
from aotc.aot.targets.cuda.machines import GPUS  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "lower"))

from schedule_runner import Job, floats_of, of_form  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.triton]
TRAITS = GPUS[90]
LENGTH = 32
TOLERANCES = {"f32": 2e-4, "bf16": 4e-2}  # of the largest number
# Launches of a step of one sequence and two layers, and whether the product of query, key and value
# stores the turned ones and the rows of the caches: then no norm lies between.
LAUNCHES = {
    "llama": (14, True),  # 5 a layer
    "qwen2": (14, True),
    "mistral": (14, True),
    "phi": (16, True),  # a part of each head is turned
    "gpt_neox": (16, True),  # the same; query, key and value of a head lie together
    "glm": (14, True),  # every second column with the next one
    "qwen3": (22, False),
    "gemma2": (17, True),  # scores are capped in the kernel
    "gemma3": (25, False),
    "gpt_oss": (33, False),  # rows begin with their sinks
}
BY_DAY = ("llama", "phi", "gpt_neox", "qwen3")
NAMES = [
    pytest.param(each, marks=() if each in BY_DAY else pytest.mark.nightly) for each in LAUNCHES
]


@functools.cache
def captured(name, batch, dtype=torch.float32, entry="decode"):
    """A captured entry point of a small model."""
    model, entries = causal_lm(
        make(name).to(dtype), max_length=LENGTH, batch=batch, max_prompt=8, sampling=False
    )
    (spec,) = entry_specs(model, {entry: EntryPoint(**entries[entry])}, name)
    return capture(spec).graph


def scheduled(name, batch):
    return schedule(rewrite(captured(name, batch), TRAITS)[0], TRAITS).groups


def attentions(name, batch, entry):
    graph, _ = rewrite(captured(name, batch, entry=entry), TRAITS)
    return [node for node in graph.nodes() if node.op == "attention"]


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_attention_reads_the_keys_that_are_there(name):
    """Decode counts them by positions, prefill of any length has as many as rows."""
    for node in attentions(name, 2, "decode"):
        (ends,) = node.inputs[3:]
        assert ends.type.kind == "int"
        assert bool(node.attr("window")) == (name == "mistral")
    for node in attentions(name, 2, "prefill"):
        assert len(node.inputs) == 3
        assert node.attr("causal")


@pytest.mark.parametrize("name", NAMES)
def test_launches_of_a_step(name):
    count, is_one = LAUNCHES[name]
    groups = scheduled(name, 1)
    assert len(groups) == count
    writers = [group for group in groups if group.updates]
    assert len(writers) == 2
    assert all((group.kind == "matmul") == is_one for group in writers)


@pytest.mark.parametrize(("batch", "is_one"), [(4, True), (16, True), (17, False)])
def test_tiles_of_many_rows_are_stored_by_themselves(batch, is_one):
    writers = [group for group in scheduled("llama", batch) if group.updates]
    assert all((group.kind == "matmul") == is_one for group in writers)


def test_both_entries_read_the_same_weights():
    """Which columns of a product meet is an index of its kernel, and no other order of weights."""
    model, entries = causal_lm(make("llama"), max_length=LENGTH, max_prompt=8, sampling=False)
    points = {name: EntryPoint(**each) for name, each in entries.items()}
    graphs = [capture(each).graph for each in entry_specs(model, points, "llama")]
    read = []
    for rows in rewrite_entries(graphs, {"cuda": TRAITS}):
        groups = schedule(rows["cuda"][0], TRAITS).groups
        nodes = {node for group in groups for node in group.reads if node.op == "constant"}
        matrices = [node for node in nodes if len(node.shape) == 2 and 1 not in node.shape]
        read.append({node.attr("name") for node in matrices})
    assert len(read[0]) > 8
    assert read[0] == read[1]


def arrays_of(graph, seed):
    """Tokens, positions of every sequence, and caches that hold something everywhere."""
    random, found = numpy.random.default_rng(seed), []
    for node in graph.inputs:
        if node.attr("name") in ("ids", "positions"):
            found.append(random.integers(0, LENGTH, node.shape))
            continue
        found.append(floats_of(node, random))
    return found


def _marks(name, batch, dtype):
    """By day all forms of one architecture, and of the others one row, in f32."""
    is_one = batch == 1 and dtype == torch.float32
    is_by_day = name in BY_DAY and (name == "llama" or is_one)
    return () if is_by_day else pytest.mark.nightly


CASES = [
    pytest.param(name, batch, dtype, form, marks=_marks(name, batch, dtype))
    for name in LAUNCHES
    for batch, dtype, form in (
        (1, torch.float32, "gemv"),
        (1, torch.bfloat16, "gemv"),
        (3, torch.bfloat16, "swapped"),
        (8, torch.float32, "plain_"),
    )
]


@pytest.mark.parametrize(("name", "batch", "dtype", "form"), CASES)
def test_a_step_and_its_caches_are_eager_s(name, batch, dtype, form, tmp_path):
    graph = captured(name, batch, dtype)
    job, runs = Job(), []
    for seed in range(2):  # other positions
        arrays = arrays_of(graph, seed)
        made = rewrite(graph, TRAITS)[0]
        runs.append((job.add(made, arrays, of_form(form), TRAITS), interpret(graph, arrays)))
    buffers = job.run(tmp_path, "native", 2)
    assert not job.errors
    for names, expected in runs:
        rows = zip(graph.outputs, names, expected, strict=False)  # without the data's checks
        for node, (stored, _), wanted in rows:
            if node.dtype not in TOLERANCES:  # tokens: rounding may decide
                continue
            found = widen(buffers[stored], node.dtype).reshape(wanted.shape)
            wanted = widen(wanted, node.dtype)
            limit = TOLERANCES[node.dtype] * numpy.abs(wanted).max()
            numpy.testing.assert_allclose(found, wanted, rtol=0, atol=limit)
