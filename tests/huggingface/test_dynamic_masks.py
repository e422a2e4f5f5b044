"""Decoders of dynamic batch and length, exported as they are: their masks are causal, or windows.

transformers makes them of positions by look-ups, and asks these whether a row holds several texts.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("transformers")

from architectures import make  # noqa: E402  needs transformers

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite  # noqa: E402
from aotc.aot.targets.cuda.machines import GPUS  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.triton]
WINDOWS = {"mistral": [6, 6], "mixtral": [6, 6], "gemma3": [6, 0]}  # of each layer; else none
BY_DAY = ("llama", "gemma3")
NAMES = ("llama", "qwen2", "qwen3", "mistral", "gemma3", "phi", "gpt2", "gpt_neox", "glm",
         "mixtral", "qwen2_moe")  # fmt: skip


class Logits(torch.nn.Module):
    """A decoder without its cache."""

    def __init__(self, name):
        super().__init__()
        self.decoder = make(name)

    def forward(self, ids):
        return self.decoder(ids, use_cache=False).logits


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in BY_DAY else pytest.mark.nightly) for each in NAMES],
)
def test_no_mask_is_left(name):
    batch, tokens = torch.export.Dim("batch", max=16), torch.export.Dim("tokens", min=2, max=60)
    ids, dims = torch.randint(0, 90, (2, 24)), {0: batch, 1: tokens}
    spec = spec_of(Logits(name).eval(), (ids,), dynamic_shapes=(dims,))
    graph, _ = rewrite(capture(spec).graph, GPUS[90])
    attentions = [node for node in graph.nodes() if node.op == "attention"]
    assert all(len(node.inputs) == 3 and node.attr("causal") for node in attentions)
    assert [node.attr("window") for node in attentions] == WINDOWS.get(name, [0, 0])
