"""Outlines of variants: what they accept the rules accept, and gives the same plan."""

from __future__ import annotations

import random

import pytest
from plan_trees import with_uses

from aotc.runtime.bundle import launch_plan, outline
from aotc.runtime.bundle.extent import evaluate, reader
from aotc.runtime.bundle.launch_plan import LaunchPlan
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import PLAN_ABI, Plan
from aotc.runtime.bundle.plan_rules import check_reach, check_relations, check_steps
from aotc.runtime.bundle.whole import whole_bytes
from aotc.runtime.errors import AotcError

# Values: n, 64, 64·n, 64·n + 64, n - 1, 16·n, -1.
ROWS = [
    ["number", 64, 0],
    ["mul", 0, 1],
    ["add", 2, 1],
    ["number", -1, 0],
    ["add", 0, 4],
    ["number", 16, 0],
    ["mul", 0, 6],
]
IMAGE = {"offset": 0, "nbytes": 8, "threads": 32, "shared_bytes": 0, "is_programmatic": 0}
WEIGHTS = {"w": 128}
SIGNATURE = (
    (TensorSpec("x", "u8", (640,)),),
    (TensorSpec("y", "u8", (640,)),),
)


def number_of(draw: random.Random, *plain: int):
    """A number that is written out, or one of the plan's values."""
    return draw.choice([*plain, [draw.randrange(1 + len(ROWS))]])


def map_of(draw: random.Random):
    """A tensor map, seldom one that no device takes."""
    return {
        "argument": draw.choice([0, 0, 0, 1, 7]),
        "dtype": draw.choice(["bf16", "f32"]),
        "start": draw.choice([0, 0, 8, 3]),
        "shape": [number_of(draw, 4), 16],
        "strides": [number_of(draw, 16, 24), draw.choice([1, 1, 1, 1, 2])],
        "box": [2, 16],
        "swizzle_bytes": draw.choice([0, 32, 64, 128]),
    }


def variant_of(draw: random.Random, kernels: list):
    """Buffers side by side and launches on them; a few numbers are wrong."""
    buffers = [
        {"name": "a", "offset": 0, "nbytes": [2]},
        {"name": "b", "offset": [2], "nbytes": draw.choice([64, 64, [1], number_of(draw, 1)])},
    ]
    if not draw.randrange(6):
        buffers[draw.randrange(2)]["offset"] = number_of(draw, 64, 8)
    steps = []
    for _ in range(draw.randrange(1, 5)):
        kernel, args, parameters = draw.randrange(len(kernels)), [], []
        for space in ("arena", draw.choice(["arena", "weight", "input", "output", "int"])):
            value = {"weight": "w", "arena": draw.choice([0, 0, [2], number_of(draw, 64)])}
            args.append([space, value.get(space, 0)])
            kind = {"int": "int", "weight": "read", "input": "read"}.get(space, "write")
            if space == "arena" and not draw.randrange(8):
                kind = "zeroed"
            reach = 0 if kind == "int" else draw.choice([0, 64, 1, [2], number_of(draw, 640)])
            parameters.append([kind, reach])
        grid = [number_of(draw, 1), number_of(draw, 1), 1]
        maps = [map_of(draw) for _ in range(draw.choice([0, 0, 1]))]
        use = {"grid": grid, "maps": maps, "parameters": parameters, "ranges": [[1, 100]]}
        kernels[kernel]["uses"].append(use)
        number = len(kernels[kernel]["uses"]) - 1
        row = {"kind": "kernel", "kernel": kernel, "use": number, "grid": grid}
        steps.append(row | {"args": args, "maps": maps})
    return {
        "arena_bytes": draw.choice([[3], [3], [3], number_of(draw, 640)]),
        "zeroed_bytes": draw.choice([0, 0, 64]),
        "entry": 0,
        "ranges": [[1, 100]],
        "buffers": buffers,
        "checks": [check_of(draw) for _ in range(draw.choice([0, 1, 2]))],
        "steps": steps,
    }


def check_of(draw: random.Random):
    """A check of indices, whose ends may be values of the plan."""
    ends = {"low": number_of(draw, 0), "high": number_of(draw, 9)}
    return {"kind": "index", "operation": "take", "place": "m.py:1", **ends}


def plan_of(seed: int) -> Plan:
    """A plan of one dim drawn by the seed."""
    draw = random.Random(seed)
    kernels = [
        {"symbol": "k", "name": "k", "image": IMAGE | {"scratch_bytes": 0}, "uses": []},
        {"symbol": "s", "name": "s", "image": IMAGE | {"scratch_bytes": 32}, "uses": []},
    ]
    variant = variant_of(draw, kernels)
    has_maps = any(step["maps"] for step in variant["steps"])
    return Plan.from_map(
        {
            "abi": PLAN_ABI,
            "dims": 1,
            "features": [
                *["data-checks"] * bool(variant["checks"]),
                "dynamic-shapes",
                *["tensor-maps"] * has_maps,
            ],
            "states": [],
            "sizes": ROWS,
            "limits": [],
            "scratch_bytes": 0,
            "kernels": kernels,
            "variants": [variant],
        }
    )


def in_full(plan: Plan, dims: list[int]) -> LaunchPlan | None:
    """The plan at these sizes by the rules alone; None where they refuse it."""
    try:
        found = plan._launch_plan(0, reader(evaluate(plan.sizes, dims)))
        check_relations(found, "plan")
        plan._check_grids(found)
    except AotcError:
        return None
    return found


