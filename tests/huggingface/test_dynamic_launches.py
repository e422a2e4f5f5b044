"""Models of transformers with a dynamic batch and length: no more launches than of known sizes.

What torch.export makes of positions and masks is folded where sizes are known; where they are not,
it has to come to the same.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
transformers = pytest.importorskip("transformers")

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite  # noqa: E402
from aotc.aot.schedule import schedule  # noqa: E402
from aotc.aot.targets.cuda.machines import GPUS  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.triton]
SIZES = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 140,
}  # fmt: skip
DECODER = {**SIZES, "num_key_value_heads": 2, "use_cache": False}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}
T5 = {"vocab_size": 512, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
# Name → (class, class of its config, fields, launches more than of known sizes).
MODELS = {
    "bert": ("BertModel", "BertConfig", SIZES, 0),
    "roberta": ("RobertaModel", "RobertaConfig", SIZES, 1),  # a running sum
    "electra": ("ElectraModel", "ElectraConfig", {**SIZES, "embedding_size": 32}, 0),
    "modernbert": ("ModernBertModel", "ModernBertConfig", {**SIZES, "pad_token_id": 0}, 0),
    "llama": ("LlamaModel", "LlamaConfig", DECODER, 0),
    "mistral": ("MistralModel", "MistralConfig", {**DECODER, "sliding_window": 8}, 0),
    "olmo2": ("Olmo2Model", "Olmo2Config", DECODER, 0),
    "t5": ("T5EncoderModel", "T5Config", T5, 1),  # distances of positions
    "qwen3_moe": ("Qwen3MoeModel", "Qwen3MoeConfig", {**DECODER, **EXPERTS}, 14),  # 7 a sort
}
BY_DAY = ("bert", "llama", "qwen3_moe")


class First(torch.nn.Module):
    """A model without its cache, and its first result."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state


def launches(model, dims):
    ids = torch.randint(5, 500, (2, 24), generator=torch.Generator().manual_seed(0))
    given = (ids, torch.ones_like(ids))
    spec = spec_of(model, given, dynamic_shapes=None if dims is None else (dims, dims))
    graph, _ = rewrite(capture(spec).graph, GPUS[90])
    return len(schedule(graph, GPUS[90]).groups)


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in BY_DAY else pytest.mark.nightly) for each in MODELS],
)
def test_launches_are_those_of_known_sizes(name):
    model_class, config_class, fields, more = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, config_class)(**fields)
    model = First(getattr(transformers, model_class)(config)).eval()
    dims = {0: torch.export.Dim("batch", max=16), 1: torch.export.Dim("tokens", min=2, max=96)}
    assert launches(model, dims) <= launches(model, None) + more
