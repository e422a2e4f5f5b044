"""Plans and manifests: round trips, what they hold, and the tables that must agree."""

from __future__ import annotations

import pickle

import pytest
import small_bundle

from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.bundle.frame import frame
from aotc.runtime.bundle.manifest import Extras, FileEntry, Manifest, TensorSpec
from aotc.runtime.bundle.plan import Buffer, Kernel, Launch, LaunchPlan, Plan
from aotc.runtime.errors import BundleMalformed


def test_plan_round_trip():
    plan = Plan.of(small_bundle.copy_plan(24, 24))
    data = plan.to_msgpack()
    assert Plan.from_msgpack(data) == plan
    launches = small_bundle.copy_plan(24, 24).launches
    found = Plan.from_msgpack(data).at().launches
    assert [row.replace(use=0) for row in found] == list(launches)
    assert Plan.from_msgpack(data).to_msgpack() == data
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_any_msgpack_reader_reads_a_plan():
    import msgpack

    plan = Plan.of(small_bundle.copy_plan(24, 24))
    assert msgpack.unpackb(plan.to_msgpack()) == plan.to_map()


def test_records_are_immutable_values():
    kernel = Kernel("k", "softmax")
    assert kernel == Kernel("k", "softmax")
    assert len({kernel, Kernel("k", "softmax"), Kernel("k", "other")}) == 2
    assert repr(kernel) == "Kernel(symbol='k', name='softmax', image=None, uses=())"
    with pytest.raises(AttributeError):
        kernel.name = "x"


def test_the_writer_refuses_what_the_reader_would():
    for plan in (
        LaunchPlan(64, 0, (Buffer("b", 0, 65),), (), ()),
        LaunchPlan(64, 0, (), (Kernel("k", "k"),), (Launch(0, (0, 1, 1), ()),)),
        LaunchPlan(-1, 0, (), (), ()),
    ):
        with pytest.raises(BundleMalformed):
            Plan.of(plan)


def test_manifest_round_trip(bundle):
    data = (bundle / "manifest.msgpack").read_bytes()
    manifest = Manifest.from_bytes(data)
    assert manifest.to_bytes() == data
    assert manifest.entry().inputs == (TensorSpec("x", "f32", (2, 3)),)
    assert manifest.entry().inputs[0].nbytes == 24
    assert str(manifest.entry().inputs[0]) == "f32[2, 3]"
    with pytest.raises(BundleMalformed, match="`colour`"):
        Manifest.from_bytes(frame({**manifest.to_map(), "colour": 1}))


def test_extras_list_what_may_be_deleted(bundle):
    data = (bundle / "extras.msgpack").read_bytes()
    names = [entry.name for entry in Extras.from_bytes(data).files]
    assert names == ["golden.safetensors", "provenance.json", "sources/copy.py"]
    with pytest.raises(BundleMalformed):
        Extras((FileEntry("../x", 1, bytes(32)),)).to_bytes()


def test_dtypes_are_those_of_the_compiler():
    types = pytest.importorskip("aotc.aot.ir.types")
    assert {name: row.itemsize_bytes for name, row in DTYPES.items()} == {
        name: row.itemsize_bytes for name, row in types.DTYPES.items()
    }
