"""Random draws of a model: torch's distributions, from the seed alone, at every size."""

from __future__ import annotations

import math

import numpy
import pytest

from aotc.aot.ir.reference import interpret
from aotc.aot.ir.storage import widen

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from aotc.aot import errors  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.imports.rng import GOLDEN_SEED  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
COUNT = 4000
X = torch.linspace(-1, 1, COUNT)
ALIKE = torch.zeros(2, 1, 64, 8)  # a query and a key whose scores are all equal

# Model → mean and standard deviation of what it draws.
DISTRIBUTIONS = {
    "rand": (lambda x: torch.rand(COUNT), 0.5, 12**-0.5),
    "rand f64": (lambda x: torch.rand(COUNT, dtype=torch.float64), 0.5, 12**-0.5),
    "rand_like bf16": (lambda x: torch.rand_like(x.bfloat16()), 0.5, 12**-0.5),
    "randn": (lambda x: torch.randn(COUNT), 0.0, 1.0),
    "randn f64": (lambda x: torch.randn_like(x.double()), 0.0, 1.0),
    "randn f16": (lambda x: torch.randn_like(x.half()), 0.0, 1.0),
    "randint": (lambda x: torch.randint(-3, 7, (COUNT,)), 1.5, 8.25**0.5),
    "randint_like": (lambda x: torch.randint_like(x, 10), 4.5, 8.25**0.5),
    "randint wide": (
        lambda x: torch.randint(0, 1 << 40, (COUNT,)) / (1 << 40),
        0.5,
        12**-0.5,
    ),
    "bernoulli": (lambda x: torch.bernoulli(torch.full((COUNT,), 0.3)), 0.3, 0.21**0.5),
    "bernoulli_": (lambda x: torch.empty(COUNT).bernoulli_(0.3), 0.3, 0.21**0.5),
    "uniform_": (lambda x: torch.empty(COUNT).uniform_(-2, 4), 1.0, 3**0.5),
    "normal_": (lambda x: torch.empty(COUNT).normal_(2, 3), 2.0, 3.0),
    "normal": (lambda x: torch.normal(x * 0 + 2, 3.0), 2.0, 3.0),
    "normal of two": (lambda x: torch.normal(x * 0 + 2, x * 0 + 3), 2.0, 3.0),
    "exponential_": (lambda x: torch.empty(COUNT).exponential_(2.0), 0.5, 0.5),
    "geometric_": (lambda x: torch.empty(COUNT).geometric_(0.25), 4.0, 12**0.5),
    "log_normal_": (
        lambda x: torch.empty(COUNT).log_normal_(0.0, 0.25).log(),
        0.0,
        0.25,
    ),
    "cauchy_": (lambda x: torch.empty(COUNT).cauchy_(1.0, 2.0).atan(), None, None),
    "dropout": (lambda x: F.dropout(x * 0 + 1, 0.2, True), 1.0, 0.5),
    "attention": (
        lambda x: F.scaled_dot_product_attention(*ALIKE, torch.eye(64)[None] * 64, dropout_p=0.2),
        1.0,
        0.5,
    ),
    "multinomial": (
        lambda x: torch.multinomial(torch.tensor([0.2, 0.3, 0.5]), COUNT, replacement=True),
        1.3,
        0.61**0.5,
    ),
    "randperm": (lambda x: torch.randperm(COUNT), (COUNT - 1) / 2, COUNT * 12**-0.5),
}


def outputs(captured, seed=GOLDEN_SEED):
    inputs = (*captured.golden_inputs[:-1], numpy.array(seed))
    found = interpret(captured.graph, inputs)
    kinds = [node.dtype for node in captured.graph.outputs]
    return [widen(each, kind).astype(float) for each, kind in zip(found, kinds, strict=True)]


