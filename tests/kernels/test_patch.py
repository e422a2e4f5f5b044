"""`aotc.kernels.patch`: small models of transformers, in f32 and bf16 against f64, what is left and
why, and that nothing is changed once it is undone."""

from __future__ import annotations

import copy
import gc
import pickle
import statistics
import sys
import weakref

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
transformers = pytest.importorskip("transformers", minversion="5")

from torch import nn  # noqa: E402

from aotc import kernels  # noqa: E402
from aotc.aot.errors import KernelValueInvalid, LogitsNotKept, PatchTargetInvalid  # noqa: E402
from aotc.kernels.library.deferred_logits import DeferredLogits  # noqa: E402

SIZES = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPS = {"num_key_value_heads": 2}
# Model, settings, how many places each function computes.
FAMILIES = {
    "Llama": (
        GROUPS,
        {"rms_norm": 5, "swiglu": 2, "rope": 1, "attention": 1, "linear_cross_entropy": 1},
    ),
    "Qwen2": (
        GROUPS,
        {"rms_norm": 5, "swiglu": 2, "rope": 1, "attention": 1, "linear_cross_entropy": 1},
    ),
    "Mistral": (
        {**GROUPS, "sliding_window": 4},
        {"rms_norm": 5, "swiglu": 2, "rope": 1, "attention": 1, "linear_cross_entropy": 1},
    ),
    "Gemma2": (
        {**GROUPS, "head_dim": 8, "sliding_window": 4},
        {"rms_norm": 9, "geglu": 2, "rope": 1, "cross_entropy": 1},
    ),
    "GPT2": ({}, {"layer_norm": 5, "gelu": 2, "attention": 1, "linear_cross_entropy": 1}),
    "Bert": ({}, {"layer_norm": 6, "gelu": 3, "attention": 1}),
}
MORE = {
    "Qwen3": {"head_dim": 8},
    "Gemma": {"head_dim": 8},
    "Phi3": {},
    "Cohere": {},
    "Granite": {"logits_scaling": 2.0},
    "Olmo2": {},
    "GPTNeoX": {},
    "Nemotron": {},
    "StableLm": {},
    "SmolLM3": {},
    "Bloom": {},
}
"""Further models, whose numbers are compared each night."""
DRAWS = 5  # of inputs, for each model
CLASSES = {"GPT2": "GPT2LMHeadModel", "Bert": "BertForMaskedLM"}


def model_of(family):
    """Small, without dropout, with weights that are no ones and zeros."""
    torch.manual_seed(0)
    options = {
        **SIZES,
        **(FAMILIES[family][0] if family in FAMILIES else {**GROUPS, **MORE[family]}),
    }
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "hidden_dropout_prob",
                 "attention_probs_dropout_prob"):  # fmt: skip
        options[name] = 0.0
    config = getattr(transformers, f"{family}Config")(**options)
    model = getattr(transformers, CLASSES.get(family, f"{family}ForCausalLM"))(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


def inputs_of(seed=0):
    torch.manual_seed(seed)
    numbers = torch.randint(3, 97, (2, 11))
    labels = numbers.clone()
    labels[0, 3] = -100
    return {"input_ids": numbers, "labels": labels}


def results(model, inputs):
    """Logits, loss and the gradients of all parameters, in f64."""
    found = model(**inputs)
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(found.loss, parameters, allow_unused=True)
    kept = {"loss": found.loss, "logits": found.logits, **dict(zip(names, gradients, strict=True))}
    return {name: x.detach().double() for name, x in kept.items() if x is not None}


def distances(found, expected):
    """Of each result, relative to its largest element; of the gradient of a key's bias, which is
    nothing but roundings, to that of the value's bias."""
    assert found.keys() == expected.keys()
    sizes = {name: float(other.abs().max()) + 1e-30 for name, other in expected.items()}
    return {
        name: float((found[name] - other).abs().max())
        / sizes[name.replace("key.bias", "value.bias")]
        for name, other in expected.items()
    }


def check_numbers(family, dtype, steps):
    """Not further from f64 than eager is, but for `steps` roundings: sums have another order.

    Where terms cancel a single draw is an accident for either, hence the median of several.
    """
    model, ours, eager = model_of(family).to(dtype), [], []
    for seed in range(DRAWS):
        inputs = inputs_of(seed)
        expected = results(copy.deepcopy(model).double(), inputs)
        eager.append(distances(results(model, inputs), expected))
        patch = kernels.patch(model)
        ours.append(distances(results(model, inputs), expected))
        patch.undo()
    allowed = steps * torch.finfo(dtype).eps
    far = {}
    for name in ours[0]:
        own, other = (statistics.median(each[name] for each in draws) for draws in (ours, eager))
        if own > 1.5 * other + allowed:
            far[name] = (own, other)
    assert not far


@pytest.mark.parametrize(
    "family", [*FAMILIES, *(pytest.param(each, marks=pytest.mark.nightly) for each in MORE)]
)
def test_outputs_and_gradients_are_as_near_to_f64_as_eagers(family):
    check_numbers(family, torch.float32, 32)


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "GPT2"])
def test_sixteen_bits(family):
    check_numbers(family, torch.bfloat16, 8)