def reach_holds(found: LaunchPlan) -> bool:
    """Whether the rules alone find no kernel that reaches beyond its memory."""
    try:
        check_reach(found, whole_bytes(SIGNATURE, WEIGHTS), "plan")
    except AotcError:
        return False
    return True


def test_what_an_outline_accepts_the_rules_accept():
    """And but for launches without programs and buffers without bytes what they accept it does."""
    seen = {"accepted": 0, "left to the rules": 0, "refused": 0, "beyond its memory": 0}
    for seed in range(4000):
        plan = plan_of(seed)
        for size in (1, 2, 5):
            expected = in_full(plan, [size])
            made = plan._outline(0)
            found = made and made.at(evaluate(plan.sizes, [size]), (), plan.scratch_bytes)
            if not found:
                is_refused = expected is None or not reach_holds(expected)
                seen["refused" if is_refused else "left to the rules"] += 1
                assert is_refused or has_nothing(plan, size), f"seed {seed}, size {size}"
                continue
            assert expected is not None, f"seed {seed}, size {size}"
            assert found.spaces == expected.spaces
            assert found.step_count == len(expected.steps)
            assert found == expected, f"seed {seed}, size {size}"
            reaches = found.outlined.reaches(found, SIGNATURE, WEIGHTS)
            assert reaches == reach_holds(expected), f"seed {seed}, size {size}"
            seen["accepted" if reaches else "beyond its memory"] += 1
    assert min(seen.values()) >= 40, seen


def has_nothing(plan: Plan, size: int) -> bool:
    """Whether a launch has no programs, or a buffer no bytes."""
    number, variant = reader(evaluate(plan.sizes, [size])), plan.variants[0]
    numbers = [each for step in variant.steps for each in step.grid]
    return 0 in map(number, [*numbers, *(row.nbytes for row in variant.buffers)])


def simple(rows=ROWS, /, **changes) -> Plan:
    """A plan that holds at all sizes: n programs on a buffer of 64·n bytes."""
    variant = {
        "arena_bytes": [2],
        "zeroed_bytes": 0,
        "entry": 0,
        "ranges": [[1, 100]],
        "buffers": [{"name": "a", "offset": 0, "nbytes": [2]}],
        "checks": [],
        "steps": [
            {"kind": "kernel", "kernel": 0, "grid": [[0], 1, 1], "args": [["arena", 0]], "maps": []}
        ]
        * 3,
    }
    tree = {
        "abi": PLAN_ABI,
        "dims": 1,
        "features": ["dynamic-shapes"],
        "states": [],
        "sizes": [list(row) for row in rows],
        "limits": [],
        "scratch_bytes": 0,
        "kernels": [{"symbol": "k", "name": "k", "image": None}],
        "variants": [variant | changes],
    }
    return Plan.from_map(with_uses(tree))


def test_new_sizes_make_no_launch_and_read_no_variant(monkeypatch):
    plan = simple()
    made: list[str] = []
    for owner, name in (
        (outline, "at_sizes"), (launch_plan, "LaunchesAtSizes"), (outline.Outline, "__init__"),
    ):  # fmt: skip
        known = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *a, _known=known, _name=name: made.append(_name) or _known(*a)
        )
    for size in (3, 4, 50):
        check_steps(plan.at([size]), (), (), SIGNATURE, WEIGHTS, "plan")
    assert made == ["__init__"]
    assert plan.at([7]).launches[2].grid == (7, 1, 1)
    assert made == ["__init__", "at_sizes", "LaunchesAtSizes"]


def test_values_of_equal_sizes_are_evaluated_once(monkeypatch):
    from aotc.runtime.bundle import plan as plans

    plan, calls = simple(), []
    known = plans.evaluate_line
    monkeypatch.setattr(plans, "evaluate_line", lambda *a: calls.append(a) or known(*a))
    for size in (3, 3, 4, 4, 4):
        plan.at([size])
    assert len(calls) == 2


def test_a_plan_with_other_steps_is_made_in_full():
    plan = simple()
    variant = plan.variants[0]
    call = object()
    assert outline.outline_of(plan.kernels, variant.replace(steps=(call,)), 1) is None


@pytest.mark.parametrize("part", ["steps", "buffers", "parameters"])
def test_a_part_is_made_when_it_is_asked_for(part):
    plan = simple()
    found = plan.at([5])
    assert found.outlined is not None
    assert getattr(found, part) == getattr(in_full(plan, [5]), part)
    assert getattr(found, part) is getattr(found, part)
    with pytest.raises(AttributeError, match="no `colour`"):
        _ = found.colour
    assert found.replace(arena_bytes=1).outlined is None


LARGE = [
    ["number", 60_000, 0],
    ["mul", 0, 1],
    ["number", 64, 0],
    ["mul", 0, 3],
]  # 60,000 · n, 64 · n


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"grid": [[2], [2], 1]}, "3600000000 programs"),
        ({"zeroed_bytes": 128}, "is 128, expected at most the arena's 64 bytes"),
    ],
)
def test_what_only_large_numbers_break_is_refused(changes, found):
    grid = changes.pop("grid", [[0], 1, 1])
    step = {"kind": "kernel", "kernel": 0, "grid": grid, "args": [["arena", 0]], "maps": []}
    plan = simple(
        LARGE, steps=[step], arena_bytes=[4], buffers=[{"name": "a", "offset": 0, "nbytes": [4]}],
        **changes,
    )  # fmt: skip
    values = evaluate(plan.sizes, [1])
    made = plan._outline(0)
    assert made is not None
    assert made.at(values, (), 0) is None
    with pytest.raises(AotcError, match=found):
        plan.at([1])
