"""Random changes of valid manifests and plans, with valid digests: refused by type, or equal."""

from __future__ import annotations

import copy

import small_bundle
from hypothesis import given, settings
from hypothesis import strategies as st

from aotc.aot.pack.tensors import tensor_file
from aotc.runtime.bundle.canonical import encode
from aotc.runtime.bundle.frame import frame, unframe
from aotc.runtime.bundle.manifest import MANIFEST_SCHEMA as SCHEMA
from aotc.runtime.bundle.manifest import Manifest
from aotc.runtime.bundle.plan import Plan
from aotc.runtime.bundle.weights import read_header
from aotc.runtime.errors import BundleError, IncompatibleError

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 1, 63, 64, 65, 1 << 31, 1 << 40, (1 << 63) - 1, -1]),
    st.text(max_size=8),
    st.sampled_from(["", ".", "..", "a/b", "/", "weight", "input", "x" * 200]),
    st.binary(max_size=40),
    st.lists(st.integers(0, 5), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(0, 5), max_size=3),
)


def places(tree, path=()) -> list[tuple]:
    """Paths of every value inside a tree of maps and lists."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    found = []
    for key, value in items:
        found.append((*path, key))
        if isinstance(value, (dict, list)):
            found += places(value, (*path, key))
    return found


def changed(tree, data):
    """A copy of `tree` with one to three values replaced, removed or repeated."""
    tree = copy.deepcopy(tree)
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(places(tree)))
        holder = tree
        for key in parents:
            holder = holder[key]
        action = data.draw(st.sampled_from(["replace", "remove", "repeat"]))
        if action == "replace" or (isinstance(holder, dict) and action == "repeat"):
            holder[last] = data.draw(VALUES)
        elif action == "remove":
            del holder[last]
        else:
            holder.append(copy.deepcopy(holder[last]))
        if not places(tree):
            break
    return tree


PLAN = Plan.of(small_bundle.copy_plan(24, 24)).to_map()


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_plans(data):
    tree = changed(PLAN, data)
    try:
        plan = Plan.from_msgpack(encode(tree))
        plan.validate([(1, 2)], {"layer.weight"}, "plan", None)
    except (BundleError, IncompatibleError):
        return
    assert plan.to_map() == tree
    plan = plan.at()
    for launch in plan.launches:
        x, y, z = launch.grid
        assert 0 < x * y * z < 1 << 31
        for space, value in launch.args:
            assert space != "arena" or 0 <= value < plan.arena_bytes
            assert space != "input" or value == 0
            assert space != "output" or value in (0, 1)


def test_manifests(bundle):
    data = (bundle / "manifest.msgpack").read_bytes()
    base = unframe(data, "x", SCHEMA)

    @settings(max_examples=400, deadline=None)
    @given(st.data())
    def fuzz(data):
        tree = changed(base, data)
        try:
            manifest = Manifest.from_bytes(frame(tree))
        except (BundleError, IncompatibleError):
            return
        assert manifest.to_map() == tree

    fuzz()


WEIGHTS = b"".join(bytes(part) for part in tensor_file(small_bundle.contents().weights))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_weights_headers(data):
    damaged = bytearray(WEIGHTS)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, 250))
        damaged[position] = data.draw(st.integers(0, 255) | st.sampled_from(list(b'0123456789,"')))
    try:
        tensors = read_header(bytes(damaged), "x")
    except BundleError:
        return
    for tensor in tensors.values():
        assert 8 <= tensor.offset <= tensor.offset + tensor.nbytes <= len(damaged)