@pytest.mark.parametrize("family", FAMILIES)
def test_report_parameters_and_undoing(family):
    model, inputs = model_of(family), inputs_of()
    state, before = [*model.state_dict().items()], results(model, inputs)
    parameters = [*model.named_parameters()]
    attributes = {name: set(module.__dict__) for name, module in model.named_modules()}
    with kernels.patch(model) as patch:
        counts = {}
        for part in patch.replaced:
            counts[part.function] = counts.get(part.function, 0) + 1
        assert counts == FAMILIES[family][1]
        for (name, parameter), (old, kept) in zip(
            model.named_parameters(), parameters, strict=True
        ):
            assert name == old
            assert parameter is kept
        assert [name for name, _ in state] == list(model.state_dict())
        for _ in range(2):  # an optimiser that was made before goes on
            optimiser = torch.optim.SGD([each for _, each in parameters], lr=0.1)
            model(**inputs).loss.backward()
            optimiser.step()
            optimiser.zero_grad()
    assert {name: set(module.__dict__) for name, module in model.named_modules()} == attributes
    model.load_state_dict(dict(copy.deepcopy(state)))
    fresh = model_of(family)
    assert all(torch.equal(x, before[n]) for n, x in results(fresh, inputs).items())


def test_what_is_left_is_said_with_a_reason():
    text = str(kernels.patch(model_of("Gemma2")))
    assert "left: 1 attention of Gemma2ForCausalLM: its implementation is 'eager'" in text
    assert "the model changes the logits (`final_logit_softcapping`)" in text
    assert "rms_norm: 9 Gemma2RMSNorm" in text
    text = str(kernels.patch(model_of("Bert")))
    assert "left: 1 loss of BertForMaskedLM: its `forward` does not call `loss_function`" in text


def test_a_registry_that_is_not_asked(monkeypatch):
    """As in models that choose attention by classes of their own."""
    model = model_of("Llama")
    monkeypatch.delattr(sys.modules[type(model).__module__], "ALL_ATTENTION_FUNCTIONS")
    with kernels.patch(model) as patch:
        assert [part.reason for part in patch.left] == [
            "its code does not look attention up in transformers' registry"
        ]
        assert model.config._attn_implementation == "sdpa"


def test_nothing_to_patch():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    patch = kernels.patch(model)
    assert patch.replaced == []
    assert str(patch).splitlines() == [
        "nothing in `Sequential` is computed by the library",
        "left: 1 Tanh: the library has no function for this activation",
    ]
    assert str(kernels.patch(nn.Linear(3, 3))) == ("nothing in `Linear` is computed by the library")


def test_modules_of_torch_and_hooks():
    model = nn.Sequential(
        nn.LayerNorm(8), nn.GELU("tanh"), nn.RMSNorm(8), nn.SiLU(), nn.SiLU(inplace=True)
    )
    seen = []
    model[0].register_forward_hook(lambda module, given, result: seen.append(module))
    x = torch.randn(3, 8)
    expected = model(x)
    patch = kernels.patch(model)
    assert [part.function for part in patch.replaced] == ["layer_norm", "gelu", "rms_norm", "silu"]
    assert [part.place for part in patch.left] == ["4"]
    torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-6)
    assert seen == [model[0]] * 2
    with torch.autocast("cpu", torch.bfloat16):
        assert model[0](x.bfloat16()).dtype == nn.LayerNorm(8)(x.bfloat16()).dtype


class ShiftedRMSNorm(nn.Module):
    """One that adds 2 to its weight, which no function does."""

    def __init__(self):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(8)), 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * (self.weight + 2)


class StrangeRMSNorm(ShiftedRMSNorm):
    def forward(self, x):
        raise KeyError("places")


def test_numbers_decide_and_not_names():
    own = nn.LayerNorm(8)
    own.forward = lambda x: x
    model = nn.Sequential(
        ShiftedRMSNorm(), StrangeRMSNorm(), own, nn.LayerNorm(8, device="meta"),
        nn.LayerNorm(8, dtype=torch.complex64),
    )  # fmt: skip
    patch = kernels.patch(model)
    assert not patch.replaced
    reasons = [part.reason for part in patch.left]
    assert reasons[0].startswith("its numbers are others: ")
    assert reasons[1] == "a trial raised KeyError: 'places'"
    assert reasons[2] == "it has a `forward` of its own"
    assert "`meta`" in reasons[3]
    assert reasons[4] == "its weights are of type torch.complex64"
    assert all(module.training for module in model.modules())