def test_each_op_draws_from_its_distribution_as_torch_computes_it():
    def model(x):
        return tuple(draw(x) for draw, _, _ in DISTRIBUTIONS.values())

    captured = capture(spec_of(model, (X,), "draws.py"))
    found = outputs(captured)
    for (name, (draw, mean, deviation)), drawn, torchs in zip(
        DISTRIBUTIONS.items(), found, captured.golden_outputs, strict=True
    ):
        if str(torchs.dtype) != "uint16":  # bf16 as its bits
            assert numpy.allclose(drawn, torchs.astype(float), 2e-3, 1e-3), name
        eager = draw(X)
        assert drawn.shape == tuple(eager.shape), name
        if mean is None:
            continue
        # Five standard errors: no draw of a right distribution fails here.
        assert abs(drawn.mean() - mean) < 5 * deviation / math.sqrt(COUNT), name
        assert abs(drawn.std() - deviation) < 0.1 * deviation, name
    permutation = found[list(DISTRIBUTIONS).index("randperm")]
    assert sorted(permutation) == list(range(COUNT))


def test_uniform_numbers_fill_their_cells_and_are_below_one():
    def model(x):
        return torch.rand(1 << 16), torch.rand(1 << 12, dtype=torch.bfloat16).float()

    uniform, short = outputs(capture(spec_of(model, (X,), "draws.py")))
    cells = numpy.histogram(uniform, 64, (0.0, 1.0))[0]
    expected = len(uniform) / 64
    # Chi-square with 63 degrees of freedom: 120 is beyond 1 in 10^5.
    assert ((cells - expected) ** 2 / expected).sum() < 120
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert short.max() < 1
    pairs = numpy.corrcoef(uniform[:-1], uniform[1:])[0, 1]
    assert abs(pairs) < 5 / math.sqrt(len(uniform))


def test_draws_depend_on_seed_offset_site_and_element_only():
    def model(x):
        return torch.rand(50), torch.rand(50), torch.rand(70)[:50]

    captured = capture(spec_of(model, (X,), "draws.py"))
    first = outputs(captured, (7, 0))
    assert all(map(numpy.array_equal, first, outputs(captured, (7, 0))))
    for other in ((8, 0), (7, 1), (7 + (1 << 40), 0), (7, 1 << 33), (-7, 0)):
        assert not numpy.array_equal(first[0], outputs(captured, other)[0])
    assert not numpy.array_equal(first[0], first[1])  # two draws of one program
    assert not numpy.array_equal(first[1], first[2])


def test_weighted_draws_without_replacement_name_each_place_once():
    def model(weights):
        return torch.multinomial(weights, 3)

    weights = torch.tensor([[0.0, 1.0, 2.0, 3.0, 0.0]]).repeat(200, 1)
    (found,) = outputs(capture(spec_of(model, (weights,), "draws.py")))
    assert (numpy.sort(found, 1) == [1, 2, 3]).all()  # a weight of 0 is never drawn


def test_draws_have_the_sizes_of_a_call():
    def model(x):
        return torch.rand(x.shape[0], 3), torch.randn_like(x), F.dropout(x, 0.5, True)

    spec = spec_of(model, (torch.ones(5, 4),), "draws.py")
    batch = torch.export.Dim("batch", min=1, max=64)
    from dataclasses import replace

    captured = capture(replace(spec, dynamic_shapes=({0: batch},)))
    assert [str(each.type) for each in captured.graph.outputs] == [
        "f32[batch, 3]",
        "f32[batch, 4]",
        "f32[batch, 4]",
    ]
    assert captured.probes
    assert captured.probes[0].inputs[-1].tolist() == list(GOLDEN_SEED)


def test_a_single_number_is_drawn_as_others_are():
    def model(x):
        return torch.rand(()) + x, torch.randn_like(x)

    first, second = outputs(capture(spec_of(model, (torch.tensor(0.0),), "draws.py")))
    assert first.shape == second.shape == ()
    assert 0 <= first < 1


def test_a_generator_of_the_model_is_refused():
    generator = torch.Generator()

    def model(x):
        return x + torch.rand(4, generator=generator)

    with pytest.raises(errors.OpsUnsupported, match="generator") as caught:
        capture(spec_of(model, (torch.ones(4),), "draws.py"))
    assert caught.value.exit_code == 3


def test_the_seed_does_not_take_the_name_of_an_input():
    def model(seed):
        return seed + torch.rand(4)

    captured = capture(spec_of(model, (torch.ones(4),), "draws.py"))
    assert captured.graph.input_names == ("seed", "seed_1")
    assert captured.structure.inputs.keys == ("seed", "seed_1")
