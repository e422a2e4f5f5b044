"""Programs of the helper generate what eager transformers generates, token for token.

Tokens are held against eager's for as long as its two best logits differ by more than a tolerance:
after a token that rounding may decide, the texts may part. One small architecture is in the default
suite, as a program in `tests/llm`; the others are marked `nightly`.
"""

import copy

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("transformers")

from architectures import ARCHITECTURES, continued, make  # noqa: E402  needs transformers

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.cli.inspect import inspect_bundle  # noqa: E402
from aotc.aot.huggingface import causal_lm, causal_step  # noqa: E402
from aotc.aot.pipeline import BuildOptions, build  # noqa: E402
from aotc.runtime import load  # noqa: E402
from aotc.runtime.errors import InputError  # noqa: E402
from benchmarks.greedy_tokens import BATCHES, SHARES, compare  # noqa: E402

pytestmark = pytest.mark.torch
TOLERANCE = 1e-3  # of logits
COUNT = 16
PROMPTS = [[5, 7, 9, 11, 3, 2, 8, 1, 4], [6, 2], [9, 9, 8, 1, 3]]
SPEC = """
from architectures import make
from aotc.aot.huggingface import causal_step

model, example_inputs, dynamic_shapes = causal_step(
    make({name!r}), max_length=32, batch=3, max_prompt=12, sampling={sampling}
)
"""
QUANTISED = """
import torch
import transformers
from aotc.aot.huggingface import causal_lm

torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=1,
    num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
)
whole = transformers.LlamaForCausalLM(config).bfloat16().eval()
model, entry_points = causal_lm(whole, max_length=32, sampling=False)
"""


def padded(prompts):
    longest = max(map(len, prompts))
    ids = numpy.array([each + [0] * (longest - len(each)) for each in prompts])
    return ids, numpy.array([len(each) for each in prompts])


def agree(found, expected):
    """Whether tokens are eager's up to the first that rounding may decide."""
    for (tokens, margins), row in zip(expected, found, strict=True):
        sure = next((i for i, each in enumerate(margins) if each <= TOLERANCE), len(margins))
        assert sure > 0
        assert row[:sure] == tokens[:sure]


def others(names):
    nightly = pytest.mark.nightly
    return [pytest.param(each, marks=() if each == "llama" else nightly) for each in names]


@pytest.mark.parametrize("name", others(ARCHITECTURES))
def test_entry_points_run_eagerly_as_the_model_generates(name):
    model = make(name)
    before = model.config._attn_implementation
    expected = continued(model, PROMPTS, COUNT)
    model, entries = causal_lm(model, max_length=32, batch=3, sampling=False)
    ids, lengths = map(torch.tensor, padded(PROMPTS))
    with torch.no_grad():
        prefill, decode = (entries[each]["function"] for each in ("prefill", "decode"))
        tokens = [prefill(model, ids, lengths, torch.arange(3))["tokens"]]
        for step in range(COUNT - 1):
            tokens.append(decode(model, tokens[-1], lengths + step)["tokens"])
    agree(torch.stack(tokens, 1).tolist(), expected)
    assert model.config._attn_implementation == before
    assert continued(model, PROMPTS[1:2], 3) == [(t[:3], m[:3]) for t, m in expected[1:2]]


def test_prompts_and_single_tokens_are_one_program():
    """No number of sequences or tokens is left out."""
    model, example, shapes = causal_step(make("llama"), max_length=32, batch=3, max_prompt=12)
    dims = capture(spec_of(model, example, dynamic_shapes=shapes)).dims
    assert {dim.name: (dim.low, dim.high) for dim in dims} == {"rows": (1, 3), "tokens": (1, 12)}