def test_patches_end_in_any_order_and_twice():
    first, second = model_of("Llama"), model_of("Llama")
    file = sys.modules[type(first).__module__]
    rotary = file.apply_rotary_pos_emb
    one, other = kernels.patch(first), kernels.patch(second)
    again = kernels.patch(first)
    assert [part.function for part in again.replaced] == ["rope"]
    assert {part.reason for part in again.left} == {"it is patched already"}
    one.undo()
    one.undo()
    again.undo()
    assert file.apply_rotary_pos_emb is not rotary  # of `second`
    assert "forward" not in first.model.norm.__dict__
    assert "forward" in second.model.norm.__dict__
    kernels.unpatch(second)
    assert file.apply_rotary_pos_emb is rotary
    other.undo()
    kernels.unpatch(second)
    kernels.unpatch(first)
    assert first.config._attn_implementation == second.config._attn_implementation == "sdpa"


def test_copies_and_pickles():
    model, inputs = model_of("Llama"), inputs_of()
    with kernels.patch(model):
        expected = results(model, inputs)
        twin = copy.deepcopy(model)
        assert twin.model.norm.forward.__self__ is twin.model.norm
        for name, x in results(twin, inputs).items():
            torch.testing.assert_close(x, expected[name])
        norm = pickle.loads(pickle.dumps(model.model.norm))
        x = torch.randn(3, 32)
        torch.testing.assert_close(norm(x), model.model.norm(x))
    kernels.unpatch(twin)
    assert not any("forward" in module.__dict__ for module in twin.modules())
    assert twin.config._attn_implementation == "sdpa"
    assert "_loss_function" not in twin.__dict__


def test_a_model_that_is_gone():
    """Its patch does not keep it, and the function of its file is put back."""
    model = model_of("Llama")
    file, place = sys.modules[type(model).__module__], weakref.ref(model)
    rotary = file.apply_rotary_pos_emb
    patch = kernels.patch(model)
    assert file.apply_rotary_pos_emb is not rotary
    del model
    gc.collect()
    assert place() is None
    assert file.apply_rotary_pos_emb is rotary
    patch.undo()


def test_wrong_arguments():
    with pytest.raises(PatchTargetInvalid, match="`patch`: `model` is a dict, expected"):
        kernels.patch({})
    with pytest.raises(TypeError, match="`unpatch`: `model` is a int"):
        kernels.unpatch(3)
    with pytest.raises(KernelValueInvalid, match="`skip` is sofmax, expected of layer_norm"):
        kernels.patch(nn.Linear(1, 1), skip=["sofmax"])
    patch = kernels.patch(model_of("Llama"), skip=("rope", "attention", "swiglu"))
    functions = {part.function for part in patch.replaced}
    assert functions == {"rms_norm", "silu", "linear_cross_entropy"}


# -- the loss --------------------------------------------------------------------------------------


def test_no_logits_until_they_are_read():
    model, inputs = model_of("Llama"), inputs_of()
    expected = model(**inputs).logits
    kernels.patch(model)
    found = model(**inputs)
    found.loss.backward()
    logits = found.logits
    assert isinstance(logits, DeferredLogits)
    assert logits.shape == expected.shape
    assert logits.dtype == expected.dtype
    assert logits.logits is None  # neither the loss nor its gradient nor its shape needs them
    torch.testing.assert_close(logits.argmax(-1), expected.argmax(-1))
    torch.testing.assert_close(logits + 0, expected, rtol=1e-5, atol=1e-5)
    assert logits.requires_grad
    (gradient,) = torch.autograd.grad(logits.square().sum(), model.lm_head.weight)
    assert bool(gradient.any())
    late = model(**inputs)
    with torch.no_grad():
        model.lm_head.weight.mul_(2.0)
    with pytest.raises(LogitsNotKept, match="`weight` has changed since"):
        late.logits.sum()
    assert not isinstance(model(input_ids=inputs["input_ids"]).logits, DeferredLogits)
    with torch.no_grad():
        assert not model(inputs["input_ids"], labels=inputs["labels"]).logits.requires_grad


def test_losses_of_a_trainer():
    """Sums over micro-batches, and labels that are shifted already; labels by position."""
    model, inputs = model_of("Llama"), inputs_of()
    shifted = torch.cat([inputs["labels"][:, 1:], torch.full((2, 1), -100)], 1)
    calls = [
        {**inputs, "num_items_in_batch": torch.tensor(7)},
        {**inputs, "num_items_in_batch": 7},
        {**inputs, "shift_labels": shifted},
        {**inputs, "logits_to_keep": 11},
    ]
    expected = [model(**each).loss for each in calls]
    with kernels.patch(model):
        for each, loss in zip(calls, expected, strict=True):
            found = model(**each)
            assert found.logits.logits is None
            torch.testing.assert_close(found.loss, loss, rtol=1e-5, atol=1e-6)
            assert found.loss.dtype == torch.float32
        by_place = model(inputs["input_ids"], None, None, None, None, inputs["labels"])
        assert by_place.logits.logits is None
        as_tuple = model(**inputs, return_dict=False)
        torch.testing.assert_close(as_tuple[0], model(**inputs).loss)
    torch.testing.assert_close(model(**inputs).loss, by_place.loss, rtol=1e-5, atol=1e-6)


