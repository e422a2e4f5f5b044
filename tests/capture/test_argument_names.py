"""Inputs are called as the model's arguments are, whose letters torch makes small."""

from __future__ import annotations

import random
from collections import namedtuple

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
Pair = namedtuple("Pair", "Left right")  # noqa: PYI024


def drawn(seed):
    """Names of arguments that differ in the case of their letters and in no more, and others."""
    source = random.Random(seed)
    letters = ["a", "A", "ab", "Ab", "AB", "B", "dt", "Dt", "a_b", "A_B", "a_1", "input_Ids"]
    return source.sample(letters, source.randint(2, 5))


def model_of(names):
    """A module whose forward takes arguments of these names; it has a buffer `A` of its own."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("A", torch.ones(4))

    total = " + ".join(f"{place + 1} * {name}" for place, name in enumerate(names))
    space = {}
    exec(f"def forward(self, {', '.join(names)}): return {total} + self.A", space)
    Model.forward = space["forward"]
    return Model()


@pytest.mark.parametrize("kind", ["static", "one dim", "dims that torch finds"])
@pytest.mark.parametrize("seed", range(6))
def test_names_drawn_at_random(seed, kind):
    names = drawn(seed)
    dim = {"static": None, "one dim": Dim("rows", max=9), "dims that torch finds": Dim.AUTO(max=9)}
    shapes = None if dim[kind] is None else {name: {0: dim[kind]} for name in names}
    given = {name: torch.randn(3, 4) for name in names}
    captured = capture(spec_of(model_of(names), given, dynamic_shapes=shapes))
    assert list(captured.graph.input_names) == names
    assert len(captured.dims) == (kind != "static")
    assert not captured.guards


def test_conditions_of_sizes_name_the_arguments():
    def model(Image, image):
        return (Image.view(Image.shape[0] // 4, 4) + image[: Image.shape[0] // 4]).sum()

    rows, more = Dim("rows", min=1, max=8), Dim("more", min=8, max=9)
    given = {"Image": torch.randn(12), "image": torch.randn(8, 4)}
    shapes = {"Image": {0: 4 * rows}, "image": {0: more}}
    captured = capture(spec_of(model, given, dynamic_shapes=shapes))
    assert list(captured.graph.input_names) == ["Image", "image"]


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_arguments_that_nest(is_dynamic):
    def model(Batch, Named):
        return Batch["Img"] * Batch["img"] + Named.Left * Named.right

    one = lambda: torch.randn(3, 4)  # noqa: E731
    given = {"Batch": {"Img": one(), "img": one()}, "Named": Pair(one(), one())}
    row = {0: Dim("rows", max=9)}
    shapes = {"Batch": {"Img": row, "img": row}, "Named": Pair(row, row)} if is_dynamic else None
    captured = capture(spec_of(model, given, dynamic_shapes=shapes))
    names = ["Batch_Img", "Batch_img", "Named_Left", "Named_right"]
    assert list(captured.graph.input_names) == names
    assert len(captured.dims) == is_dynamic
