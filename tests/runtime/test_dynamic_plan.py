"""Plans and signatures of dynamic sizes: what is refused, and what comes out."""

from __future__ import annotations

import pytest
from plan_trees import with_uses

from aotc.runtime.bundle.extent import VALUE_LIMIT, Extent, evaluate, reader
from aotc.runtime.bundle.manifest import Entry, Manifest, Target, TensorSpec
from aotc.runtime.bundle.plan import PLAN_ABI, Plan
from aotc.runtime.bundle.signature import Dim, FixedSizeMismatch, Guard, Signature
from aotc.runtime.errors import (
    BundleError,
    InputRank,
    SizeGuard,
    SizeInvalid,
    SizeMismatch,
    SizeOutOfRange,
)

ROWS = [["number", 64, 0], ["mul", 0, 1], ["add", 0, 1], ["floordiv", 2, 1], ["max", 0, 1]]


def step(**changes):
    """A launch of as many programs as the dim says."""
    row = {"kind": "kernel", "kernel": 0, "grid": [[0], 1, 1], "args": [], "maps": []}
    return row | changes


def tree(**changes):
    """A plan of one dim: a buffer of 64·n bytes, one launch of n programs."""
    variant = {
        "arena_bytes": [2],
        "zeroed_bytes": 0,
        "entry": 0,
        "ranges": [[1, 100]],
        "buffers": [{"name": "b", "offset": 0, "nbytes": [2]}],
        "checks": [],
        "steps": [step(args=[["arena", 0], ["int", [0]]])],
    }
    variant |= changes.pop("variant", {})
    plan = {
        "abi": PLAN_ABI,
        "dims": 1,
        "features": ["dynamic-shapes"],
        "states": [],
        "sizes": [list(row) for row in ROWS],
        "limits": [],
        "scratch_bytes": 0,
        "kernels": [{"symbol": "k", "name": "k", "image": None}],
        "variants": [variant],
    }
    return with_uses(plan | changes)


def launch(**changes):
    return {"variant": {"steps": [step(**changes)]}}


def test_values_of_a_plan():
    plan = Plan.from_map(tree()).at([7])
    assert plan.arena_bytes == 448
    assert plan.buffers[0].nbytes == 448
    assert plan.launches[0].grid == (7, 1, 1)
    assert plan.launches[0].args == (("arena", 0), ("int", 7))


def test_what_has_no_formula_is_one_object_at_all_sizes():
    fixed, own = step(grid=[3, 1, 1], args=[["arena", 0]]), step(args=[["arena", 0], ["int", [0]]])
    plan = Plan.from_map(tree(variant={"steps": [fixed, own]}))
    one, other = plan.at([5]), plan.at([7])
    assert one.steps[0] is other.steps[0]
    assert (one.steps[1].grid, other.steps[1].grid) == ((5, 1, 1), (7, 1, 1))
    assert one.steps[1].args[0] is other.steps[1].args[0]


def test_launches_of_one_use_share_what_is_made_of_it():
    row = {"argument": 0, "dtype": "f32", "start": 0, "shape": [[0], 8], "strides": [8, 1]}
    maps = [row | {"box": [8, 8], "swizzle_bytes": 0}]
    first = step(args=[["arena", 0], ["int", [0]]], maps=maps)
    read = tree(
        features=["dynamic-shapes", "tensor-maps"],
        variant={"steps": [first, step(args=[["arena", 0], ["int", [0]]], maps=maps)]},
    )
    for launch_ in read["variants"][0]["steps"]:
        launch_["use"] = 0
    del read["kernels"][0]["uses"][1]
    plan = Plan.from_map(read).at([7])
    one, other = plan.launches
    assert one.maps is other.maps
    assert one.maps[0].shape == (7, 8)
    assert one.args[1] is other.args[1]
    assert plan.parameters == ((("write", 0), ("int", 7)),) * 2


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_a_plan_at_sizes_is_that_of_its_parts(size):
    rows = [*ROWS[:4], ["number", -1, 0], ["add", 0, 5]]
    steps = [
        step(args=[["arena", 0], ["int", [0]]]),
        step(grid=[[6], 2, 1], args=[["output", 0], ["arena", [0]]]),
        step(grid=[3, 1, 1], args=[["weight", "w"], ["int", 5]]),
    ]
    plan = Plan.from_map(tree(sizes=rows, variant={"steps": steps}))
    number = reader(evaluate(plan.sizes, [size]))
    expected = plan._variant_at(0, number)
    found = plan.at([size])
    assert (found.steps, found.buffers) == (expected.steps, expected.buffers)
    assert found.arena_bytes == expected.arena_bytes


