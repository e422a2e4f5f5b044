"""A table that lookups read and a product multiplies: stored once, in every form, by all entries.

The cross of `--quantize`, two entry points, tied weights, `--adapters` and `--weights external`.
"""

import json

import numpy
import pytest
import torch
from safetensors.torch import save_file, save_model

from aotc import runtime
from aotc.aot.cli.inspect import inspect_bundle
from aotc.aot.facts.layouts import more_bytes
from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import build
from aotc.runtime.errors import AdapterMismatch

WORDS = 200  # of which the last panel has eight
SPEC = """
import torch
from torch import nn
from torch.export import Dim

from aotc.aot import EntryPoint

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding({words}, 64)
        self.up, self.down = nn.Linear(64, 1024), nn.Linear(1024, 64, bias=False)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, {words}, bias=False)
        self.head.weight = self.tokens.weight

    def hidden(self, ids):
        x = self.tokens(ids)
        return self.norm(x + self.down(torch.relu(self.up(x))))

    def logits(self, ids):
        return self.head(self.hidden(ids))

    def last(self, ids):
        return self.head(self.hidden(ids)[:, -1])

    def embed(self, ids):  # multiplies with no table
        return self.hidden(ids)

torch.manual_seed({seed})
model = Model().eval().to(torch.{dtype})
length = Dim("length", min=1, max=16)
entry_points = {{
    "logits": EntryPoint((torch.arange(8).reshape(2, 4),)),
    "last": EntryPoint((torch.arange(8).reshape(2, 4),), ({{1: length}},)),
    "embed": EntryPoint((torch.arange(8).reshape(2, 4),)),
}}
"""
KINDS = (None, "int8", pytest.param("int4", marks=pytest.mark.nightly), "fp8")
X = torch.tensor([[0, 63, 64, 199], [127, 128, 192, 1]])  # ends of panels, and the last row
PARTS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.fixture(scope="module")
def bundles(cache, tmp_path_factory):
    """(kind, seed, external) → a bundle's folder, built when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("tied"), {}

    def ask(kind, seed, has_weights=True, dtype="float32", skip=()):
        key = (kind, seed, has_weights, dtype, skip)
        if key not in made:
            made[key] = folder / f"{len(made)}"
            path = folder / f"{len(made)}.py"
            path.write_text(SPEC.format(seed=seed, words=WORDS, dtype=dtype))
            options = BuildOptions(
                cache, quantize=kind, adapters=True, has_weights=has_weights, skip=frozenset(skip)
            )
            build(str(path), made[key], ["cpu-x86-64-v3"], options)
        return made[key]

    return ask


def model_of(seed, dtype="float32"):
    names = {}
    exec(SPEC.format(seed=seed, words=WORDS, dtype=dtype), names)
    return names["model"]


def outputs(program, x=X):
    return [numpy.asarray(each(x)) for each in (program.logits, program.last, program.embed)]


def same(left, right):
    return all(map(numpy.array_equal, left, right))


def stored(program):
    import ctypes

    return {name: ctypes.string_at(*span) for name, span in program._loaded.spans.items()}


@pytest.mark.parametrize("dtype", PARTS)
def test_the_table_is_stored_once_and_read_right(bundles, dtype):
    name = str(dtype).removeprefix("torch.")
    once, twice = bundles(None, 0, dtype=name), bundles(None, 0, dtype=name, skip=("tables",))
    assert inspect_bundle(once)["layouts"] == []
    assert [row["parameter"] for row in inspect_bundle(twice)["layouts"]] == ["head.weight"]
    sizes = [(each / "weights.safetensors").stat().st_size for each in (twice, once)]
    assert sizes[0] - sizes[1] >= WORDS * 64 * dtype.itemsize
    model, program = model_of(0, name), runtime.load(once)
    every = torch.arange(WORDS).reshape(-1, 2, 4)
    with torch.no_grad():
        for x in every:
            expected = model.logits(x).double()
            found = program.logits(x).double()
            assert (found - expected).abs().max() <= PARTS[dtype] * expected.abs().max()
            expected, found = model.embed(x).double(), program.embed(x).double()
            assert (found - expected).abs().max() <= PARTS[dtype] * expected.abs().max()


def test_scales_are_no_layout_of_what_they_scale(bundles):
    """Twice are the table's numbers and their scales; once are both of the other weights."""
    rows = inspect_bundle(bundles("int8", 0, skip=("tables",)))["layouts"]
    found = {(row["parameter"], row["part"]): row["tensors"] for row in rows}
    assert set(found) == {("head.weight", "values"), ("head.weight", "scales")}
    values = sorted(each["bytes"] for each in found["head.weight", "values"])
    assert values == [WORDS * 64, 256 * 64]  # whole panels in the product's
    scales = sorted(each["bytes"] for each in found["head.weight", "scales"])
    assert scales == [WORDS * 4, 256 * 4]
    assert more_bytes(rows) == values[0] + scales[0]


