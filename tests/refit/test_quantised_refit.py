"""Float weights given to bundles that store them quantised by `--quantize`."""

import json

import pytest
import torch
from safetensors.torch import save_file

from aotc import aot, runtime
from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import build
from aotc.runtime.errors import AdapterMismatch

SPEC = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(40, 64)
        self.up, self.down = nn.Linear(64, 96), nn.Linear(96, 64, bias=False)
        self.norm = nn.LayerNorm(64)

    def forward(self, ids):
        x = self.tokens(ids)
        return self.norm(x + self.down(torch.relu(self.up(x))))

torch.manual_seed({seed})
model = Model().eval()
example_inputs = (torch.arange(8).reshape(2, 4),)
"""
KINDS = ("int8", "int4", "fp8")


@pytest.fixture(scope="module")
def bundles(cache, tmp_path_factory):
    """(kind, seed of the weights) → folder."""
    folder, made = tmp_path_factory.mktemp("quantised"), {}
    for kind in KINDS:
        for seed in (0, 1):
            path = folder / f"{kind}{seed}.py"
            path.write_text(SPEC.format(seed=seed))
            made[kind, seed] = folder / f"out-{kind}{seed}"
            options = BuildOptions(cache, quantize=kind, adapters=True)
            build(str(path), made[kind, seed], ["cpu-x86-64-v3"], options)
    return made


def state(seed):
    names = {}
    exec(SPEC.format(seed=seed), names)
    return dict(names["model"].state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_the_tensors_are_those_of_a_fresh_build(bundles, kind, tmp_path):
    program, fresh = runtime.load(bundles[kind, 0]), runtime.load(bundles[kind, 1])
    save_file(state(1), tmp_path / "new.safetensors")
    x = torch.arange(8).reshape(2, 4) + 3
    before = program(x)
    program.load_weights(tmp_path / "new.safetensors")
    assert torch.equal(program(x), fresh(x))
    spans = program._loaded.spans.keys() & fresh._loaded.spans.keys()
    assert spans == program._loaded.spans.keys()
    assert stored(program) == stored(fresh)
    program.reset_weights()
    assert torch.equal(program(x), before)


def stored(program):
    import ctypes

    return {name: ctypes.string_at(*span) for name, span in program._loaded.spans.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_of_quantised_weights_are_refused_by_name(bundles, kind, tmp_path):
    program = runtime.load(bundles[kind, 0])
    x = torch.arange(8).reshape(2, 4)
    before = program(x)
    config = {"peft_type": "LORA", "lora_alpha": 8, "r": 2}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    tensors = {
        "base_model.model.up.lora_A.weight": torch.randn(2, 64),
        "base_model.model.up.lora_B.weight": torch.randn(96, 2),
    }
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    with pytest.raises(AdapterMismatch, match=r"quantised or folded.*load_weights") as raised:
        program.apply_lora(tmp_path)
    assert raised.value.names == ["up.weight"]
    assert torch.equal(program(x), before)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_not_finite_are_those_of_the_quantised_model(kind, cache, tmp_path):
    model, x = torch.nn.Linear(128, 8).eval(), torch.randn(2, 128)
    with torch.no_grad():
        model.weight[3, 4], model.weight[5, 70] = torch.nan, torch.inf
        options = {"quantize": kind, "cache_dir": str(cache), "targets": "cpu-x86-64-v3"}
        with pytest.warns(UserWarning, match="not finite"):
            report = aot.build(model, (x,), tmp_path / "bundle", **options)
        assert 0 < report.quantized["output_error"] < 1
        with runtime.load(tmp_path / "bundle") as program:
            assert program(x).isnan().all(0).tolist() == [row in (3, 5) for row in range(8)]


class OfFloats(torch.nn.Module):
    """A layer whose weight is of 8-bit floats, as torchao's are."""

    def __init__(self, dtype):
        super().__init__()
        self.register_buffer("codes", torch.randn(48, 64).to(dtype))
        self.register_buffer("scale", torch.rand(48, 1) + 0.5)

    def forward(self, x):
        return x @ (self.codes.to(x.dtype) * self.scale).t()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_weights_of_8_bit_floats_come_by_files_and_arrays(cache, tmp_path, dtype):
    x, made = torch.randn(3, 64), {}
    old, new = OfFloats(dtype).eval(), OfFloats(dtype).eval()
    for has_weights in (True, False):
        made[has_weights] = tmp_path / str(has_weights)
        given = {"has_weights": has_weights, "cache_dir": str(cache)}
        aot.build(old, (x,), made[has_weights], targets="cpu-x86-64-v3", **given)
    save_file(new.state_dict(), tmp_path / "new.safetensors")
    with runtime.load(made[True]) as program:
        before = program(x)
        program.load_weights(tmp_path / "new.safetensors")
        after = program(x)
        torch.testing.assert_close(after, new(x))
        program.load_weights(old.state_dict())
        assert torch.equal(program(x), before)
    with runtime.load(made[False], weights=old.state_dict()) as program:
        assert torch.equal(program(x), before)
        program.load_weights(new.state_dict())
        assert torch.equal(program(x), after)