def test_a_launch_without_programs_is_left_out():
    rows = [*ROWS[:4], ["number", -1, 0], ["add", 0, 5]]  # one program less than the dim
    plan = Plan.from_map(tree(sizes=rows, **launch(grid=[[6], 1, 1])))
    assert len(plan.at([2]).launches) == 1
    assert not plan.at([1]).launches


def test_it_comes_back_from_its_bytes():
    plan = Plan.from_map(tree())
    found = Plan.from_msgpack(plan.to_msgpack())
    assert found.to_map() == plan.to_map()
    assert found.at([7]) == plan.at([7])


def test_instructions():
    assert evaluate([tuple(row) for row in ROWS], [3]) == [3, 64, 192, 67, 3, 64]


GUARDED = ["dynamic-shapes", "guarded-sizes"]


def test_a_variant_is_read_at_sizes_of_a_call():
    """A buffer of two elements less than the dim: at the smallest size a number is below 0."""
    rows = [*ROWS[:4], ["number", -2, 0], ["add", 0, 5], ["number", 64, 0], ["mul", 6, 7]]
    buffers = [{"name": "b", "offset": 0, "nbytes": [8]}]
    parts = {"sizes": rows, "variant": {"arena_bytes": [8], "buffers": buffers, "steps": []}}
    plan = Plan.from_map(tree(**parts))
    with pytest.raises(BundleError):
        plan.at(*plan.lows[0])
    plan = Plan.from_map(tree(**parts, read_at=[[0, [3]]], features=GUARDED))
    assert plan.lows == [((3,), 0)]
    assert plan.at(*plan.lows[0]).arena_bytes == 64


