"""Plans with blocks of steps: what they do on a fake device, and that no false one is run."""

from __future__ import annotations

import copy
from dataclasses import replace

import device_bundle
import pytest
from fake_cubin import text_image
from hypothesis import given, settings
from hypothesis import strategies as st
from one_entry import one_entry

from aotc.aot.pack import Golden, TargetContents, TensorData, pack
from aotc.runtime import load
from aotc.runtime.bundle.canonical import encode
from aotc.runtime.bundle.control_steps import DEPTH_LIMIT, ControlStep
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import (
    Buffer,
    Image,
    Kernel,
    Launch,
    LaunchPlan,
    Plan,
)
from aotc.runtime.bundle.plan_rules import check_steps
from aotc.runtime.drivers.blocks import in_blocks, unrolled
from aotc.runtime.errors import (
    BundleError,
    BundleLimit,
    BundleMalformed,
    EnvironmentFault,
    PlanFeatureUnknown,
)

ONE = (1, 1, 1)
COPY, ADD = 0, 1
COUNT, TOTAL = ("arena", 0), ("arena", 64)
SPECS = (TensorSpec("count", "u8", (1,)), TensorSpec("flag", "bool", ()))


def copied(to, source):
    return Launch(COPY, ONE, (to, source, ("int", 1)))


def added(to, value):
    return Launch(ADD, ONE, (to, ("int", value)))


# total = 0; while count: count -= 1, total += 1 if flag else 2; three times: total += 10.
STEPS = (
    copied(COUNT, ("input", 0)),
    copied(TOTAL, ("weight", "zero")),
    ControlStep("while", COUNT),
    added(COUNT, -1),
    ControlStep("if", ("input", 1)),
    added(TOTAL, 1),
    ControlStep("else"),
    added(TOTAL, 2),
    ControlStep("end"),
    ControlStep("end"),
    ControlStep("repeat", None, 3),
    added(TOTAL, 10),
    ControlStep("repeat", None, 0),
    added(TOTAL, 100),
    ControlStep("end"),
    ControlStep("end"),
    copied(("output", 0), TOTAL),
)


def expected(count, flag):
    return count * (1 if flag else 2) + 30


def plan(image):
    row = Image(0, len(image), 32, 0, 0)
    buffers = (Buffer("count", 0, 1), Buffer("total", 64, 1))
    kernels = (Kernel("copy", "copy", row), Kernel("add", "add", row))
    return Plan.of(LaunchPlan(128, 0, buffers, kernels, STEPS))


IMAGE = text_image({"copy": 5, "add": 4}, 90)
TREE = plan(IMAGE).to_map()


def add(memory, grid, values):
    """The kernel: a number is added to a byte."""
    to, value = values[:2]
    cell = memory(to, 1)
    cell[0] = (cell[0][0] + value if isinstance(cell[0], bytes) else cell[0] + value) % 256


@pytest.fixture
def cuda(fake_cuda):
    fake_cuda.kernels["copy"], fake_cuda.kernels["add"] = device_bundle.copy, add
    return fake_cuda


@pytest.fixture
def path(tmp_path):
    target = TargetContents("cuda-sm_90", "cuda", ("sm_90",), plan(IMAGE), IMAGE)
    result = TensorData("u8", (1,), bytes([expected(3, True)]))
    contents = one_entry(
        inputs=SPECS,
        outputs=(TensorSpec("total", "u8", (1,)),),
        targets=(target,),
        weights={"zero": TensorData("u8", (1,), b"\0")},
        golden=Golden(
            (TensorData("u8", (1,), b"\3"), TensorData("bool", (), b"\1")), (result,), (0.0,)
        ),
    )
    pack(replace(contents), tmp_path / "bundle")
    return tmp_path / "bundle"


