"""Plans and manifests with native functions that were altered: refused before native code runs."""

from __future__ import annotations

import copy
import hashlib
import tempfile
from pathlib import Path

import pytest
from one_entry import one_entry

from aotc.aot.pack import BackendContents, TargetContents, pack
from aotc.runtime.bundle.manifest import NATIVE, Manifest, TensorSpec
from aotc.runtime.bundle.native_plan import BackendEntry, NativeLaunch, NativeTensor
from aotc.runtime.bundle.plan import Buffer, Kernel, Launch, LaunchPlan, Plan
from aotc.runtime.errors import BundleMalformed

TENSORS = (
    NativeTensor("f32", True, (4, 6), ("output", 0)),
    NativeTensor("f32", False, (24,), ("arena", 0)),
)
SCALARS = [("whole", 3), ("real", (0.5).hex())]
PLAN = Plan.of(
    LaunchPlan(
        128,
        64,
        (Buffer("a", 0, 96),),
        (Kernel("k1", "copy"),),
        (
            Launch(0, (1, 1, 1), (("arena", 0), ("input", 0))),
            NativeLaunch("lib", "f", TENSORS, SCALARS, 64, tiles=2),
        ),
    )
)


def test_text_and_bytes_of_a_plan():
    assert Plan.from_msgpack(PLAN.to_msgpack()) == PLAN
    (native,) = PLAN.at().natives
    assert native.memory == (("output", 0), ("arena", 0))
    assert native.tensors[0].nbytes == 96


def changed(path, value):
    """The plan's tree with the field at `path` of its native step replaced."""
    tree = copy.deepcopy(PLAN.to_map())
    at = tree["variants"][0]["steps"][1]
    *folders, last = path
    for each in folders:
        at = at[each]
    at[last] = value
    return tree


ALTERED = {
    "another kind": (("kind",), "kernel", "no such field"),
    "too large": (("tensors", 1, "shape"), [25], "bytes inside one buffer"),
    "unknown dtype": (("tensors", 0, "dtype"), "f8", "f8"),
    "written input": (("tensors", 1, "is_written"), 2, "is_written"),
    "no tiles": (("tiles",), 0, "tiles"),
    "number as memory": (("tensors", 1, "memory"), ["int", 5], "memory"),
    "output to a weight": (("tensors", 0, "memory"), ["weight", "w"], "`arena`, `output`"),
    "scalar of text": (("scalars", 0), ["whole", "3"], "scalars"),
    "loose float": (("scalars", 1), ["real", "0.5"], "scalars"),
    "odd name": (("function",), "a/b", "function"),
    "workspace": (("workspace_bytes",), 1 << 40, "workspace_bytes"),
    "place beyond": (("workspace",), ["arena", 96], "workspace at"),
}


@pytest.mark.parametrize("case", ALTERED)
def test_altered_plans(case):
    path, value, text = ALTERED[case]
    with pytest.raises(BundleMalformed, match=text):
        Plan.from_map(changed(path, value))


def test_places():
    placed = Plan.from_map(changed(("workspace",), ["arena", 0]))
    with pytest.raises(BundleMalformed, match="nil, since it lies in scratch"):
        placed.validate([(1, 1)], (), "plan", None)
    PLAN.validate([(1, 1)], (), "plan", None)


def manifest():
    data = b"a library"
    entry = BackendEntry("lib", "1", hashlib.sha256(data).digest())
    contents = one_entry(
        inputs=(TensorSpec("x", "f32", (24,)),),
        outputs=(TensorSpec("y", "f32", (4, 6)),),
        targets=(TargetContents("null", "null", (), PLAN, b"no code"),),
        backends=(BackendContents(entry, data),),
    )
    with tempfile.TemporaryDirectory() as folder:
        pack(contents, Path(folder) / "bundle")
        return Manifest.from_bytes((Path(folder) / "bundle" / "manifest.msgpack").read_bytes())


def with_backends(rows, features=None):
    found = manifest()
    return found.replace(features=found.features if features is None else features, backends=rows)


def test_manifests_that_were_altered():
    (entry,) = manifest().backends
    assert entry.file == "backends/liblib.so"
    elsewhere = BackendEntry("lib", "1", entry.sha256, "targets/none.so")
    other = BackendEntry("lib", "1", bytes(32), entry.file)
    for rows, text in (
        ((elsewhere,), "a file of this digest"),
        ((other,), "a file of this digest"),
        ((entry, entry), "a name of its own"),
    ):
        with pytest.raises(BundleMalformed, match=text):
            with_backends(rows).to_bytes()
    with pytest.raises(BundleMalformed, match=NATIVE):
        with_backends((entry,), ()).to_bytes()
    with pytest.raises(BundleMalformed, match="`backends` is a list of 0"):
        with_backends(()).to_bytes()


def test_a_plan_of_a_back_end_that_the_manifest_lacks(tmp_path):
    data = b"a library"
    entry = BackendEntry("other", "1", hashlib.sha256(data).digest())
    contents = one_entry(
        inputs=(TensorSpec("x", "f32", (24,)),),
        outputs=(TensorSpec("y", "f32", (4, 6)),),
        targets=(TargetContents("null", "null", (), PLAN, b"no code"),),
        backends=(BackendContents(entry, data),),
    )
    with pytest.raises(BundleMalformed, match="a back end that the manifest lists"):
        pack(contents, tmp_path / "bundle")
