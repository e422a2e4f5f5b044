"""Plans and manifests with native functions that were altered: refused before native code runs."""

from __future__ import annotations

import copy
import shutil

import pytest

from aotc.runtime import load
from aotc.runtime.bundle.manifest import NATIVE, Manifest
from aotc.runtime.bundle.native_plan import SYMBOL, BackendEntry, NativeLaunch, NativeTensor
from aotc.runtime.bundle.plan import NATIVE_ABI, PLAN_ABI, Buffer, Image, Kernel, Launch, LaunchPlan
from aotc.runtime.bundle.plan_rules import check_plan
from aotc.runtime.errors import BundleMalformed
from tests.compat.test_frozen import FROZEN

TENSORS = (NativeTensor("f32", True, (4, 6)), NativeTensor("f32", False, (24,)))
PLAN = LaunchPlan(
    NATIVE_ABI,
    128,
    64,
    (Buffer("a", 0, 96),),
    (Kernel("k1", "copy"), Kernel(SYMBOL, "native functions")),
    (
        Launch(0, (1, 1, 1), (("arena", 0), ("input", 0))),
        Launch(1, (2, 1, 1), (("output", 0), ("arena", 0))),
    ),
    natives=(NativeLaunch("lib", "f", 1, TENSORS, [("whole", 3), ("real", (0.5).hex())], 64),),
)


def test_text_and_bytes_of_a_plan():
    assert LaunchPlan.from_msgpack(PLAN.to_msgpack()) == PLAN
    (native,) = PLAN.natives
    assert native.at(7).launch == 7
    assert native.tensors[0].nbytes == 96


def changed(path, value):
    """The plan's tree with the field at `path` of its first native launch replaced."""
    tree = copy.deepcopy(PLAN.to_map())
    at = tree
    *folders, last = path
    for each in folders:
        at = at[each]
    at[last] = value
    return tree


NATIVE_0 = ("natives", 0)
ALTERED = {
    "older abi": (("abi",), PLAN_ABI, "abi"),
    "other launch": ((*NATIVE_0, "launch"), 0, "those of `aotc_native`"),
    "no such launch": ((*NATIVE_0, "launch"), 9, "those of `aotc_native`"),
    "not told": (("kernels", 0, "symbol"), SYMBOL, "those of `aotc_native`"),
    "tensors missing": ((*NATIVE_0, "tensors"), [], "no tensor maps"),
    "too large": ((*NATIVE_0, "tensors", 1, "shape"), [25], "bytes inside one buffer"),
    "unknown dtype": ((*NATIVE_0, "tensors", 0, "dtype"), "f8", "f8"),
    "written input": ((*NATIVE_0, "tensors", 1, "is_written"), 2, "is_written"),
    "tiles in rows": (("launches", 1, "grid"), [1, 2, 1], "tiles along x only"),
    "number as memory": (("launches", 1, "args", 1), ["int", 5], "memory"),
    "output to a weight": (("launches", 1, "args", 0), ["weight", "w"], "`arena` or `output`"),
    "scalar of text": ((*NATIVE_0, "scalars", 0), ["whole", "3"], "scalars"),
    "loose float": ((*NATIVE_0, "scalars", 1), ["real", "0.5"], "scalars"),
    "odd name": ((*NATIVE_0, "function"), "a/b", "function"),
    "workspace": ((*NATIVE_0, "workspace_bytes"), 1 << 40, "workspace_bytes"),
}


@pytest.mark.parametrize("case", ALTERED)
def test_altered_plans(case):
    path, value, text = ALTERED[case]
    with pytest.raises(BundleMalformed, match=text):
        check_plan(changed(path, value), "plan.msgpack")


def test_images_and_places():
    image = Image(0, 8, 32, 0, 0)
    kernels = (Kernel("k1", "copy", image), Kernel(SYMBOL, "f", image))
    rest = (PLAN.arena_bytes, PLAN.scratch_bytes, PLAN.buffers, kernels, PLAN.launches)
    plan = LaunchPlan(NATIVE_ABI, *rest, natives=PLAN.natives)
    with pytest.raises(BundleMalformed, match="nil for the kernel that calls native functions"):
        plan.validate(1, 1, (), "plan", "cuda", 64)
    PLAN.validate(1, 1, (), "plan", "cpu", 64)


def manifest():
    data = (FROZEN / "plan-abi-6" / "manifest.msgpack").read_bytes()
    return Manifest.from_bytes(data)


def with_backends(rows, features=None):
    found = manifest()
    return Manifest(
        found.features if features is None else features,
        found.targets,
        found.inputs,
        found.outputs,
        found.weights,
        found.files,
        found.structure,
        backends=rows,
    )


def test_manifests_that_were_altered():
    (entry,) = manifest().backends
    assert entry.file == "backends/libcustom_add.so"
    elsewhere = BackendEntry("custom_add", "1", entry.sha256, "targets/none.so")
    other = BackendEntry("custom_add", "1", bytes(32), entry.file)
    for rows, text in (
        ((elsewhere,), "a file of this digest"),
        ((other,), "a file of this digest"),
        ((entry, entry), "a name of its own"),
    ):
        with pytest.raises(BundleMalformed, match=text):
            with_backends(rows).to_bytes()
    with pytest.raises(BundleMalformed, match=NATIVE):
        with_backends((entry,), ()).to_bytes()
    with pytest.raises(BundleMalformed, match=NATIVE):
        with_backends(()).to_bytes()


def test_a_plan_of_a_back_end_that_the_manifest_lacks(tmp_path):
    path = tmp_path / "bundle"
    shutil.copytree(FROZEN / "plan-abi-6", path)
    (entry,) = manifest().backends
    renamed = BackendEntry("other", entry.version, entry.sha256, entry.file)
    (path / "manifest.msgpack").write_bytes(with_backends((renamed,)).to_bytes())
    with pytest.raises(BundleMalformed, match="a back end that the manifest lists"):
        load(path)
