"""The training benchmark: equal starts, equal batches, and a plot that shows all curves."""

from __future__ import annotations

import xml.etree.ElementTree as tree

import pytest

torch = pytest.importorskip("torch")

from benchmarks.dynamo import models, training  # noqa: E402


def test_a_plot_has_a_line_a_curve_inside_the_picture():
    found = {name: torch.rand(5) * 3 for name in training.COLOURS}
    picture = tree.fromstring(training.plot(found))
    lines = [each for each in picture if each.tag.endswith("polyline")]
    assert len(lines) == len(found)
    for line in lines:
        points = [tuple(map(float, each.split(","))) for each in line.attrib["points"].split()]
        assert len(points) == 5
        assert all(0 <= x <= training.WIDTH_PX and 0 <= y <= training.HEIGHT_PX for x, y in points)


def test_batches_depend_on_the_seed_alone():
    torch.manual_seed(3)
    first = training.batches(2)
    torch.manual_seed(3)
    assert all(map(torch.equal, first, training.batches(2)))
    assert first[0].shape == (training.BATCH, training.LENGTH + 1)


@pytest.mark.parametrize("model", models.MODELS.values(), ids=str)
def test_the_measured_models_can_be_differentiated(model):
    module, x = model.build(), model.example()
    module(x).sum().backward()
    assert all(each.grad is not None for each in module.parameters())
