"""The writer: what a finished bundle holds, that it is reproducible, and when it refuses."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import small_bundle

from aotc.aot.errors import OutputExists
from aotc.aot.pack import TensorData, pack
from aotc.aot.pack.staging import OutputForeign, check_free
from aotc.aot.pack.tensors import tensor_file
from aotc.runtime import load
from aotc.runtime.bundle.manifest import MAIN, Manifest
from aotc.runtime.bundle.opened import read_bundle
from aotc.runtime.bundle.weights import read_header
from aotc.runtime.errors import BundleMalformed, EnvironmentFault

BESIDE = {"extras.msgpack", "golden.safetensors", "provenance.json", "sources/copy.py"}


def test_layout(bundle):
    assert set(small_bundle.snapshot(bundle)) == {*small_bundle.COUNTED, *BESIDE}
    assert small_bundle.names(bundle.parent) == ["bundle"]


def test_two_directories_two_processes_same_bytes(tmp_path):
    program = (
        "import sys; sys.path[:0] = sys.argv[1], sys.argv[1] + '/..';"
        "import null_driver, small_bundle, pathlib;"
        "print(small_bundle.write(pathlib.Path(sys.argv[2])))"
    )
    digests, snapshots = [], []
    for index, seed in enumerate("01"):
        out = tmp_path / ("deeper/" * index) / f"name{index}"
        ran = subprocess.run(
            [sys.executable, "-c", program, str(Path(small_bundle.__file__).parent), str(out)],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": f"UTC{index}", "HOME": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.append(ran.stdout.strip())
        snapshots.append(small_bundle.snapshot(out))
    assert digests[0] == digests[1]
    assert snapshots[0] == snapshots[1]


def test_digest_is_the_digest_that_the_format_page_states(bundle):
    import hashlib

    data = (bundle / "manifest.msgpack").read_bytes()
    assert load(bundle).digest == hashlib.sha256(data[:-32]).hexdigest() == data[-32:].hex()


def test_the_digest_covers_every_file(tmp_path):
    """Weights, golden numbers, tolerances, sources and facts: each change gives another digest."""
    base = small_bundle.contents()
    golden = base.golden[MAIN]
    ones = TensorData("f32", small_bundle.SHAPE, b"\1" * 24)
    changes = [
        {},
        {"golden": {}},
        {"golden": {MAIN: replace(golden, tolerances=(0.0, 2e-4))}},
        {"golden": {MAIN: replace(golden, outputs=(ones, golden.outputs[1]))}},
        {"extras": {**base.extras, "provenance.json": b"another"}},
        {"extras": {**base.extras, "sources/copy.py": b"import os"}},
        {"extras": {"provenance.json": b"{}\n"}},
        {"extras": {}},
        {"golden": {}, "extras": {}},
    ]
    digests = [
        pack(replace(base, **change), tmp_path / str(number)).digest
        for number, change in enumerate(changes)
    ]

    digests.append(small_bundle.write(tmp_path / "other weights", value=2.0))
    assert len(set(digests)) == len(digests)


def test_no_paths_users_or_hosts_inside(bundle):
    everything = b"".join(small_bundle.snapshot(bundle).values())
    for private in (str(bundle.parent), os.uname().nodename, str(Path.home())):
        if len(private) > 3:
            assert private.encode() not in everything


def test_files_are_read_only_and_folders_removable(tmp_path):
    small_bundle.write(tmp_path / "bundle")
    for file in (tmp_path / "bundle").rglob("*"):
        writable = bool(stat.S_IMODE(file.stat().st_mode) & stat.S_IWUSR)
        assert writable == file.is_dir()
    subprocess.run(["rm", "-rf", str(tmp_path / "bundle")], check=True)
    assert not (tmp_path / "bundle").exists()


def test_existing_output_is_kept_without_force(bundle):
    before = small_bundle.snapshot(bundle)
    with pytest.raises(OutputExists) as caught:
        small_bundle.write(bundle, value=2.0)
    assert caught.value.exit_code == 2
    assert small_bundle.snapshot(bundle) == before


def test_force_replaces_a_bundle_whole(bundle):
    digest = small_bundle.write(bundle, value=2.0, force=True)
    assert load(bundle).digest == digest
    assert small_bundle.names(bundle.parent) == ["bundle"]


def test_force_refuses_what_is_no_bundle(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("a file")
    for name in ("home", "file"):
        with pytest.raises(OutputForeign):
            small_bundle.write(tmp_path / name, force=True)
    assert (tmp_path / "home" / "thesis.txt").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    small_bundle.write(tmp_path / "empty", force=True)


def test_an_output_that_cannot_be_written_is_refused_before_a_build(tmp_path, monkeypatch):
    check_free(str(tmp_path / "made" / "by" / "pack"), force=False)
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name, problem in (("file", errno.ENOTDIR), ("loop", errno.ELOOP)):
        with pytest.raises(EnvironmentFault, match=os.strerror(problem).lower()):
            check_free(str(tmp_path / name / "out"), force=False)
    with pytest.raises(OutputForeign):
        check_free(str(tmp_path / "loop"), force=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(EnvironmentFault, match="permission denied"):
        check_free(str(tmp_path / "folder" / "out"), force=False)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    with pytest.raises(EnvironmentFault, match="read-only"):
        check_free(str(tmp_path / "folder" / "out"), force=False)


def test_weights_may_stay_outside_and_are_digested_all_the_same(tmp_path):
    pack(small_bundle.contents(), tmp_path / "whole")
    pack(replace(small_bundle.contents(), has_weights=False), tmp_path / "without")
    found = [read_bundle(tmp_path / name, lambda opened: opened.manifest.weights)
             for name in ("whole", "without")]  # fmt: skip
    assert found[0] == found[1]
    assert not (tmp_path / "without" / "weights.safetensors").exists()


def test_a_program_loaded_before_goes_on_after_replacement(bundle):
    program = load(bundle)
    small_bundle.write(bundle, value=2.0, force=True)
    _, weight = program(bytes(24))
    assert weight.tolist() == [1.0] * 6
    assert load(bundle)(bytes(24))[1].tolist() == [2.0] * 6


def test_fallback_without_renameat2(bundle, monkeypatch):
    monkeypatch.setattr("aotc.aot.pack.staging._rename", lambda *_: False)
    digest = small_bundle.write(bundle, value=2.0, force=True)
    assert load(bundle).digest == digest
    assert small_bundle.names(bundle.parent) == ["bundle"]
    with pytest.raises(OutputExists):
        small_bundle.write(bundle)


def test_old_bundle_of_a_killed_fallback_is_put_back(bundle):
    before = small_bundle.snapshot(bundle)
    bundle.rename(bundle.parent / ".bundle.previous-0011aabb")
    with pytest.raises(OutputExists):
        small_bundle.write(bundle)
    assert small_bundle.snapshot(bundle) == before


def test_plan_that_names_no_weight_is_refused(tmp_path):
    contents = small_bundle.contents()
    object.__setattr__(contents, "weights", {})
    with pytest.raises(BundleMalformed):
        pack(contents, tmp_path / "bundle")
    assert small_bundle.names(tmp_path) == []


def test_tensors_are_aligned_and_readable_by_the_library(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = {
        "first": TensorData("u8", (3,), b"abc"),
        "empty": TensorData("f32", (0, 4), b""),
        "scalar": TensorData("f64", (), bytes(8)),
        "last": TensorData("f32", (5,), bytes(20)),
    }
    data = b"".join(bytes(part) for part in tensor_file(tensors))
    found = read_header(data, "x")
    assert list(found) == list(tensors)
    assert all(each.offset % 64 == 0 for each in found.values())
    (tmp_path / "x.safetensors").write_bytes(data)
    arrays = safetensors.load_file(tmp_path / "x.safetensors")
    assert arrays["first"].tobytes() == b"abc"
    assert arrays["empty"].shape == (0, 4)


def test_a_manifest_says_what_wrote_it(tmp_path):
    from aotc.aot.version import VERSION

    small_bundle.write(tmp_path / "bundle")
    data = (tmp_path / "bundle" / "manifest.msgpack").read_bytes()
    assert Manifest.from_bytes(data).producer == f"aotc {VERSION}"
