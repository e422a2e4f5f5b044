"""`y[mask] = f(x[mask])`, `f(x[mask]).mean()`: what is done to selected rows, and what is not."""

import operator

import numpy
import pytest

from aotc.aot.ir.reference import interpret

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402

from aotc.aot import errors  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.masked_steps import NO_ROWS  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
STEPS = (
    torch.sin, torch.exp, torch.neg, torch.sign, torch.tanh, torch.Tensor.abs,
    lambda x: x * 2 - 1, lambda x: x.clamp(-1, 1), lambda x: 1 / x, lambda x: x.half().float(),
    lambda x: torch.where(x > 0.5, x, -x), lambda x: x.square().clone(),
)  # fmt: skip
JOINS = (operator.add, operator.mul, torch.maximum, lambda x, y: x / y)


def drawn(seed):
    """A program of some writes, each of selected rows that some steps changed."""
    choice = numpy.random.default_rng(seed)

    def pick(rows):
        return rows[choice.integers(len(rows))]

    kinds = {0: lambda x: x > 0, 1: lambda x: x[:, 0, 0] > 0, 2: lambda x: x[..., 0] > 0.5}
    kind = int(choice.integers(3))
    plan = [
        (int(choice.integers(3)), [pick(STEPS) for _ in range(choice.integers(4))], pick(JOINS))
        for _ in range(choice.integers(1, 4))
    ]

    def program(x, z):
        result = x.clone()
        for form, steps, join in plan:
            mask = kinds[kind](result if form == 2 else x)
            mask = ~mask if form == 1 else mask
            rows = z[mask]
            for step in steps:
                rows = step(rows)
            if form != 1:
                rows = join(rows, x[mask])
            result[mask] = rows
            result[mask] += 1
        return result

    return program


def examples(count):
    generator = torch.Generator().manual_seed(11)
    for place in range(count):
        x, z = (torch.randn(5, 3, 2, generator=generator) for _ in range(2))
        yield (x.abs() + 1, z) if place == 1 else (-x.abs(), z) if place == 2 else (x, z)


@pytest.mark.parametrize("seed", range(24))
def test_drawn_programs(seed):
    program = drawn(seed)
    first, *others = examples(4)
    captured = capture(spec_of(program, first))
    for x, z in (first, *others):  # masks of some rows, of all and of none
        (found,) = interpret(captured.graph, [x.numpy(), z.numpy()])
        numpy.testing.assert_allclose(found, program(x, z).numpy(), rtol=1e-3, atol=1e-5)


def test_rows_of_a_batch_that_varies():
    def program(x, z):
        y = x.clone()
        y[x > 0] = z[x > 0].sin()
        return y

    rows = Dim("rows", max=32)
    spec = spec_of(program, next(examples(1)), dynamic_shapes=({0: rows}, {0: rows}))
    assert "where" in str(capture(spec).graph)


