"""`backend="aotc_rewrite"` on models of a public library: what is found, and its numbers."""

from __future__ import annotations

import pytest
import torch

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("forgetful")]
SMALL = {"hidden_size": 32, "num_attention_heads": 4, "vocab_size": 64}
WIDE = {**SMALL, "intermediate_size": 64, "num_hidden_layers": 2, "num_key_value_heads": 2}


def gpt2(transformers):
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=4, vocab_size=64, n_positions=32, bos_token_id=0,
        eos_token_id=0, attn_implementation="eager", attn_pdrop=0.0, embd_pdrop=0.0,
        resid_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def llama(transformers):
    config = transformers.LlamaConfig(**WIDE, attn_implementation="eager")
    return transformers.LlamaForCausalLM(config)


def gemma(transformers):
    config = transformers.GemmaConfig(**WIDE, head_dim=8, attn_implementation="eager")
    return transformers.GemmaForCausalLM(config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (gpt2, {"GELU": 2, "attention": 2}),
        (llama, {"RMSNorm": 5, "attention": 2}),
        (gemma, {"RMSNorm": 5, "attention": 2}),
    ],
    ids=["gpt2", "llama", "gemma"],
)
def test_models_of_a_public_library(make, expected, rewriting):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = make(transformers).eval()
    tokens = torch.randint(0, 64, (2, 12))
    logits = torch.compile(model, backend=rewriting)(tokens, use_cache=False).logits
    reference = model(tokens, use_cache=False).logits
    torch.testing.assert_close(logits, reference, rtol=1e-4, atol=1e-5)
    done = rewriting.done[0]
    assert {name: done.get(name) for name in expected} == expected
    parameters = list(model.parameters())
    weights = torch.linspace(0, 1, logits.numel()).view(logits.shape)
    gradients = [
        torch.autograd.grad((each * weights).sum(), parameters) for each in (logits, reference)
    ]
    for found, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
