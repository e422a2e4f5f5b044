"""Bundles of dynamic shapes: right at every size, and what does not fit is named."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

from aotc import aot
from aotc.aot import errors
from aotc.runtime import check, load
from aotc.runtime.errors import InputRank, SizeGuard, SizeMismatch, SizeOutOfRange
from aotc.runtime.verify import verify
from dynamic.models import CASES, made

TOLERANCE = 1e-4


def agrees(found, expected):
    """Whether results have the shapes and, up to rounding, the numbers of the model's."""
    pairs = list(zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True))
    for got, want in pairs:
        assert got.shape == want.shape
        if want.dtype.is_floating_point:
            scale = float(want.abs().max())
            assert float((got - want).abs().max()) <= TOLERANCE * scale
        else:
            assert torch.equal(got, want)
    return len(pairs)


# What `encoder` has is in `bert` too, with words and a mask.
NAMES = [
    pytest.param(name, marks=pytest.mark.nightly if name == "encoder" else ()) for name in CASES
]


@pytest.mark.parametrize("name", NAMES)
def test_every_size_gives_the_models_numbers(built, name):
    path, report = built(name)
    case, model = CASES[name], made(name)
    assert report.specialised == ()
    with load(path) as program, torch.no_grad():
        for sizes in (*case.sizes, case.sizes[0]):
            inputs = case.inputs(*sizes)
            assert agrees(program(*inputs), model(*inputs))


def test_many_sizes_in_turn(built):
    """More shapes than a session keeps, among them some that make its arena grow."""
    path, _ = built("perceptron")
    case, model = CASES["perceptron"], made("perceptron")
    with load(path) as program, torch.no_grad():
        for batch in (*range(1, 22), 64, 3, 2):
            inputs = case.inputs(batch, 5)
            assert agrees(program(*inputs), model(*inputs))


def test_the_bundle_says_what_varies(built):
    path, report = built("movement")
    assert report.dims == ("batch = 1..64", "seq = 3..64")
    assert check(path) == []
    assert {finding.status for finding in verify(path)} == {"ok"}
    with load(path) as program:
        assert [str(dim) for dim in program.dims] == list(report.dims)
        assert str(program.inputs[1]) == "f32[batch, 2*seq, 8]"


REFUSED = [
    ((65, 8), (65, 16), SizeOutOfRange, "`batch` is 65"),
    ((0, 8), (0, 16), SizeOutOfRange, "`batch` is 0.*\nhint: .*sizes are 1 and more"),
    ((3, 2), (3, 4), SizeOutOfRange, "`seq` is 2"),
    ((3, 8), (4, 16), SizeMismatch, "input `y` has 4 at dim 0"),
    ((3, 8), (3, 17), SizeMismatch, r"input `y` has 17 at dim 1, expected 16 \(`2\*seq`"),
]


@pytest.mark.parametrize(("first", "second", "kind", "words"), REFUSED)
def test_sizes_that_do_not_fit_are_named(built, first, second, kind, words):
    path, _ = built("movement")
    with load(path) as program, pytest.raises(kind, match=words):
        program(torch.zeros(*first, 8), torch.zeros(*second, 8))


def test_other_ranks_and_kinds(built):
    path, _ = built("movement")
    with load(path) as program:
        with pytest.raises(InputRank):
            program(torch.zeros(3, 8), torch.zeros(3, 16, 8))
        x, y = CASES["movement"].inputs(2, 5)
        expected = program(x, y)
        found = program(x.numpy(), y=y.numpy())
        assert all((got == want.numpy()).all() for got, want in zip(found, expected, strict=True))
        strided = program(x.transpose(0, 1).contiguous().transpose(0, 1), y)
        assert torch.equal(strided[0], expected[0])


def test_bound_calls_and_outputs_in_place(built):
    path, _ = built("perceptron")
    (x,) = CASES["perceptron"].inputs(3, 9)
    with load(path) as program:
        expected = program(x)
        out = torch.zeros(3, 9, 48)
        assert program(x, out=out) is out
        bound = program.bind(x)
        assert torch.equal(bound(), expected)
        assert torch.equal(out, expected)


AUTO = """
    import torch
    from torch.export import Dim

    def model(x, y):
        if x.shape[1] % 4 == 0:
            x = x * 2
        return x.sum(1) + (y * torch.arange(3.0)[:, None]).sum()

    example_inputs = (torch.ones(5, 8), torch.ones(3, 4))
    dynamic_shapes = ({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO})
"""


def test_what_the_model_asks_of_sizes_is_checked_and_what_it_fixes_is_reported(built):
    path, report = built("auto", AUTO)
    assert report.specialised == ("input `y` dim 0 is 3",)
    with load(path) as program:
        ones = torch.ones(3, 5)
        assert torch.equal(program(torch.ones(2, 12), ones), torch.full((2,), 39.0))
        with pytest.raises(SizeGuard, match=r"x.shape\[1\] % 4"):
            program(torch.ones(2, 9), ones)


UNSUPPORTED = """
    import torch
    from torch.export import Dim

    def model(x):
        return x.sum() + torch.nonzero(x).sum()

    example_inputs = (torch.ones(8),)
    dynamic_shapes = ({0: Dim("n")},)
"""


