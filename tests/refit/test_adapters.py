"""LoRA adapters added to the weights of a loaded program."""

import json

import pytest
import torch
from refit_models import Everything, fill
from safetensors.torch import load_file, save_file

from aotc import aot, runtime
from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import build
from aotc.runtime.errors import AdapterMismatch, WeightsNotReplaceable

SPEC = """
import sys
sys.path.insert(0, {folder!r})
from refit_models import *
model = fill(Everything(), "random", 1).eval()
example_inputs = (torch.arange(12).reshape(2, 6),)
"""
X = torch.arange(12).reshape(2, 6)


@pytest.fixture(scope="module")
def bundle(cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    path = folder / "model.py"
    path.write_text(SPEC.format(folder=__file__.rpartition("/")[0]))
    build(str(path), folder / "out", ["cpu-x86-64-v3"], BuildOptions(cache, adapters=True))
    return folder / "out"


def adapter(folder, modules, dtype=torch.float32, rank=4, **config):
    """An adapter's folder, and the weights of the model with it."""
    folder.mkdir()
    tensors, state = {}, dict(fill(Everything(), "random", 1).state_dict())
    factor = 8.0 / rank
    for name in modules:
        rows, inner = state[f"{name}.weight"].shape
        a, b = torch.randn(rank, inner).to(dtype), torch.randn(rows, rank).to(dtype)
        change = factor * (b.float() @ a.float())
        new = state[f"{name}.weight"] + change
        state[f"{name}.weight"] = new
        tensors[f"base_model.model.{name}.lora_A.weight"] = a
        tensors[f"base_model.model.{name}.lora_B.weight"] = b
    config = {"peft_type": "LORA", "lora_alpha": 8, "r": rank, "lora_dropout": 0.1, **config}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder, state


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_an_adapter_is_added_to_its_modules(bundle, tmp_path, dtype):
    folder, state = adapter(tmp_path / "one", ("q", "v", "out"), dtype)
    program, merged = runtime.load(bundle), runtime.load(bundle)
    before = program(X)
    program.apply_lora(folder)
    merged.load_weights(state)
    expected = merged(X)
    assert (program(X) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert not torch.allclose(before, expected)
    program.reset_weights()
    assert torch.equal(program(X), before)
    program.apply_lora(folder, scale=0.0)
    assert torch.equal(program(X), before)


def test_weights_of_f64_are_adapted(cache, tmp_path):
    model = fill(Everything(), "random", 1).double().eval()
    options = {"adapters": True, "cache_dir": str(cache)}
    aot.build(model, (X,), tmp_path / "bundle", targets="cpu-x86-64-v3", **options)
    folder, _ = adapter(tmp_path / "one", ("q", "out"))
    tensors = load_file(folder / "adapter_model.safetensors")
    for name in ("q", "out"):
        a, b = (tensors[f"base_model.model.{name}.lora_{each}.weight"] for each in "AB")
        with torch.no_grad():
            model.get_submodule(name).weight += 2.0 * (b.double() @ a.double())
    with runtime.load(tmp_path / "bundle") as program, torch.no_grad():
        program.apply_lora(folder)
        expected = model(X)
        assert (program(X) - expected).abs().max() <= 1e-6 * expected.abs().max()


def test_adapters_add_up_on_weights_that_were_loaded(bundle, tmp_path):
    one, state = adapter(tmp_path / "one", ("k", "out"), rank=3)
    program, merged = runtime.load(bundle), runtime.load(bundle)
    program.load_weights(fill(Everything(), "random", 5).state_dict())
    program.apply_lora(one, 0.5)
    program.apply_lora(one, 0.5)
    base = fill(Everything(), "random", 1).state_dict()
    other = fill(Everything(), "random", 5).state_dict()
    merged.load_weights({name: other[name] + (state[name] - base[name]) for name in other
                         if other[name].is_floating_point() and other[name].numel() > 1
                         and "unread" not in name})  # fmt: skip
    expected = merged(X)
    assert (program(X) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_adapters_that_do_not_fit_are_named_and_nothing_changes(bundle, tmp_path):
    program = runtime.load(bundle)
    before = program(X)
    folder, _ = adapter(tmp_path / "good", ("q",))
    for number, (module, shape) in enumerate((("none", (32, 32)), ("q", (32, 33)))):
        other = tmp_path / str(number)
        other.mkdir()
        (other / "adapter_config.json").write_text((folder / "adapter_config.json").read_text())
        tensors = {
            f"base_model.model.{module}.lora_A.weight": torch.ones(4, shape[1]),
            f"base_model.model.{module}.lora_B.weight": torch.ones(shape[0], 4),
        }
        save_file(tensors, other / "adapter_model.safetensors")
        with pytest.raises(AdapterMismatch, match=module):
            program.apply_lora(other)
    for number, config in enumerate(({"use_dora": True}, {"peft_type": "IA3"}, {"bias": "all"})):
        other, _ = adapter(tmp_path / f"config{number}", ("q",), **config)
        with pytest.raises(AdapterMismatch):
            program.apply_lora(other)
    assert torch.equal(program(X), before)


def test_an_adapter_of_a_tied_weight_is_refused(bundle, tmp_path):
    """PEFT adds to the head's product alone; a sum as the weight would change the lookup too."""
    program = runtime.load(bundle)
    before = program(X)
    folder, _ = adapter(tmp_path / "tied", ("q", "head"))
    with pytest.raises(AdapterMismatch, match=r"share.*head\.weight = tokens\.weight"):
        program.apply_lora(folder)
    assert torch.equal(program(X), before)


def test_inspect_says_what_second_layouts_take(bundle):
    from aotc.aot.cli.inspect import inspect_bundle
    from aotc.aot.facts.layouts import more_bytes

    rows = inspect_bundle(bundle)["layouts"]
    twice = {row["parameter"]: row for row in rows}["head.weight"]  # looked up, and multiplied with
    assert twice["bytes"] == 50 * 32 * 4
    assert sorted(each["bytes"] for each in twice["tensors"])[-2:] == [50 * 32 * 4, 64 * 32 * 4]
    assert all(each["read_by"] == ["forward"] for each in twice["tensors"])
    assert more_bytes(rows) >= twice["bytes"]


def test_a_bundle_without_the_option_says_so(bundle, tmp_path, build, spec):
    folder, _ = adapter(tmp_path / "one", ("q",))
    build(tmp_path / "plain")
    with pytest.raises(WeightsNotReplaceable, match="--adapters"):
        runtime.load(tmp_path / "plain").apply_lora(folder)
