"""Bundles for GPUs and for several targets at once, built on a machine without a GPU."""

import gc
import json
import os
import subprocess
import sys

import pytest

from aotc.runtime import load
from aotc.runtime.bundle.manifest import MANIFEST_NAME, Manifest
from aotc.runtime.bundle.plan import Plan
from aotc.runtime.drivers.cuda import driver as cuda
from aotc.runtime.errors import BundleIncompatible

pytest.importorskip("torch")
TARGETS = ("cuda:sm_90", "cuda:sm_80", "cpu-x86-64-v3")
FLAGS = [word for target in TARGETS for word in ("--target", target)]


@pytest.fixture(scope="module")
def many(spec, cache, tmp_path_factory):
    """(the bundle for all targets, the report of its build)."""
    from aotc.aot.pipeline import BuildOptions, build

    out = tmp_path_factory.mktemp("many") / "bundle"
    options = BuildOptions(cache_folder=cache, debug=True)
    gc.collect()  # nodes of other tests' graphs, whose source lines would be in the debug texts
    return out, build(str(spec), out, TARGETS, options).record()


@pytest.fixture
def without_device(monkeypatch):
    monkeypatch.setattr(cuda, "features", lambda device=0: frozenset())


def manifest_of(bundle):
    return Manifest.from_bytes((bundle / MANIFEST_NAME).read_bytes())


def plan_of(bundle, name):
    return Plan.from_msgpack((bundle / "targets" / name / "plan.msgpack").read_bytes())


def test_targets_are_listed_in_the_order_given(many):
    bundle, report = many
    names = ["cuda-sm_90", "cuda-sm_80", "cpu-x86-64-v3"]
    assert [target.name for target in manifest_of(bundle).targets] == names
    assert [target["target"] for target in report["targets"]] == names
    assert report["kernels"] == sum(target["kernels"] for target in report["targets"]) == 9


def test_stages_up_to_rewrite_run_once_and_the_others_once_a_target(many):
    rows = [(row["stage"], row["target"]) for row in many[1]["stages"]]
    assert rows[:2] == [("capture", ""), ("rewrite", "")]
    assert rows[2:6] == [(stage, "cuda-sm_90") for stage in ("schedule", "lower", "tune", "plan")]
    assert len(rows) == 2 + 3 * 4 + 3  # weights, validate, pack


def test_every_kernel_of_a_gpu_has_its_image_inside_the_library(many):
    bundle, _ = many
    data = (bundle / "targets" / "cuda-sm_90" / "kernels.cubins").read_bytes()
    for kernel in plan_of(bundle, "cuda-sm_90").kernels:
        image = kernel.image
        cubin = data[image.offset : image.offset + image.nbytes]
        assert cubin[:4] == b"\x7fELF"
        assert kernel.symbol.encode() in cubin
        assert image.offset % 64 == 0
        assert image.threads % 32 == 0
    assert all(kernel.image is None for kernel in plan_of(bundle, "cpu-x86-64-v3").kernels)


def test_weights_are_stored_once_and_unpacked(many, bundle):
    """The tiny model's weights, as the model has them; the CPU alone would have them packed."""
    several, alone = (path / "weights.safetensors" for path in (many[0], bundle))
    (length,) = (int.from_bytes(several.read_bytes()[:8], "little"),)
    header = json.loads(several.read_bytes()[8 : 8 + length])
    names = [name for name in header if not name.startswith("_pad")]
    sizes = [header[name]["data_offsets"] for name in names]
    assert sum(end - start for start, end in sizes) <= 4 * (48 * 80 + 80 + 2 * 48) + 64
    assert several.stat().st_size < alone.stat().st_size


def test_equal_sources_are_stored_once(many):
    bundle, _ = many
    folder = bundle / "sources"
    records = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    assert set(records) == {"cuda-sm_90", "cuda-sm_80", "cpu-x86-64-v3"}
    named = {
        file
        for record in records.values()
        for kernel in record["kernels"]
        for _, _, file, _ in kernel["forms"]
    }
    assert named == {path.name for path in folder.glob("*.py")}
    for record in records.values():
        digests = [kernel["digest"] for kernel in record["kernels"]]
        launches = [each for variant in record["variants"] for each in variant["launches"]]
        assert {launch["kernel"] for launch in launches} == set(digests)


def test_the_target_that_fits_this_machine_runs(many, spec, without_device):
    import torch

    from aotc.aot.capture.spec import load_spec

    data = torch.randn(12, 48)
    with load(many[0]) as program, torch.no_grad():
        assert program.target == "cpu-x86-64-v3"
        expected = load_spec(str(spec)).module(data)
        torch.testing.assert_close(program(data), expected, rtol=1e-4, atol=1e-6)


def test_a_device_that_is_not_here_is_refused_with_what_was_found(many, without_device):
    with pytest.raises(BundleIncompatible, match="CUDA device is absent"):
        load(many[0], device="cuda")


def test_inspect_shows_registers_and_memory_of_each_kernel(aotc, many):
    code, out, _ = aotc("inspect", many[0])
    assert code == 0
    assert "registers" in out
    record = json.loads(aotc("inspect", many[0], "--json")[1])
    kernels = record["targets"][0]["kernels"]
    assert {"registers", "spill_bytes", "shared_bytes", "threads", "choice"} <= set(kernels[0])


def test_another_user_in_another_folder_builds_the_same_bundle(many, spec, tmp_path):
    """From nothing: a cache, a home and a working directory of its own."""
    command = [sys.executable, "-m", "aotc.aot.cli", "build", str(spec), "-o", "out", "--json"]
    command.append("--debug")  # texts are files of the bundle as well
    done = subprocess.run(
        [*command, *FLAGS, "--cache-dir", str(tmp_path / "cache")],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "USER": "somebody"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["compiled"] == 9 + report["weights_kernels"]
    assert report["digest"] == many[1]["digest"]


def test_a_gpu_alone_needs_no_working_device(aotc, spec, cache, tmp_path):
    out = tmp_path / "out"
    code, text, errors = aotc(
        "build", spec, "-o", out, "--target", "cuda:sm_90", "--cache-dir", cache, "--quiet"
    )
    assert code == 0, errors
    assert "not validated: this machine does not run the target" in text
    assert "0 compiled" in text
    names = {path.name for path in (out / "targets" / "cuda-sm_90").iterdir()}
    assert names == {"plan.msgpack", "kernels.cubins"}