@pytest.mark.nightly  # by day `tests/llm` holds a small Llama against eager
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_program_generates_what_eager_does(name, tmp_path, cache, aotc):
    """Mixed lengths, begun together, one by one, and in parts."""
    spec = tmp_path / "spec.py"
    spec.write_text(SPEC.format(name=name, sampling=False))
    code, _, errors = aotc("build", spec, "-o", tmp_path / "b", "--quiet", "--cache-dir", cache)
    assert code == 0, errors
    expected = continued(make(name), PROMPTS, COUNT)
    ids, lengths = padded(PROMPTS)
    none, every, one = numpy.zeros(3, "i8"), numpy.arange(3), numpy.ones(1, "i8")
    with load(tmp_path / "b") as program, program.session() as session:
        together = session(ids=ids, starts=none, lengths=lengths, slots=every)["tokens"]
        tokens = numpy.zeros(3, "i8")
        for slot in (2, 0, 1):  # again, each by itself, and the first in two parts
            at, prompt = numpy.array([slot]), numpy.array(PROMPTS[slot : slot + 1])
            first = 4 if slot == 0 else 0
            if first:
                session(ids=prompt[:, :first].copy(), starts=one * 0, lengths=one * first, slots=at)
            rest = prompt[:, first:].copy()
            found = session(ids=rest, starts=one * first, lengths=one * rest.shape[1], slots=at)
            tokens[slot] = numpy.asarray(found["tokens"])[0]
        assert numpy.asarray(together).tolist() == tokens.tolist()
        rows = [tokens.tolist()]
        for step in range(COUNT - 1):
            found = session(
                ids=tokens[:, None].copy(), starts=lengths + step, lengths=none + 1, slots=every
            )
            tokens = numpy.array(found["tokens"])
            rows.append(tokens.tolist())
        agree([list(each) for each in zip(*rows, strict=True)], expected)
        with pytest.raises(InputError, match="tokens"):  # a prompt longer than was asked for
            session(ids=numpy.zeros((1, 13), "i8"), starts=one * 0, lengths=one, slots=one)
        with pytest.raises(InputError, match="rows"):  # more sequences than the cache has
            session(
                ids=numpy.zeros((4, 2), "i8"),
                starts=numpy.zeros(4, "i8"),
                lengths=numpy.ones(4, "i8"),
                slots=numpy.arange(4),
            )


ENTRIES = """
from architectures import make
from aotc.aot.huggingface import causal_lm

model, entry_points = causal_lm(
    make({name!r}), max_length=32, batch=3, max_prompt=12, sampling=False, session_sizes={varied}
)
"""


# Both entry points read one layout of each weight, but for a tied embedding's: of so few features
# that lookups in panels would cost more than they may.
STORED_ONCE = ("gpt2", "llama", "mixtral")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "varied"), [*((name, False) for name in ARCHITECTURES), ("llama", True)]
)
def test_prefill_and_decode_are_entry_points_of_one_bundle(name, varied, tmp_path, cache, aotc):
    """What prefill writes into the cache is what decode reads."""
    spec = tmp_path / "spec.py"
    spec.write_text(ENTRIES.format(name=name, varied=varied))
    code, _, errors = aotc("build", spec, "-o", tmp_path / "b", "--quiet", "--cache-dir", cache)
    assert code == 0, errors
    if name in STORED_ONCE:
        rows = inspect_bundle(tmp_path / "b")["layouts"]
        assert {row["parameter"] for row in rows if row["bytes"] > 1024} <= {"lm_head.weight"}
    expected = continued(make(name), PROMPTS, COUNT)
    ids, lengths = padded(PROMPTS)
    sizes = {"batch": 3, "length": 26} if varied else {}
    with load(tmp_path / "b") as program, program.session(**sizes) as session:
        tokens = numpy.array(session.prefill(ids, lengths, numpy.arange(3))["tokens"])
        rows = [tokens.tolist()]
        for step in range(COUNT - 1):
            tokens = numpy.array(session.decode(tokens, lengths + step)["tokens"])
            rows.append(tokens.tolist())
        agree([list(each) for each in zip(*rows, strict=True)], expected)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", SHARES)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tokens_after_eager_s_own_are_eager_s(name, batch, dtype, tmp_path, cache):
    """256 steps of prompts of mixed lengths; each step follows eager's own tokens."""
    found = compare(name, dtype, batch, tmp_path, cache)
    assert found.total == 256 * batch
    assert found.sure > 0.4 * found.total
    assert found.equal_sure == found.sure