def test_a_device_reads_its_conditions(path, cuda):
    with load(path) as program:
        for count, flag in ((3, True), (0, True), (5, False), (1, False), (3, True)):
            found = program(bytes([count]), bytes([flag]))
            assert bytes(found) == bytes([expected(count, flag)])
        given_count = bytearray(b"\2")
        with program.bind(given_count, b"\0") as bound:
            for count in (2, 7):
                given_count[0] = count
                assert bytes(bound()) == bytes([expected(count, False)])
    assert cuda.live() == {}


def test_arrays_of_the_device_and_a_stream_of_the_callers(path, cuda):
    with load(path) as program:
        count, flag = (device_bundle.DeviceBlock(each) for each in (b"\4", b"\0"))
        found = program(
            device_bundle.Lender(count, "u8", (1,)), device_bundle.Lender(flag, "bool", ())
        )
        cuda.settle()
        assert bytes(cuda.memory(found.address, 1)) == bytes([expected(4, False)])
        del found, count, flag


def test_what_does_not_fit_leaves_nothing_behind(path, cuda):
    for name in ("cuMemAlloc_v2", "cuGraphCreate", "cuMemHostAlloc"):
        cuda.fail(name, 2, nth=1)
        with pytest.raises(EnvironmentFault), load(path) as program:
            program(b"\1", b"\1")
        assert cuda.live() == {}, name


# -- plans that are false --------------------------------------------------------------------------


def changed(*path, to):
    tree = copy.deepcopy(TREE)
    holder = tree
    for key in path[:-1]:
        holder = holder[key]
    if to is None and path[-1] is not None and isinstance(holder, list):
        del holder[path[-1]]
    else:
        holder[path[-1]] = to
    return tree


ALL = ("variants", 0, "steps")
NUMBERS = {step.text: number for number, step in enumerate(STEPS) if isinstance(step, ControlStep)}
WHILE, IF, REPEAT = (NUMBERS[word] for word in ("while", "if", "repeat 3"))
MARK = {"kind": "control", "word": "end", "condition": None, "count": 0}


def with_steps(*rows):
    """The plan with marks behind its steps."""
    steps = [*TREE["variants"][0]["steps"], *({**MARK, **row} for row in rows)]
    return changed(*ALL, to=steps)


BEGIN = {"word": "repeat", "count": 1}
FALSE = {
    "a plan that hides its blocks": changed("features", to=[]),
    "a block without an end": changed(*ALL, len(STEPS) - 2, to=None),
    "a loop without an end": with_steps({"word": "while", "condition": list(COUNT)}),
    "an end of no block": with_steps({"word": "end"}),
    "an else of no block": with_steps({"word": "else"}, {"word": "end"}),
    "an else of a loop": with_steps(BEGIN, {"word": "else"}, {"word": "end"}),
    "two parts of one choice": with_steps(
        {"word": "if", "condition": list(COUNT)}, *[{"word": "else"}] * 2, {"word": "end"}
    ),
    "too many blocks within each other": with_steps(
        *[BEGIN] * (DEPTH_LIMIT + 1), *[{"word": "end"}] * (DEPTH_LIMIT + 1)
    ),
    "a word of none": changed(*ALL, IF, "word", to="jump"),
    "a choice without a condition": changed(*ALL, IF, "condition", to=None),
    "a condition of what has none": changed(*ALL, REPEAT, "condition", to=list(COUNT)),
    "a count of what has none": changed(*ALL, WHILE, "count", to=1),
    "a count below 0": changed(*ALL, REPEAT, "count", to=-1),
    "a count beyond any tensor": changed(*ALL, REPEAT, "count", to=1 << 31),
    "a condition between buffers": changed(*ALL, WHILE, "condition", to=["arena", 32]),
    "a condition outside of the arena": changed(*ALL, WHILE, "condition", to=["arena", 1 << 30]),
    "a number as a condition": changed(*ALL, WHILE, "condition", to=["int", 1]),
    "a word of the checks as a condition": changed(*ALL, WHILE, "condition", to=["check", 0]),
}
FALSE["a choice without a condition"]["variants"][0]["steps"][IF]["condition"] = None
OF_ITS_BUNDLE = {
    "an input that is not there": changed(*ALL, IF, "condition", to=["input", 2]),
    "a weight that is not there": changed(*ALL, IF, "condition", to=["weight", "one"]),
    "a state that is not there": changed(*ALL, IF, "condition", to=["state", 0]),
    "an input of more bytes": changed(*ALL, IF, "condition", to=["weight", "long"]),
}


