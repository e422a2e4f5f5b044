"""How arguments and results of models nest, and the names that their outputs get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")

from aotc.aot import errors  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.runtime.bundle.structure import Part, giver  # noqa: E402

pytestmark = pytest.mark.torch
X = torch.arange(6.0).reshape(2, 3)
PLACES = ["zero", "one", "two", "three"]


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclass
class Sums:
    total: torch.Tensor
    parts: list[torch.Tensor]


torch.export.register_dataclass(Sums)


def given(model, *arguments, **named):
    """The names of the outputs, and the result with a word for each of them."""
    captured = capture(spec_of(model, named or arguments))
    root = captured.structure.outputs
    return captured.graph.output_names, root and giver(root)(PLACES)


MODELS = {
    "array": (lambda x: x + 1, ("output_0",), None),
    "pair": (lambda x: (x + 1, x + 2), ("output_0", "output_1"), None),
    "tuple of one": (lambda x: (x + 1,), ("output_0",), ("zero",)),
    "list": (lambda x: [x + 1, x + 2], ("output_0", "output_1"), ["zero", "one"]),
    "dict": (lambda x: {"y": x + 1, "z": x + 2}, ("y", "z"), {"y": "zero", "z": "one"}),
    "nested": (
        lambda x: (x + 1, {"a": [x + 2, x + 3]}),
        ("output_0", "output_1.a.0", "output_1.a.1"),
        ("zero", {"a": ["one", "two"]}),
    ),
    "fixed": (lambda x: (x + 1, None, 3, 0.5, "a"), ("output_0",), ("zero", None, 3, 0.5, "a")),
    "same": (lambda x: (x, x, x.T), ("output_0", "output_1", "output_2"), None),
    "same name": (
        lambda x: {"a.b": x + 1, "a": {"b": x + 2}},
        ("output_0", "output_1"),
        {"a.b": "zero", "a": {"b": "one"}},
    ),
    "named": (lambda x: Pair(x + 1, x + 2), ("first", "second"), ("zero", "one")),
    "dataclass": (
        lambda x: Sums(x + 1, [x + 2, x + 3]),
        ("total", "parts.0", "parts.1"),
        {"total": "zero", "parts": ["one", "two"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_results(name):
    model, names, result = MODELS[name]
    assert given(model, X) == (names, result)


def test_fields_of_named_tuples_and_dataclasses_are_attributes():
    _, pair = given(MODELS["named"][0], X)
    _, sums = given(MODELS["dataclass"][0], X)
    assert (pair.first, pair.second) == ("zero", "one")
    assert (sums.total, sums.parts) == ("zero", ["one", "two"])


def test_arguments_nest_by_parameter():
    def model(x, batch, mask=None, scale=2.0):
        return x * scale + batch["a"] + batch["b"][0]

    named = {"x": X, "batch": {"a": X, "b": (X, 4)}, "mask": None, "scale": 3.0}
    captured = capture(spec_of(model, named))
    arrays = [Part("array", place) for place in range(3)]
    inner = Part("tuple", parts=(arrays[2], Part("int", 4)))
    batch = Part("dict", None, ("a", "b"), (arrays[1], inner))
    parts = (arrays[0], batch, Part("none"), Part("float", 3.0))
    assert captured.structure.inputs == Part("dict", None, tuple(named), parts)
    assert captured.graph.input_names == ("x", "batch_a", "batch_b_0")
    by_place = capture(spec_of(model, (X, named["batch"], None, 3.0)))
    assert by_place.structure.inputs == captured.structure.inputs


def test_plain_arguments_have_no_structure():
    assert capture(spec_of(lambda x, y: x + y, (X, X))).structure.inputs is None
    assert capture(spec_of(lambda *xs: xs[0] + xs[1], (X, X))).structure.inputs is None


def test_keys_that_are_no_text_are_refused_by_place():
    with pytest.raises(errors.StructureUnsupported, match=r"the result\.a"):
        capture(spec_of(lambda x: {"a": {1: x + 1}}, (X,)))


def test_decoders_of_transformers_give_their_cache():
    transformers = pytest.importorskip("transformers")
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 32, "n_positions": 8}
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **ends)).eval()
    inputs = {"input_ids": torch.ones(1, 4, dtype=torch.int64)}
    _, cache = model(**inputs).keys()  # which transformers 5.24 calls otherwise than 5.23
    captured = capture(spec_of(model, inputs))
    names = captured.graph.output_names[: len(captured.graph.returned)]
    assert names == ("logits", f"{cache}.0", f"{cache}.1")
    assert [node.shape for node in captured.graph.returned] == [(1, 4, 32), *[(1, 2, 4, 8)] * 2]