def test_what_depends_on_data_is_refused_with_its_line(built):
    with pytest.raises(errors.UnsupportedError, match="depends on data"):
        built("unsupported", UNSUPPORTED)


ROLLED = """
    import torch
    from torch.export import Dim

    def model(x):
        return torch.roll(x, 3, 0)

    example_inputs = (torch.arange(8.0),)
    dynamic_shapes = ({0: Dim("n", min=2, max=64)},)
"""


SAMPLED = """
    import torch
    from torch.export import Dim

    def model(x):
        return torch.nn.functional.grid_sample(x, torch.zeros(1, 2, 2, 2), align_corners=True)

    example_inputs = (torch.randn(1, 2, 8, 8),)
    dynamic_shapes = ({2: Dim("n", min=4)},)
"""


ASKED = """
    import torch
    from torch.export import Dim

    def model(x, y):
        return x * 2, y + 1

    example_inputs = (torch.arange(8.0), torch.arange(8.0))
    dynamic_shapes = ({0: Dim("some", min=2, max=64)}, {0: Dim("any", max=64)})
"""


def test_a_range_from_2_is_of_1_only_where_nobody_asked_for_2(built):
    path, report = built("asked", ASKED)
    assert report.dims == ("any = 1..64", "some = 2..64")
    with load(path) as program, pytest.raises(SizeOutOfRange, match=r"`some` is 1 .*2 to 64"):
        program(torch.zeros(1), torch.zeros(8))


def test_a_roll_by_more_elements_than_there_are(built):
    """A roll by 3 of 2 elements is one by 1."""
    path, _ = built("rolled", ROLLED)
    with load(path) as program:
        for size in (2, 3, 4, 5, 7, 64):
            x = torch.arange(float(size))
            assert torch.equal(program(x), torch.roll(x, 3, 0))


def test_what_needs_a_number_is_refused_with_its_line(built):
    """Samples of a grid are taken from an image whose size is a number."""
    with pytest.raises(errors.UnsupportedError) as caught:
        built("sampled", SAMPLED)
    assert caught.value.exit_code == 3
    assert "sampled.py:6" in str(caught.value)


def test_a_bundle_for_a_gpu_holds_the_same_signature(built, tmp_path):
    """Built without a device; tests/gpu/test_dynamic.py runs such bundles."""
    from aotc.aot.options import BuildOptions
    from aotc.aot.pipeline import build
    from aotc.runtime.bundle.opened import Bundle
    from aotc.runtime.bundle.plan import Plan

    path, report = built("perceptron")
    spec, out = path.with_suffix(".py"), tmp_path / "out"
    found = build(str(spec), out, ["cuda:sm_90"], BuildOptions(tmp_path / "cache"))
    assert found.dims == report.dims
    with Bundle(out) as opened:
        manifest = opened.manifest
        plan = Plan.from_msgpack(opened.read(manifest.targets[0].plan))
    assert manifest.entry().dims
    least, most = plan.at([1, 1]), plan.at([64, 128])
    arena_bytes, _ = plan.most_bytes()
    assert least.arena_bytes <= most.arena_bytes <= arena_bytes
    assert most.launches[0].grid != least.launches[0].grid
    exact = plan.at([4, 16])
    assert all(space != "int" for launch in exact.launches for space, _ in launch.args)


def test_a_profile_is_of_the_examples_sizes(built):
    from aotc.aot.cli.profile import profile_bundle

    path, report = built("perceptron")
    profile = profile_bundle(path, "cpu", 1)
    assert len(profile.launches) == report.targets[0].launches
    assert all(row.time_us > 0 for row in profile.launches)


class Open(torch.nn.Module):
    """Takes more by name than its signature says, as models of libraries do."""

    def forward(self, x, y=None, **more):
        y = 0 if y is None else y
        return (x + y + more["z"]) * (2 if more.get("doubles") else 1)


BATCH = torch.export.Dim("batch", max=16)
ROW = {0: BATCH}


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": ROW, "z": ROW},
        {"x": ROW, "y": None, "more": {"z": ROW, "doubles": None}},
    ],
)
def test_dims_of_arguments_that_forward_takes_by_name_alone(shapes, cache, tmp_path):
    model, given = Open(), {"x": torch.rand(3, 4), "z": torch.rand(3, 4), "doubles": True}
    aot.build(model, given, tmp_path / "out", dynamic_shapes=shapes, cache_dir=cache)
    assert "forward" not in vars(model)
    with load(tmp_path / "out") as program:
        x, z = torch.rand(7, 4), torch.rand(7, 4)
        assert torch.equal(program(x=x, z=z, doubles=True), (x + z) * 2)


def test_an_example_of_one_is_named_as_the_cause(tmp_path):
    given = {"x": torch.rand(1, 4), "z": torch.rand(1, 4)}
    shapes = {"x": ROW, "z": ROW}
    with pytest.raises(errors.ExportFailed, match="give an example of 2 or more"):
        aot.build(Open(), given, tmp_path / "out", dynamic_shapes=shapes)