MALFORMED = {
    "an unknown operation": tree(sizes=[["eval", 0, 0]]),
    "a row that is no row": tree(sizes=[["add", 0]]),
    "a row that names itself": tree(sizes=[["add", 0, 1]]),
    "a row that names a later one": tree(sizes=[["add", 0, 2], ["number", 1, 0]]),
    "a negative operand": tree(sizes=[["add", -1, 0]]),
    "a number beyond 62 bits": tree(sizes=[["number", VALUE_LIMIT + 1, 0]]),
    "a number that is none": tree(sizes=[["number", 1.5, 0]]),
    "a value that is not there": tree(variant={"arena_bytes": [99]}),
    "two values for one extent": tree(variant={"arena_bytes": [0, 1]}),
    "no dims": tree(dims=0),
    "too many dims": tree(dims=65),
    "no variant": tree(variants=[]),
    "ranges of another number of dims": tree(variant={"ranges": [[1, 2], [1, 2]]}),
    "a range from zero": tree(variant={"ranges": [[0, 2]]}),
    "a kernel that is not there": tree(**launch(kernel=1)),
    "an argument of an unknown space": tree(**launch(args=[["size", 0]])),
    "a limit that is no extent": tree(limits=["n"]),
    "a field too many": tree(colour=1),
    "sizes to read at without the feature": tree(read_at=[[0, [3]]]),
    "the feature without sizes to read at": tree(features=GUARDED),
    "sizes to read at that are outside": tree(read_at=[[0, [1 << 20]]], features=GUARDED),
    "sizes to read at of no variant": tree(read_at=[[1, [3]]], features=GUARDED),
    "sizes to read at of more dims": tree(read_at=[[0, [3, 3]]], features=GUARDED),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_plans_are_refused_when_read(name):
    with pytest.raises(BundleError):
        Plan.from_map(MALFORMED[name])


BROKEN = {
    "a division by zero": ([["number", 0, 0], ["floordiv", 0, 1]], {}, SizeInvalid),
    "a division by less": ([["number", -2, 0], ["floordiv", 0, 1]], {}, SizeInvalid),
    "a product too large": (
        [["number", 1 << 61, 0], ["mul", 1, 1]], {}, SizeInvalid,
    ),
    "a tensor too large": (
        [["number", 1 << 31, 0], ["mul", 0, 1]], {"limits": [[2]]}, SizeInvalid,
    ),
    "a grid below nothing": (
        [["number", -1, 0]], launch(grid=[[1], 1, 1]), BundleError,
    ),
    "a negative buffer": (
        [["number", -64, 0]],
        {"variant": {"buffers": [{"name": "b", "offset": 0, "nbytes": [1]}]}},
        BundleError,
    ),
    "a buffer beyond the arena": (
        [["number", 64, 0]],
        {"variant": {"arena_bytes": 64, "buffers": [{"name": "b", "offset": [1], "nbytes": 64}]}},
        BundleError,
    ),
    "an address outside of all buffers": (
        [["number", 1 << 20, 0]], launch(args=[["arena", [1]]]), BundleError,
    ),
    "sizes of no variant": (
        [["number", 1, 0]], {"variant": {"ranges": [[1, 5]], "arena_bytes": 0,
                                         "buffers": [], "steps": []}}, BundleError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_plans_that_break_at_some_sizes(name):
    rows, changes, kind = BROKEN[name]
    # The rest of the plan names no value that these rows lack.
    plain = {"arena_bytes": 64, "buffers": [], "steps": []}
    changes = {**changes, "variant": plain | changes.get("variant", {})}
    plan = Plan.from_map(tree(sizes=rows, **changes))
    with pytest.raises(kind):
        plan.at([7])


# -- signatures ------------------------------------------------------------------------------------

BATCH, TWICE = Extent(0, "batch"), Extent(2, "2*batch")
SIGNATURE = Signature(
    (TensorSpec("x", "f32", (BATCH, 4)), TensorSpec("y", "f32", (TWICE,))),
    (TensorSpec("z", "f32", (TWICE, 4)),),
    (Dim("batch", 2, 9, 0, 0),),
    [("number", 2, 0), ("mul", 0, 1), ("number", -8, 0), ("add", 0, 3)],
    (Guard(4, -(1 << 40), 0, "batch <= 8"),),
)


def test_sizes_are_read_and_put_to_use():
    values = SIGNATURE.bind([(3, 4), (6,)])
    assert values[:1] == [3]
    inputs, outputs = SIGNATURE.at(values)
    assert [spec.shape for spec in (*inputs, *outputs)] == [(3, 4), (6,), (6, 4)]


REFUSED = [
    ([(1, 4), (2,)], SizeOutOfRange, ["`batch` is 1", "input `x`, dim 0", "expected 2 to 9"]),
    ([(10, 4), (20,)], SizeOutOfRange, ["`batch` is 10", "expected 2 to 9"]),
    ([(3, 5), (6,)], FixedSizeMismatch, ["input `x` has 5 at dim 1", "expected 4"]),
    ([(3, 4), (7,)], SizeMismatch, ["input `y` has 7 at dim 0", "6 (`2*batch`", "input `x`"]),
    ([(3, 4, 1), (6,)], InputRank, ["rank 3"]),
    ([(9, 4), (18,)], SizeGuard, ["batch <= 8", "batch = 9"]),
]


@pytest.mark.parametrize(("shapes", "kind", "words"), REFUSED)
def test_shapes_that_do_not_fit_are_named(shapes, kind, words):
    with pytest.raises(kind) as caught:
        SIGNATURE.bind(shapes)
    for word in words:
        assert word in str(caught.value)


def test_a_size_that_is_not_whole():
    odd = Signature(
        (TensorSpec("y", "f32", (Extent(2, "2*n"),)),), (), (Dim("n", 1, 9, 0, 0, 2),),
        [("number", 2, 0), ("mul", 0, 1)], (),
    )  # fmt: skip
    assert odd.bind([(6,)])[0] == 3
    with pytest.raises(SizeMismatch, match=r"`2\*n` for a whole `n`"):
        odd.bind([(7,)])


def manifest(*more, **changes):
    fields = {
        "name": "forward",
        "inputs": SIGNATURE.inputs,
        "outputs": SIGNATURE.outputs,
        "dims": SIGNATURE.dims,
        "sizes": tuple(SIGNATURE.rows),
        "guards": SIGNATURE.guards,
    }
    return Manifest.made(
        targets=(Target("null", "null", PLAN_ABI, (), "p", "l"),),
        entries=(Entry(**(fields | changes)), *more),
        weights=None,
        files=(),
    )


WRONG_MANIFESTS = {
    "a formula without dims": {"dims": (), "sizes": (), "guards": ()},
    "no name": {"name": ""},
    "a name that is none": {"name": "../up"},
    "a dim of no input": {"dims": (Dim("batch", 2, 9, 5, 0),)},
    "a dim of no axis": {"dims": (Dim("batch", 2, 9, 0, 2),)},
    "a range that is empty": {"dims": (Dim("batch", 9, 2, 0, 0),)},
    "a shape of no value": {"outputs": (TensorSpec("z", "f32", (Extent(9, "9"),)),)},
    "a guard of no value": {"guards": (Guard(9, 0, 1, "x"),)},
    "rows that name later ones": {"sizes": (("add", 5, 5),)},
}


@pytest.mark.parametrize("name", WRONG_MANIFESTS)
def test_manifests_that_do_not_hang_together(name):
    with pytest.raises(BundleError):
        manifest(**WRONG_MANIFESTS[name]).to_bytes()