def test_bad_requests_are_typed(tmp_path):
    from aotc.aot.huggingface.errors import (
        DecodeLengthsInvalid,
        FolderInvalid,
        NotCausal,
        SizesInvalid,
        WeightsMissing,
    )

    llama = make("llama")
    with pytest.raises(NotCausal, match="not a model of transformers"):
        causal_lm(torch.nn.Linear(2, 2), max_length=8)
    with pytest.raises(SizesInvalid, match="max_prompt 9"):
        causal_lm(llama, max_length=8, max_prompt=9)
    for lengths, sizes in (((0,), {}), ((8,), {}), ((4, 4), {}), ((4,), {"session_sizes": True})):
        with pytest.raises(DecodeLengthsInvalid, match="from 1 to 7"):
            causal_lm(llama, max_length=8, decode_lengths=lengths, **sizes)
    with pytest.raises(SizesInvalid, match="batch 0"):
        causal_step(llama, max_length=8, batch=0)
    with pytest.raises(SizesInvalid, match="<= 64, the positions that the model learned"):
        causal_lm(make("gpt2"), max_length=65)
    with pytest.raises(FolderInvalid, match=r"`config.json` does not exist"):
        causal_lm(tmp_path, max_length=8)
    llama.config.save_pretrained(tmp_path)
    with pytest.raises(WeightsMissing, match="no file is named"):
        causal_lm(tmp_path, max_length=8)
    llama.save_pretrained(tmp_path)
    loaded, _ = causal_lm(str(tmp_path), max_length=8)
    for name, value in make("llama").state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    partial = copy.deepcopy(llama.state_dict())
    del partial["model.layers.1.mlp.up_proj.weight"]
    llama.save_pretrained(tmp_path, state_dict=partial)
    with pytest.raises(WeightsMissing, match=r"`model.layers.1.mlp.up_proj.weight`"):
        causal_lm(tmp_path, max_length=8)


def test_models_without_a_cache_are_refused(tmp_path):
    import transformers

    from aotc.aot.huggingface.errors import ArchitectureUnknown, NotCausal

    sizes = {"hidden_size": 8, "pad_token_id": 0, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.BertConfig(**sizes, intermediate_size=8, vocab_size=9)
    with pytest.raises(NotCausal, match="it does not generate"):
        causal_lm(transformers.BertForMaskedLM(config), max_length=8)
    with pytest.raises(NotCausal, match="its attention looks ahead"):
        causal_lm(transformers.BertLMHeadModel(config), max_length=8)
    mamba = transformers.MambaForCausalLM(transformers.MambaConfig(**sizes, vocab_size=9))
    with pytest.raises(NotCausal, match="not every layer keeps keys and values"):
        causal_lm(mamba, max_length=8)
    t5 = transformers.T5ForConditionalGeneration(
        transformers.T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=9)
    )
    with pytest.raises(NotCausal, match="it has an encoder"):
        causal_lm(t5, max_length=8)
    t5.save_pretrained(tmp_path)
    with pytest.raises(ArchitectureUnknown, match="`t5` is an architecture"):
        causal_lm(tmp_path, max_length=8)


def test_a_release_that_builds_models_otherwise_is_refused(monkeypatch):
    import importlib.metadata

    from aotc.aot import huggingface
    from aotc.aot.huggingface.errors import TransformersTooOld

    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.57.1")
    with pytest.raises(TransformersTooOld, match=r"is 4\.57\.1, expected 5 or later"):
        huggingface.__getattr__("causal_lm")


def test_examples_are_tokens_of_all_the_vocabulary():
    """Golden numbers of the first token alone, often the padding's row of zeros, show nothing."""
    model, entries = causal_lm(make("llama"), max_length=32, batch=3)
    vocabulary = model.get_input_embeddings().weight.shape[0]
    for each in entries.values():
        ids = each["example_inputs"]["ids"]
        assert len(set(ids.flatten().tolist())) == ids.numel()
        assert int(ids.min()) >= 0
        assert vocabulary // 2 < int(ids.max()) < vocabulary


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int8", "int4", "fp8"])
def test_weights_are_quantised_in_all_entries(kind, tmp_path):
    """On a CPU by its numbers; for a GPU every candidate compiles."""
    spec = tmp_path / "spec.py"
    spec.write_text(QUANTISED)
    options = BuildOptions(quantize=kind, cache_folder=tmp_path / "cache")
    report = build(str(spec), tmp_path / "out", ["cpu", "cuda:sm_90"], options)
    assert report.failed == 0
    assert report.quantized["measured"] == "results of `lm_head`"
    assert 0 < report.quantized["output_error"] < 0.5
    assert all(check.is_ok for target in report.targets for check in target.checks)