REFUSED = {
    "an order": lambda x, m: x[m].sort().values,
    "a scan": lambda x, m: x[m].cumsum(0),
    "other rows": lambda x, m: x[m].flip(0),
    "an index": lambda x, m: x[x[m].abs().long() % 2][..., 0, 0],
    "a quotient of whole numbers": lambda x, m: (x[m].long() // x[m].long()).float(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_the_rows_alone_is_refused(name):
    def program(x):
        y, mask = x.clone(), x > 0
        y[mask] = REFUSED[name](x, mask)
        return y

    with pytest.raises(errors.UnsupportedError):
        capture(spec_of(program, (torch.rand(5, 3, 2) + 1,)))


def test_rows_that_the_model_gives_are_refused():
    with pytest.raises(errors.UnsupportedError):
        capture(spec_of(lambda x: x[x > 0].sin(), (torch.randn(5),)))


def test_what_the_model_checks_of_their_number_is_checked_at_each_call():
    def program(x):
        y, rows = x.clone(), x[x > 0]
        torch._check(rows.shape[0] >= 2)
        y[x > 0] = rows * 2
        return y

    captured = capture(spec_of(program, (torch.rand(5) + 1,)))
    assert [check.attr("kind") for check in captured.graph.checks] == ["assertion"]


WEIGHT, TABLE = torch.randn(2, 2), torch.randn(4, 2)


def labelled(x, mask):
    """The labels of rows that are not selected are none."""
    labels = torch.where(mask, x[..., 0].long().abs() % 2, 77)
    return functional.cross_entropy(x[mask], labels[mask])


# Of rows with one element or more.
REDUCED = {
    "sum": lambda x, m: x[m].sum(),
    "sums": lambda x, m: x[m].sum(0),
    "mean": lambda x, m: x[m].mean(),
    "means": lambda x, m: x[m].mean(0),
    "mean of halves": lambda x, m: x[m].half().mean().float(),
    "max": lambda x, m: x[m].max(),
    "amin": lambda x, m: x[m].amin(0),
    "max of whole numbers": lambda x, m: x[m].long().max(),
    "variance": lambda x, m: x[m].var(),
    "variances": lambda x, m: x[m].var(0, correction=0),
    "deviation": lambda x, m: x[m].std(unbiased=False),
    "product": lambda x, m: x[m].prod(),
    "any": lambda x, m: (x[m] > 1).any(),
    "any of each": lambda x, m: (x[m] > 1).any(0),
    "all": lambda x, m: (x[m] > 0.1).all(),
    "norm": lambda x, m: x[m].norm(),
    "norms": lambda x, m: torch.linalg.vector_norm(x[m], 1, dim=0),
    "by their number": lambda x, m: x[m].sum() / x[m].shape[0] + x[m].numel(),
    "what is away from the mean": lambda x, m: ((x[m] - x[m].mean(0)) ** 2).sum(),
    "a write of what is away": lambda x, m: x.index_put((m,), x[m] - x[m].sum(0)),
    "beside ones": lambda x, m: (x[m] - torch.ones_like(x[m])).clamp(torch.zeros_like(x[m])).sum(0),
    "squares": lambda x, m: functional.mse_loss(x[m], (x * 2)[m]),
    "of logits": lambda x, m: functional.binary_cross_entropy_with_logits(x[m], x[m].sigmoid()),
    "selected": lambda x, m: torch.masked_select(x, x > 0).mean(),
    "places": lambda x, m: x[m[:, 0].nonzero().squeeze(-1)].mean(0) if m.dim() == 2 else x[m].sum(),
    "where": lambda x, m: x[torch.where(m)[0]].sum(0) if m.dim() == 1 else x[m].sum(),
}
# Of rows with elements of their own.
BY_ROW = {
    "softmax": lambda x, m: x[m].softmax(-1).sum(0),
    "accuracy": lambda x, m: (x[m].argmax(-1) == 0).float().mean(),
    "linear": lambda x, m: functional.linear(x[m], WEIGHT).sum(0),
    "product": lambda x, m: (x[m] @ WEIGHT).mean(),
    "layer norm": lambda x, m: functional.layer_norm(x[m], (2,)).sum(0),
    "embedding": lambda x, m: functional.embedding(x[..., 0][m].abs().long() % 4, TABLE).sum(0),
    "labels": lambda x, m: labelled(x, m) if m.dim() < 3 else x[m].sum(),
    "column": lambda x, m: x[m].unsqueeze(-1)[..., 0][..., 1].sum(),
    "beside": lambda x, m: torch.cat([x[m], -x[m]], -1).amax(0),
    "angle": lambda x, m: functional.cosine_similarity(x[m], (x + 1)[m], dim=-1).mean(),
    "unit rows": lambda x, m: functional.normalize(x[m], dim=-1).sum(0),
}
MASKS = {
    "elements": lambda x: x > 0,
    "rows": lambda x: x[:, 0, 0] > 0,
    "pairs": lambda x: x[..., 0] > 0.3,
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", [*REDUCED, *(f"{each} by row" for each in BY_ROW)])
def test_selected_rows_are_reduced(name, mask):
    of_row = BY_ROW.get(name.removesuffix(" by row")) if name.endswith(" by row") else None
    step = of_row or REDUCED[name]
    if of_row and mask == "elements":
        pytest.skip("its rows have no elements of their own")
    if of_row and mask == "rows":
        step = lambda x, m: of_row(x[:, 0], m)  # noqa: E731  matrices

    def program(x):
        return step(x, MASKS[mask](x))

    drawn = [x * 2 for x, _ in examples(5)]
    captured = capture(spec_of(program, (drawn[0],)))
    for x in drawn:  # some rows, all and none
        try:
            expected = program(x)
        except (RuntimeError, IndexError):  # no rows, of which none is the largest
            assert NO_ROWS in [check.attr("operation") for check in captured.graph.checks]
            continue
        found, *_ = interpret(captured.graph, [x.numpy()])
        numpy.testing.assert_allclose(found, expected.numpy(), rtol=2e-3, atol=1e-5)


def test_one_truth_value_selects_all_or_nothing():
    def program(x):
        return x[x.sum() > 0].sum(0)

    with pytest.raises(errors.UnsupportedError):
        capture(spec_of(program, (torch.rand(5, 3),)))
