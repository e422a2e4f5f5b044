"""Plans that call torch: what they compute, and that no altered one is run."""

from __future__ import annotations

import copy
import struct

import pytest
import small_torch_bundle
from hypothesis import given, settings
from hypothesis import strategies as st
from test_fuzz import changed as randomly_changed

from aotc.runtime import load
from aotc.runtime.bundle.canonical import encode
from aotc.runtime.bundle.manifest import Manifest
from aotc.runtime.bundle.plan import PLAN_ABI, Plan
from aotc.runtime.bundle.plan_rules import check_steps
from aotc.runtime.errors import (
    AotcError,
    BundleError,
    BundleLimit,
    BundleMalformed,
    IncompatibleError,
)

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PLAN = Plan.of(small_torch_bundle.plan()).to_map()
OPS = ("aten::sort.stable", "aten::sub.Tensor")


@pytest.fixture
def path(tmp_path):
    small_torch_bundle.write(tmp_path / "bundle")
    return tmp_path / "bundle"


def test_launches_and_calls_run_in_the_plans_order(path):
    with load(path) as program:
        y, order = program(struct.pack("<6f", *small_torch_bundle.INPUT))
        assert struct.unpack("<6f", y) == small_torch_bundle.OUTPUT
        assert struct.unpack("<6q", order) == small_torch_bundle.ORDER
        assert program.fallback_calls == dict.fromkeys(OPS, 1)
        assert [getattr(step, "op", "launch") for step in program.plan.at().steps] == [
            "launch", "aten::sub.Tensor", "aten::sort.stable", "launch",
        ]  # fmt: skip


def test_a_plan_survives_its_bytes():
    plan = Plan.of(small_torch_bundle.plan())
    assert Plan.from_msgpack(plan.to_msgpack()) == plan
    assert plan.to_map() == PLAN


def changed(*path, to):
    tree = copy.deepcopy(PLAN)
    holder = tree
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = to
    return tree


STEPS = ("variants", 0, "steps")
CALL, SORT = (*STEPS, 1), (*STEPS, 2)
OPERAND = (*CALL, "operands", 0)
TAMPERED = {
    "a plan that hides its calls": changed("features", to=[]),
    "a kind of none": changed(*CALL, "kind", to="jump"),
    "a kernel without one": changed(*CALL, "kind", to="kernel"),
    "an operand that is not there": changed(*CALL, "arguments", 0, 2, to=2),
    "an operand that is not there, in a list": changed(
        *CALL, "arguments", 0, to=["", "list", [["list", [["tensor", 9]]]]]
    ),
    "an unknown kind": changed(*CALL, "arguments", 0, 1, to="code"),
    "a keyword that is no word": changed(*CALL, "arguments", 0, 0, to="\n"),
    "a number as a bool": changed(*SORT, "arguments", 2, 2, to=2),
    "a float as it is not written": changed(*CALL, "arguments", 2, 2, to="0x1p0"),
    "a float that is none": changed(*CALL, "arguments", 2, 2, to="one"),
    "a name of no op": changed(*CALL, "op", to="os.system"),
    "a name that leaves the registry": changed(*CALL, "op", to="aten::__class__.__base__.x"),
    "beyond its buffer": changed(*OPERAND, "shape", to=[2, 4]),
    "between buffers": changed(*OPERAND, "memory", to=["arena", 32]),
    "outside of the arena": changed(*OPERAND, "memory", to=["arena", 4096]),
    "more bytes than a machine has": changed(*OPERAND, "shape", to=[1 << 40, 1 << 40]),
    "no memory at all": changed(*OPERAND, "memory", to=["int", 5]),
    "a result in a weight": changed(*CALL, "results", 0, "memory", to=["weight", "layer.weight"]),
    "a result in an input": changed(*CALL, "results", 0, "memory", to=["input", 0]),
    "no results": changed(*CALL, "results", to=[]),
    "an unknown element type": changed(*OPERAND, "dtype", to="complex64"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_plan_that_was_tampered_with_is_refused(what):
    with pytest.raises((BundleMalformed, BundleLimit)):
        Plan.from_msgpack(encode(TAMPERED[what]))


USES = {
    "an input that is not there": changed(*OPERAND, "memory", to=["input", 1]),
    "an output that is not there": changed(*CALL, "results", 0, "memory", to=["output", 2]),
    "a weight that is not there": changed(*CALL, "operands", 1, "memory", to=["weight", "bias"]),
    "more than the weight": changed(*CALL, "operands", 1, "shape", to=[4]),
    "less than the input": {**changed(*OPERAND, "memory", to=["input", 0])},
    "an op that the manifest does not list": changed(*CALL, "op", to="aten::add.Tensor"),
}
USES["less than the input"]["variants"][0]["steps"][1]["operands"][0]["shape"] = [3]


def check(tree):
    """All checks that `load` makes of a plan."""
    plan = Plan.from_msgpack(encode(tree))
    plan.validate([(1, 2)], {"layer.weight"}, "plan", None)
    contents = small_torch_bundle.contents()
    signature = (contents.entries[0].inputs, contents.entries[0].outputs)
    check_steps(plan.at(), OPS, (), signature, {"layer.weight": 12}, "plan")
    return plan


@pytest.mark.parametrize("what", USES)
def test_a_plan_that_does_not_fit_its_bundle_is_refused(what):
    with pytest.raises(BundleMalformed):
        check(USES[what])


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_random_changes_are_refused_by_type_or_stay_in_bounds(data):
    tree = randomly_changed(PLAN, data)
    try:
        plan = check(tree)
    except (BundleError, IncompatibleError):
        return
    assert plan.to_map() == tree
    plan = plan.at()
    for call in plan.calls:
        assert call.op in OPS
        for tensor in call.tensors():
            if tensor.memory[0] == "arena":
                assert tensor.memory[1] + tensor.nbytes <= plan.arena_bytes


def manifest(path):
    return Manifest.from_bytes((path / "manifest.msgpack").read_bytes())


def test_the_manifest_lists_the_ops_under_a_critical_feature(path):
    found = manifest(path)
    assert found.features == ("torch",)
    assert found.torch == OPS
    assert [target.abi for target in found.targets] == [PLAN_ABI]


@pytest.mark.parametrize(
    "fields",
    [
        {"features": ()},
        {"torch": ()},
        {"torch": ("aten::sort.stable", "aten::sort.stable")},
        {"torch": ("import os",)},
    ],
)
def test_a_manifest_whose_ops_and_features_disagree_is_refused(path, fields):
    found = manifest(path)
    values = {name: getattr(found, name) for name in Manifest.__slots__}
    with pytest.raises(BundleMalformed):
        Manifest(**{**values, **fields}).to_bytes()


def rewrite(path, **fields):
    """The bundle's manifest with other fields, and a digest that fits."""
    found = manifest(path)
    values = {name: getattr(found, name) for name in Manifest.__slots__}
    file = path / "manifest.msgpack"
    file.chmod(0o644)
    file.write_bytes(Manifest(**{**values, **fields}).to_bytes())


def test_an_op_that_the_manifest_hides_is_not_run(path):
    rewrite(path, torch=OPS[:1])
    with pytest.raises(BundleMalformed, match="an op that the manifest lists"):
        load(path)


@pytest.mark.parametrize("name", ["aten::no_such_op", "aten::sort.no_such", "nolibrary::x", "_::_"])
def test_names_that_torch_does_not_know_are_named(path, name):
    rewrite(path, torch=(*OPS, name))
    with pytest.raises(AotcError) as caught:
        load(path)
    assert caught.value.code == "fallback-unavailable"
    assert caught.value.ops == (name,)
