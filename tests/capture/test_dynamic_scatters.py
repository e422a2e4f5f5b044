"""Scatters whose dims vary: where sizes need only fit torch's conditions, and where they are equal
though export does not say so."""

from __future__ import annotations

import pytest

from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.size import fixed, substitute

torch = pytest.importorskip("torch")

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
AUTO = torch.export.Dim.AUTO
ROWS, COLUMNS = 5, 7


def numbers(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def places(*shape, seed, count=ROWS):
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(seed))


def row(size, seed):
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))


def orders(size, count):
    return torch.stack([row(size, seed) for seed in range(count)], 1)


# By name: (model, arguments for so many rows and columns, and for an index of so many of each).
MODELS = {
    "scatter": (
        lambda x, i, y: torch.scatter(x, 0, i, y),
        lambda r, c, m, n: (numbers(r, c, seed=1), orders(r, n)[:m], numbers(r, c, seed=3)),
    ),
    "scatter of a number": (
        lambda x, i: torch.scatter(x, 1, i.remainder(3), 2.5),
        lambda r, c, m, n: (numbers(r, c, seed=1), places(m, n, seed=2)),
    ),
    "scatter_add": (
        lambda x, i, y: torch.scatter_add(x, 0, i, y),
        lambda r, c, m, n: (numbers(r, c, seed=1), places(m, n, seed=2), numbers(r, c, seed=3)),
    ),
    "scatter_reduce": (
        lambda x, i, y: torch.scatter_reduce(x, 1, i.remainder(4), y, "amax"),
        lambda r, c, m, n: (numbers(r, c, seed=1), places(m, n, seed=2), numbers(r, c, seed=3)),
    ),
    "index_add": (
        lambda x, i, y: torch.index_add(x, 0, i, y),
        lambda r, c, m, n: (numbers(r, c, seed=1), places(m, seed=2), numbers(m, c, seed=3)),
    ),
    "index_copy": (
        lambda x, i, y: torch.index_copy(x, 0, i, y),
        lambda r, c, m, n: (numbers(r, c, seed=1), row(r, 2), numbers(r, c, seed=3)),
    ),
    "index_put": (
        lambda x, i, y: torch.index_put(x, (i,), y, True),
        lambda r, c, m, n: (numbers(r, c, seed=1), places(m, seed=2), numbers(m, c, seed=3)),
    ),
    "index_put of two": (
        lambda x, i, j, y: torch.index_put(x, (i, j), y, True),
        lambda r, c, m, n: (
            numbers(r, c, 2, seed=1),
            places(m, seed=2),
            places(m, seed=4, count=3),
            numbers(m, 2, seed=3),
        ),
    ),
    "slice_scatter": (
        lambda x, y: torch.slice_scatter(x, y, 0, 1, 3),
        lambda r, c, m, n: (numbers(r, c, seed=1), numbers(2, c, seed=3)),
    ),
    "select_scatter": (
        lambda x, y: torch.select_scatter(x, y, 0, 2),
        lambda r, c, m, n: (numbers(r, c, seed=1), numbers(c, seed=3)),
    ),
}
SIZES = [  # rows, columns, and those of an index
    (5, 7, 5, 7),
    (6, 4, 6, 4),
    (9, 8, 5, 3),
    (5, 11, 4, 11),
]


@pytest.fixture(scope="module")
def captured():
    """Each model as it is captured with all dims dynamic."""
    found = {}
    for name, (model, draw) in MODELS.items():
        arguments = draw(ROWS, COLUMNS, ROWS, COLUMNS)
        shapes = tuple(dict.fromkeys(range(each.dim()), AUTO) for each in arguments)
        found[name] = capture(spec_of(model, arguments, dynamic_shapes=shapes))
    return found


def sizes_of(captured, arguments):
    """The value of each dim for such arguments; None where they break a shape or condition."""
    values = {}
    for node, given in zip(captured.graph.inputs, arguments, strict=True):
        for own, size in zip(node.shape, given.shape, strict=True):
            if isinstance(own, int):
                if own != size:
                    return None
            elif values.setdefault(next(iter(own.dims())), size) != size:
                return None
    for guard in captured.guards:
        value = fixed(substitute(guard.size, values))
        if value < (value if guard.low is None else guard.low):
            return None
        if value > (value if guard.high is None else guard.high):
            return None
    return {dim.name: size for dim, size in values.items()}


@pytest.mark.parametrize("name", MODELS)
def test_every_size_that_torch_takes(name, captured):
    model, draw = MODELS[name]
    tried = 0
    for sizes in SIZES:
        arguments = draw(*sizes)
        values = sizes_of(captured[name], arguments)
        try:
            expected = model(*arguments)
        except (RuntimeError, IndexError):
            continue
        if values is None:  # torch exported it as equal
            continue
        arrays = [each.numpy() for each in arguments]
        found, *_ = interpret(at_sizes(captured[name].graph, values), arrays)
        torch.testing.assert_close(torch.from_numpy(found), expected)
        tried += 1
    assert tried >= 2


@pytest.mark.parametrize("name", ["slice_scatter", "select_scatter", "index_put"])
def test_sizes_that_differ_are_refused(name, captured):
    model, draw = MODELS[name]
    *rest, values = draw(ROWS, COLUMNS, ROWS, COLUMNS)
    longer = torch.cat([values, values[..., :2]], -1)
    with pytest.raises(RuntimeError):
        model(*rest, longer)
    assert sizes_of(captured[name], (*rest, values)) is not None
    assert sizes_of(captured[name], (*rest, longer)) is None