def test_sixteen_bits_have_a_loss_in_f32():
    model, inputs = model_of("Llama").bfloat16(), inputs_of()
    expected = model(**inputs).loss
    kernels.patch(model)
    found = model(**inputs)
    assert found.loss.dtype == expected.dtype == torch.float32
    assert found.logits.logits is None
    kernels.unpatch(model)
    with kernels.patch(model), torch.autocast("cpu", torch.bfloat16):
        model.float()
        assert bool(model(**inputs).loss.isfinite())


# -- attention -------------------------------------------------------------------------------------


def called(monkeypatch):
    """Which of the library's functions the registered one calls."""
    from aotc.kernels.library import registered_attention

    names = []
    for name in ("attention", "attention_varlen"):
        function = getattr(registered_attention, name)

        def noted(*arguments, name=name, function=function):
            names.append(name)
            return function(*arguments)

        monkeypatch.setattr(registered_attention, name, noted)
    return names


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Bert"])
def test_padding_goes_to_torch_and_windows_do_not(monkeypatch, family):
    model, inputs = model_of(family).eval(), inputs_of()
    mask = torch.ones(2, 11, dtype=torch.int64)
    mask[0, :4] = 0
    plain, padded = model(**inputs).logits, model(**inputs, attention_mask=mask).logits
    names = called(monkeypatch)
    with kernels.patch(model):
        found = model(**inputs).logits
        torch.testing.assert_close(found + 0, plain, rtol=1e-4, atol=1e-5)
        assert names == ["attention"] * 2  # of Mistral with a window
        del names[:]
        found = model(**inputs, attention_mask=mask).logits
        torch.testing.assert_close((found + 0)[mask == 1], padded[mask == 1], rtol=1e-4, atol=1e-5)
        assert names == []


def test_generation_with_a_cache(monkeypatch):
    model = model_of("Llama").eval()
    prompt = inputs_of()["input_ids"]
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    expected = model.generate(prompt, **options)
    fixed = model.generate(prompt, **options, cache_implementation="static", disable_compile=True)
    names = called(monkeypatch)
    with kernels.patch(model):
        assert torch.equal(model.generate(prompt, **options), expected)
        assert names == ["attention"] * 12
        found = model.generate(
            prompt, **options, cache_implementation="static", disable_compile=True
        )
        assert torch.equal(found, fixed)


@pytest.mark.parametrize("family", ["Llama", "Mistral"])
def test_packed_sequences(monkeypatch, family):
    """As transformers' collator without padding gives them; each is as if it were alone."""
    model, numbers = model_of(family).eval(), inputs_of()["input_ids"].reshape(1, -1)
    lengths = (9, 1, 12)
    starts = torch.tensor([0, 9, 10, 22], dtype=torch.int32)
    packed = {
        "input_ids": numbers, "position_ids": torch.cat([torch.arange(n) for n in lengths])[None],
        "cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 12, "max_length_k": 12,
    }  # fmt: skip
    alone = torch.cat([model(input_ids=each).logits for each in numbers.split(lengths, 1)], 1)
    names = called(monkeypatch)
    with kernels.patch(model):
        found = model(**packed).logits
    assert names == ["attention_varlen"] * 2
    torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-5)


def test_dropout_goes_to_torch(monkeypatch):
    model = model_of("Llama")
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    names = called(monkeypatch)
    with kernels.patch(model):
        model(**inputs_of())
        assert names == []
        model.eval()(**inputs_of())
        assert names == ["attention"] * 2


# -- behind compilers ------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["eager", pytest.param("aotc", marks=pytest.mark.nightly)])
def test_compiled_patched_models(tmp_path, monkeypatch, backend):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    model, inputs = model_of("Llama"), inputs_of()
    inputs = {**inputs, "use_cache": False}
    expected = results(model, inputs)
    with kernels.patch(model):
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        found = compiled(**inputs)
        assert not isinstance(found.logits, DeferredLogits)
        parameters = dict(model.named_parameters())
        gradients = torch.autograd.grad(found.loss, parameters.values())
        for name, x in {
            "loss": found.loss,
            **dict(zip(parameters, gradients, strict=True)),
        }.items():
            scale = float(expected[name].abs().max())
            torch.testing.assert_close(x.double(), expected[name], rtol=1e-4, atol=1e-4 * scale)
    torch._dynamo.reset()
