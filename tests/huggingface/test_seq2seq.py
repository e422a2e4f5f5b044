"""Encoders with decoders: T5 of several lengths, Whisper, against eager generation.

Each entry point is run eagerly over the others' states; compiled, they are one bundle.
"""

from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
transformers = pytest.importorskip("transformers")

from aotc.aot.huggingface import causal_step, seq2seq  # noqa: E402
from aotc.aot.huggingface.errors import NotCausal, NotSeq2Seq  # noqa: E402
from aotc.runtime import load  # noqa: E402

pytestmark = pytest.mark.torch
COUNT = 8
SOURCES = [[5, 7, 9, 11, 3, 2, 8], [6, 2], [9, 8, 1, 3]]


def t5():
    config = transformers.T5Config(
        vocab_size=61, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=60,
    )  # fmt: skip
    return spread(transformers.T5ForConditionalGeneration(config), 3)


def whisper():
    config = transformers.WhisperConfig(
        vocab_size=61, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8,
        max_source_positions=12, max_target_positions=24, pad_token_id=0, bos_token_id=1,
        eos_token_id=60, decoder_start_token_id=1,
    )  # fmt: skip
    return spread(transformers.WhisperForConditionalGeneration(config), 6)


def spread(model, factor):
    torch.manual_seed(0)
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape) * factor / each.shape[-1] ** 0.5)
    return model.eval()


def greedy(model, ids, count, **source):
    """Eager tokens without any cache, and the two best logits' distances."""
    tokens, margins = list(ids), []
    for _ in range(count):
        with torch.no_grad():
            found = model(decoder_input_ids=torch.tensor([tokens]), use_cache=False, **source)
        best = found.logits[0, -1].topk(2)
        margins.append(float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
    assert min(margins) > 1e-4
    return tokens[len(ids) :]


def continued(model, entries, prompts):
    """What `prefill` and `decode` give after `encode`."""
    longest = max(map(len, prompts))
    lengths = torch.tensor([len(each) for each in prompts])
    ids = torch.tensor([each + [0] * (longest - len(each)) for each in prompts])
    prefill, decode = (entries[name]["function"] for name in ("prefill", "decode"))
    tokens = [prefill(model, ids, lengths, torch.arange(len(prompts)))["tokens"]]
    for step in range(COUNT - 1):
        tokens.append(decode(model, tokens[-1], lengths + step)["tokens"])
    return torch.stack(tokens, 1).tolist()


def test_t5_follows_eager():
    model = t5()
    prompts = [[0], [0, 4, 9], [0, 7]]
    expected = [
        greedy(model, prompt, COUNT, input_ids=torch.tensor([source]))
        for source, prompt in zip(SOURCES, prompts, strict=True)
    ]
    model, entries = seq2seq(model, max_length=16, max_source=10, batch=3)
    ids = torch.tensor([each + [0] * (7 - len(each)) for each in SOURCES])
    lengths = torch.tensor([len(each) for each in SOURCES])
    with torch.no_grad():
        entries["encode"]["function"](model, ids, lengths, torch.arange(3))
        assert continued(model, entries, prompts) == expected
        for name in ("encode", "prefill"):
            with pytest.raises(RuntimeError, match="two rows of a call have the same slot"):
                entries[name]["function"](model, ids, lengths, torch.tensor([2, 0, 2]))


def test_whisper_follows_eager():
    model = whisper()
    sounds = torch.randn(2, 8, 24, generator=torch.Generator().manual_seed(2))
    prompts = [[1, 5, 9], [1]]
    expected = [
        greedy(model, prompt, COUNT, input_features=sound[None])
        for sound, prompt in zip(sounds, prompts, strict=True)
    ]
    model, entries = seq2seq(model, max_length=16, batch=2)
    with torch.no_grad():
        encode = entries["encode"]["function"]
        for slot in (1, 0):  # one after the other
            encode(model, sounds[slot : slot + 1], torch.tensor([slot]))
        assert continued(model, entries, prompts) == expected


def test_other_models_are_refused():
    llama = transformers.LlamaConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=9
    )
    with pytest.raises(NotSeq2Seq):
        seq2seq(transformers.LlamaForCausalLM(llama), max_length=8, max_source=8)
    with pytest.raises(NotCausal, match="it has an encoder"):
        causal_step(t5(), max_length=8)


SPEC = """
import sys
sys.path.insert(0, {folder!r})
from test_seq2seq import {make}
from aotc.aot.huggingface import seq2seq

model, entry_points = seq2seq({make}(), max_length=16, max_source=10, batch=2)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("make", ["t5", "whisper"])
def test_three_entry_points_of_one_bundle_follow_eager(make, tmp_path, cache, aotc):
    """What `encode` and `prefill` keep is what `decode` reads; one source after the other."""
    spec = tmp_path / "spec.py"
    spec.write_text(SPEC.format(folder=str(Path(__file__).parent), make=make))
    code, _, errors = aotc("build", spec, "-o", tmp_path / "b", "--quiet", "--cache-dir", cache)
    assert code == 0, errors
    model = globals()[make]()
    prompts = [[0], [0, 7]] if make == "t5" else [[1, 5, 9], [1]]
    if make == "t5":
        given = [{"input_ids": torch.tensor([source])} for source in SOURCES[:2]]
    else:
        sounds = torch.randn(2, 8, 24, generator=torch.Generator().manual_seed(2))
        given = [{"input_features": sound[None]} for sound in sounds]
    pairs = zip(given, prompts, strict=True)
    expected = [greedy(model, prompt, COUNT, **source) for source, prompt in pairs]
    with load(tmp_path / "b") as program, program.session() as session:
        for slot in (1, 0):
            (source,) = given[slot].values()
            slots = numpy.array([slot])
            if make == "t5":
                session.encode(source.numpy(), numpy.array([source.shape[1]]), slots)
            else:
                session.encode(source.numpy(), slots)
        lengths = numpy.array([len(each) for each in prompts])
        ids = numpy.array([each + [0] * (max(lengths) - len(each)) for each in prompts])
        tokens = numpy.array(session.prefill(ids, lengths, numpy.arange(2))["tokens"])
        rows = [tokens.tolist()]
        for step in range(COUNT - 1):
            tokens = numpy.array(session.decode(tokens, lengths + step)["tokens"])
            rows.append(tokens.tolist())
    assert [list(each) for each in zip(*rows, strict=True)] == expected
