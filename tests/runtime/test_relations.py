"""Relations between fields of a bundle's files: each one that does not hold is refused, in a time
that grows as the file does."""

import device_bundle
import pytest

from aotc.runtime.bundle.parameters import (
    FixedTensor,
    Parameter,
    Parameters,
    RecoverCode,
    WeightsCode,
)
from aotc.runtime.bundle.placement import Placement, View
from aotc.runtime.bundle.plan import Map, Plan
from aotc.runtime.errors import BundleMalformed

PARAMETER = Parameter(("w", "tied"), "f32", (2, 3), "stored")
CODE = WeightsCode("plan", "library", (), (0,), ("made",), ((0,),))
GOOD = Parameters((PARAMETER,), (FixedTensor("fixed", bytes(32)),), ("unread",), CODE, None, ())
MAP = Map(1, "bf16", 8, (4, 64), (64, 1), (4, 16), 32)


def test_what_holds_is_read():
    assert Parameters.from_bytes(GOOD.to_bytes()) == GOOD
    assert (GOOD.made, GOOD.holders(0)) == ({"stored", "made"}, {"stored", "made"})
    assert Plan.of(with_map(MAP)).variants[0].steps[0].maps == (MAP,)


def with_map(row):
    """A device's plan whose first launch makes a tensor map."""
    plan = device_bundle.device_plan(96, b"image")
    first, *rest = plan.steps
    return plan.replace(steps=(first.replace(maps=(row,)), *rest))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"parameters": (PARAMETER, PARAMETER.replace(stored=""))}, "parameters"),
        ({"unread": ("w",)}, "parameters"),
        ({"fixed": (FixedTensor("unread", bytes(32)),)}, "parameters"),
        ({"code": CODE.replace(outputs=("stored",))}, "code.outputs"),
        ({"code": CODE.replace(outputs=("a", "a"), reads=((0,), (0,)))}, "code.outputs"),
        ({"code": CODE.replace(reads=())}, "code.reads"),
        ({"code": CODE.replace(inputs=(1,))}, "code"),
        ({"code": CODE.replace(reads=((7,),))}, "code"),
        ({"code": None, "recover": RecoverCode("p", "l", ("stored",), (1,))}, "code"),
    ],
)
def test_parameters_that_contradict_each_other(fields, field):
    with pytest.raises(BundleMalformed) as caught:
        GOOD.replace(**fields).to_bytes()
    assert caught.value.fields["field"] == field


def test_a_name_that_comes_twice_among_very_many():
    names = [f"name{at}" for at in range(120_000)]
    rows = [tuple(names[at : at + 4000]) for at in range(0, len(names), 4000)]
    rows.append((names[-1],))
    parameters = tuple(Parameter(row, "f32", (1,), "") for row in rows)
    with pytest.raises(BundleMalformed, match="name119999"):
        Parameters(parameters, (), (), None, None, ()).to_bytes()


def test_a_placement_names_parameters_that_there_are():
    placement = Placement((), (), (), CODE)
    placement.check(GOOD, "p")
    assert Placement.from_bytes(placement.to_bytes()) == placement
    for wrong in (
        placement.replace(rest=CODE.replace(inputs=(1,))),
        placement.replace(views=(View(1, "stored", 0, (3, 1)),)),
    ):
        with pytest.raises(BundleMalformed, match="numbers below 1"):
            wrong.check(GOOD, "p")


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"argument": 2}, "argument"),  # a number
        ({"argument": 3}, "argument"),  # none
        ({"strides": (1,)}, "1 strides"),
        ({"box": (16,)}, "a box of 1"),
        ({"strides": (64, 2)}, "strides"),
        ({"start": 1}, "2 bytes"),
        ({"strides": (63, 1)}, "126 bytes"),
        ({"swizzle_bytes": 48}, "swizzle_bytes"),
        ({"swizzle_bytes": 32, "box": (4, 64)}, "swizzle_bytes"),
        ({"box": (4, 12)}, "box"),
    ],
)
def test_tensor_maps_that_a_device_would_not_take(fields, found):
    with pytest.raises(BundleMalformed, match=found):
        Plan.of(with_map(MAP.replace(**fields)))