@pytest.mark.parametrize("kind", KINDS)
def test_new_weights_are_those_of_a_fresh_build(bundles, kind, tmp_path):
    program, fresh = runtime.load(bundles(kind, 0)), runtime.load(bundles(kind, 1))
    rows = inspect_bundle(bundles(kind, 0))["layouts"]
    of_scales = [("head.weight", "scales")] if kind else []  # a product's, and a lookup's
    assert [(row["parameter"], row["part"]) for row in rows] == of_scales
    before = outputs(program)
    save_model(model_of(1), tmp_path / "new.safetensors")  # one of the tied names
    program.load_weights(tmp_path / "new.safetensors")
    assert stored(program) == stored(fresh)
    assert same(outputs(program), outputs(fresh))
    assert not same(outputs(program), before)
    program.load_weights(dict(model_of(0).state_dict()))  # all names
    assert same(outputs(program), before)
    program.load_weights(tmp_path / "new.safetensors")
    program.reset_weights()
    assert same(outputs(program), before)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_outside_are_those_inside(bundles, kind, tmp_path):
    save_model(model_of(0), tmp_path / "own.safetensors")
    outside = bundles(kind, 0, has_weights=False)
    with runtime.load(outside, weights=tmp_path / "own.safetensors") as program:
        inside = runtime.load(bundles(kind, 0))
        assert stored(program) == stored(inside)
        assert same(outputs(program), outputs(inside))
        save_model(model_of(1), tmp_path / "new.safetensors")
        program.load_weights(tmp_path / "new.safetensors")
        assert same(outputs(program), outputs(runtime.load(bundles(kind, 1))))


def adapter(folder, module, rows, inner):
    folder.mkdir()
    config = {"peft_type": "LORA", "lora_alpha": 4, "r": 2}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    a, b = torch.randn(2, inner), torch.randn(rows, 2)
    name = f"base_model.model.{module}.lora_"
    save_file({f"{name}A.weight": a, f"{name}B.weight": b}, folder / "adapter_model.safetensors")
    return folder, 2.0 * (b @ a)


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_beside_a_tied_table(bundles, kind, tmp_path):
    program = runtime.load(bundles(kind, 0))
    before = outputs(program)
    head, _ = adapter(tmp_path / "head", "head", WORDS, 64)
    with pytest.raises(AdapterMismatch, match="share"):
        program.apply_lora(head)
    up, change = adapter(tmp_path / "up", "up", 1024, 64)
    if kind is not None:
        with pytest.raises(AdapterMismatch, match="stored quantised or folded"):
            program.apply_lora(up)
        assert same(outputs(program), before)
        return
    program.apply_lora(up)
    model = model_of(0)
    with torch.no_grad():
        model.up.weight += change
        expected = model.logits(X)
    found = torch.from_numpy(outputs(program)[0])
    assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    program.reset_weights()
    assert same(outputs(program), before)


def test_two_programs_on_the_same_weights_one_refitted(bundles, tmp_path):
    one, other = runtime.load(bundles(None, 0)), runtime.load(bundles(None, 0))
    before = outputs(other)
    save_model(model_of(1), tmp_path / "new.safetensors")
    one.load_weights(tmp_path / "new.safetensors")
    assert same(outputs(other), before)
    one.close()
    assert same(outputs(other), before)