def check(tree):
    """All checks that `load` makes of a plan."""
    found = Plan.from_msgpack(encode(tree))
    weights = {"zero": 1, "long": 2}
    found.validate([(2, 1)], weights, "plan", len(IMAGE))
    signature = SPECS, (TensorSpec("total", "u8", (1,)),)
    check_steps(found.at(), (), (), signature, weights, "plan")
    return found


def test_the_plan_survives_its_bytes_and_has_a_critical_feature():
    found = check(TREE)
    assert found.to_map() == TREE
    assert found.features == ("control-flow",)
    assert found.at().has_blocks
    with pytest.raises(PlanFeatureUnknown, match="control-flows"):
        Plan.from_msgpack(encode({**TREE, "features": ["control-flows"]}))


@pytest.mark.parametrize("what", FALSE)
def test_a_false_plan_is_refused(what):
    with pytest.raises((BundleMalformed, BundleLimit)):
        Plan.from_msgpack(encode(FALSE[what]))


@pytest.mark.parametrize("what", OF_ITS_BUNDLE)
def test_a_plan_that_does_not_fit_its_bundle_is_refused(what):
    with pytest.raises(BundleMalformed):
        check(OF_ITS_BUNDLE[what])


WORDS = st.sampled_from(("if", "else", "while", "repeat", "end"))


@settings(max_examples=300)
@given(st.lists(WORDS, max_size=12))
def test_marks_are_taken_where_they_are_blocks_within_each_other(words):
    rows = [
        {
            "word": word,
            "condition": list(COUNT) if word in ("if", "while") else None,
            "count": int(word == "repeat"),
        }
        for word in words
    ]
    opened, is_right = [], True
    for word in words:
        if word == "end":
            is_right &= bool(opened) and bool(opened.pop())
        elif word == "else":
            is_right &= opened[-1:] == ["if"]
            opened[-1:] = ["else"] if opened else []
        else:
            opened.append(word)
    try:
        check(with_steps(*rows))
    except BundleError:
        assert opened or not is_right
    else:
        assert not opened
        assert is_right


REPEATS = st.lists(
    st.one_of(
        st.tuples(st.just("repeat"), st.integers(0, 9)),
        st.tuples(st.sampled_from(("launch", "launch", "if", "end")), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=300)
@given(REPEATS, st.integers(0, 12))
def test_turns_together_are_the_same_launches(rows, most):
    steps, opened, value = [], 0, 0
    for word, count in rows:
        if word == "launch":
            value += 1
            steps.append(added(TOTAL, value))
        elif word == "end" and opened:
            opened -= 1
            steps.append(ControlStep("end"))
        elif word in ("repeat", "if"):
            opened += 1
            steps.append(ControlStep(word, None if count or word == "repeat" else TOTAL, count))
    steps += [ControlStep("end")] * opened
    together = unrolled(steps, most)
    assert run_of(together) == run_of(steps)
    inner = [step for step in together if type(step) is not ControlStep]
    assert len(inner) <= len(steps) + 2 * most * len(steps)


def run_of(steps):
    """The launches that run, each `if` being taken."""
    done = []

    def in_turn(runs):
        return lambda: [run() for run in runs]

    parts = [
        step if type(step) is ControlStep else (lambda step=step: done.append(step.args))
        for step in steps
    ]
    in_blocks(parts, in_turn, lambda mark: lambda: True, lambda run: run)()
    return done
