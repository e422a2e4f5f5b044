"""What of shared memory is refused, and transformers' recipe for decoders with a static cache."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.errors import OpsUnsupported, StateUnsupported  # noqa: E402
from aotc.runtime import load  # noqa: E402

pytestmark = pytest.mark.torch
X = torch.arange(4.0)


class Held(torch.nn.Module):
    """A ring buffer, its counter, and what a call does to them."""

    def __init__(self, call):
        super().__init__()
        self.register_buffer("ring", torch.zeros(6, 4))
        self.register_buffer("count", torch.tensor(0))
        self.words = self.ring.view(torch.int32)
        self.call = call

    def forward(self, x):
        return self.call(self, x)


def lost(self, x):
    self.ring[self.count % 6].add_(x)
    return self.ring.sum(0)


def stale(self, x):
    row = self.ring[self.count % 6]
    self.ring.add_(x)
    return row * 2


def reinterpreted(self, x):
    self.ring.add_(x)
    return self.words.sum()


REFUSED = {
    lost: (OpsUnsupported, r"test_shared.py:\d+ in lost: a view at a place"),
    stale: (OpsUnsupported, r"test_shared.py:\d+ in stale: .* clone it first"),
    reinterpreted: (StateUnsupported, "other element types that see the same memory"),
}


@pytest.mark.parametrize("call", REFUSED, ids=lambda call: call.__name__)
def test_writes_that_would_be_lost_are_refused(call):
    error, words = REFUSED[call]
    with pytest.raises(error, match=words):
        capture(spec_of(Held(call), (X,)))


class Typed(torch.nn.Module):
    """Refuses the fake tensors of tracing; Dynamo reads its check as true."""

    def forward(self, x):
        if type(x) is not torch.Tensor:
            raise TypeError("expected a tensor")
        return x * 2


def test_what_only_strict_export_takes_is_built_and_said(tmp_path, cache, capsys):
    from aotc.aot.cli.program import run

    assert capture(spec_of(Typed(), (X,))).is_strict
    spec = tmp_path / "typed.py"
    spec.write_text(
        f"import sys, torch\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_shared import Typed\nmodel, example_inputs = Typed(), (torch.ones(4),)\n"
    )
    line = ["build", spec, "-o", tmp_path / "b", "--cache-dir", cache]
    assert run([str(word) for word in line]) == 0
    assert "strict export" in "".join(capsys.readouterr())


RECIPE = """
import torch
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM
from transformers.integrations.executorch import (
    TorchExportableModuleWithStaticCache,
    convert_and_export_with_cache,
)

torch.manual_seed(0)
sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2)
heads = dict(num_attention_heads=4, num_key_value_heads=2)
decoder = Qwen2ForCausalLM(Qwen2Config(**sizes, **heads, max_position_embeddings=64)).eval()
decoder.generation_config = GenerationConfig(
    use_cache=True,
    cache_implementation="static",
    cache_config={"batch_size": 1, "max_cache_len": 16},
)
model = TorchExportableModuleWithStaticCache(decoder)
example_inputs = {"input_ids": torch.tensor([[1]]), "cache_position": torch.tensor([0])}


def exported():
    return convert_and_export_with_cache(decoder)


def build_exported():
    return exported()
"""


@pytest.mark.parametrize("name", ["model", "build_exported"])
def test_the_recipe_of_transformers_follows_eager(name, tmp_path, cache):
    pytest.importorskip("transformers.integrations.executorch")
    from aotc.aot.capture.spec import load_spec
    from aotc.aot.cli.program import run

    spec = tmp_path / "recipe.py"
    spec.write_text(RECIPE)
    line = ["build", f"{spec}:{name}", "-o", tmp_path / "b", "--quiet", "--cache-dir", cache]
    assert run([str(word) for word in line]) == 0
    module = load_spec(f"{spec}:model").module
    with load(tmp_path / "b") as program, torch.no_grad():
        session = program.session()
        for step, token in enumerate((3, 60, 7, 7)):
            place = torch.tensor([step])
            found = session(input_ids=torch.tensor([[token]]), cache_position=place)
            expected = module(input_ids=torch.tensor([[token]]), cache_position=place)
            torch.testing.assert_close(torch.as_tensor(found), expected, rtol=1e-5, atol=1e-5)
        assert {spec.name for spec in program.states} >= {"key_cache_0", "value_cache_1"}
