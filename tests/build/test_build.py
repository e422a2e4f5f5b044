"""Whole builds: counters, reproducibility, what a failing build leaves behind, tuning records."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aotc.runtime import load
from aotc.runtime.bundle.manifest import MANIFEST_NAME, Manifest
from aotc.runtime.drivers.cpu.driver import features

pytest.importorskip("torch")


def bundle_files(bundle):
    """Name → bytes of every file."""
    return {
        str(path.relative_to(bundle)): path.read_bytes()
        for path in sorted(bundle.rglob("*"))
        if path.is_file()
    }


def run_build(spec, out, cache, *options, **environment):
    """`aotc build` as a process of its own; returns it, started."""
    command = [sys.executable, "-m", "aotc.aot.cli", "build", spec, "-o", out]
    return subprocess.Popen(
        [*map(str, command), "--json", "--cache-dir", str(cache), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_a_second_build_compiles_nothing_and_gives_the_same_bytes(build, tmp_path):
    first = build(tmp_path / "one", cache_dir=tmp_path / "cache")
    second = build(tmp_path / "deeper" / "two", cache_dir=tmp_path / "cache")
    kernels = first["kernels"] + first["weights_kernels"]
    assert (first["compiled"], first["cache_hits"]) == (kernels, 0)
    assert (second["compiled"], second["cache_hits"]) == (0, kernels)
    assert first["digest"] == second["digest"]
    assert bundle_files(tmp_path / "one") == bundle_files(tmp_path / "deeper" / "two")


def test_a_cold_cache_gives_the_same_bundle_as_a_warm_one(build, bundle, compiled_anew, tmp_path):
    build(tmp_path / "cold", "--debug", cache_dir=tmp_path / "cache")
    assert bundle_files(tmp_path / "cold") == bundle_files(bundle)


def test_the_report_has_the_stages_in_order(build, tmp_path):
    report = build(tmp_path / "out")
    names = [row["stage"] for row in report["stages"]]
    stages = ["capture", "rewrite", "schedule", "lower", "tune", "plan", "weights", "validate"]
    assert names == [*stages, "pack"]
    assert report["schema"] == "aotc.build/1"
    (target,) = report["targets"]
    assert target["checks"]
    assert all(check["ok"] for check in target["checks"])


def test_the_bundle_runs_and_agrees_with_torch(bundle, spec):
    import torch

    from aotc.aot.capture.spec import load_spec

    model = load_spec(str(spec)).module
    data = torch.randn(12, 48)
    with load(bundle) as program, torch.no_grad():
        torch.testing.assert_close(program(data), model(data), rtol=1e-4, atol=1e-6)


def test_no_path_user_or_host_is_in_the_bundle(bundle, spec):
    words = [str(spec.parent), str(Path.cwd()), str(Path.home()), os.uname().nodename]
    for path, data in bundle_files(bundle).items():
        for word in words:
            assert len(word) < 4 or word.encode() not in data, f"{word} is in {path.name}"


def test_debug_leaves_every_stage_and_every_kernel(bundle):
    names = {path.name for path in (bundle / "debug").iterdir()}
    assert {"0-capture.txt", "1-rewrite.txt", "2-schedule.txt", "3-lower.txt"} <= names
    assert {"4-tune.txt", "5-plan.txt"} <= names
    kernels = list((bundle / "debug" / "kernels").iterdir())
    assert {path.suffix for path in kernels} == {".py", ".ttir", ".ll", ".s"}
    source = next(path for path in kernels if path.suffix == ".py").read_text()
    assert "@triton.jit" in source


def test_an_output_that_exists_is_kept(aotc, spec, bundle, cache):
    before = bundle_files(bundle)
    code, _, errors = aotc("build", spec, "-o", bundle, "--cache-dir", cache)
    assert code == 2
    assert "exists" in errors
    assert "--force" in errors
    assert bundle_files(bundle) == before


def test_force_replaces_a_bundle(build, bundle, tmp_path):
    out = tmp_path / "out"
    build(out)
    (out / "stray").write_text("left by somebody")
    build(out, "--force", "--debug")
    assert not (out / "stray").exists()
    assert bundle_files(out) == bundle_files(bundle)


def test_wrong_numbers_are_never_written(aotc, build, spec, cache, tmp_path, monkeypatch):
    out = tmp_path / "out"
    build(out)
    before = bundle_files(out)
    monkeypatch.setattr(
        "aotc.aot.validation.tolerances", lambda captured, *_: (-1.0,) * len(captured.graph.outputs)
    )
    code, _, errors = aotc("build", spec, "-o", out, "--force", "--cache-dir", cache)
    assert code == 1
    assert "differs from the exported model" in errors
    assert bundle_files(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    code, _, _ = aotc("build", spec, "-o", out, "--force", "--cache-dir", cache, "--allow-mismatch")
    assert code == 0


def test_a_killed_build_leaves_the_old_bundle(build, spec, tmp_path):
    out = tmp_path / "out"
    build(out)
    before = bundle_files(out)
    child = run_build(spec, out, tmp_path / "cold", "--force", "--quiet")
    while not (tmp_path / "cold" / "locks").exists() and child.poll() is None:
        time.sleep(0.005)  # until the first kernel is being compiled
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert bundle_files(out) == before


def test_two_builds_at_once_compile_each_kernel_once(spec, tmp_path):
    import json

    cache = tmp_path / "cache"
    children = [run_build(spec, tmp_path / name, cache) for name in ("one", "two")]
    reports = []
    for child in children:
        out, errors = child.communicate()
        assert child.returncode == 0, errors
        reports.append(json.loads(out))
    assert sum(report["compiled"] for report in reports) == (
        reports[0]["kernels"] + reports[0]["weights_kernels"]
    )
    assert reports[0]["digest"] == reports[1]["digest"]


def test_a_build_needs_no_compiler_linker_or_headers(spec, tmp_path):
    """With nothing on the PATH there is no gcc, clang, ld or as to be called."""
    empty = tmp_path / "empty"
    empty.mkdir()
    child = run_build(
        spec, tmp_path / "out", tmp_path / "cache", PATH=str(empty), CC="/nonexistent"
    )
    _, errors = child.communicate()
    assert child.returncode == 0, errors


def test_a_build_into_a_folder_that_cannot_be_made_fails_cleanly(aotc, spec, cache, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, errors = aotc("build", spec, "-o", tmp_path / "file" / "out", "--cache-dir", cache)
    assert code == 7
    assert "error: " in errors


def test_an_unknown_target_lists_the_known_ones(aotc, spec, tmp_path):
    code, _, errors = aotc("build", spec, "-o", tmp_path / "out", "--target", "cuda:sm_70")
    assert code == 2
    assert "cpu-x86-64-v3" in errors
    assert "cuda:sm_90" in errors


def test_a_bundle_for_a_smaller_instruction_set_runs_here_too(build, aotc, tmp_path):
    report = build(tmp_path / "out", "--target", "cpu-x86-64-v3")
    assert [row["target"] for row in report["targets"]] == ["cpu-x86-64-v3"]
    assert aotc("verify", tmp_path / "out")[0] == 0


def test_code_is_checked_wherever_it_runs(build, tmp_path):
    """A model of f32 has no use for tiles: its code for a processor that has them needs less."""
    report = build(tmp_path / "out", "--target", "cpu-x86-64-amx")
    (row,) = report["targets"]
    (target,) = Manifest.from_bytes((tmp_path / "out" / MANIFEST_NAME).read_bytes()).targets
    assert "amx_tile" not in target.needs
    assert bool(row["checks"]) == (set(target.needs) <= features())


def test_measuring_writes_a_record_and_frozen_builds_from_it(aotc, build, spec, tmp_path):
    own, record = tmp_path / "own", tmp_path / "tuning.txt"
    code, _, errors = aotc(
        "build", spec, "-o", tmp_path / "no", "--frozen", "--cache-dir", own, "--record", record
    )
    assert code == 4
    assert "have no line in the tuning record" in errors
    tuned = build(tmp_path / "tuned", "--tune", "quick", "--record", record, cache_dir=own)
    assert tuned["measured"] > 0
    text = record.read_text()
    assert text.startswith("# aotc tuning record 1\n")
    frozen = build(tmp_path / "frozen", "--frozen", "--record", record, cache_dir=own)
    assert frozen["measured"] == 0
    assert frozen["digest"] == tuned["digest"]
    again = build(tmp_path / "again", "--tune", "quick", cache_dir=own)
    assert again["measured"] == 0  # from the tuning bucket of the cache
    assert again["digest"] == tuned["digest"]


def test_frozen_without_tuning_builds_from_the_cache_alone(aotc, build, spec, tmp_path):
    """[U4] No record is asked for where nothing would be measured; code comes from the cache."""
    own = tmp_path / "own"
    words = ("build", spec, "-o", tmp_path / "no", "--frozen", "--cache-dir", own)
    for target in ("cpu", "cuda:sm_90"):
        code, _, errors = aotc(*words, "--target", target)
        assert code == 4
        assert "neither in the cache nor in the tuning record: 3 of 3 kernels (" in errors
        assert not list(own.glob("binaries-*"))
    made = build(tmp_path / "made", cache_dir=own)
    frozen = build(tmp_path / "frozen", "--frozen", cache_dir=own)
    assert (frozen["compiled"], frozen["measured"]) == (0, 0)
    assert frozen["digest"] == made["digest"]
    record = next(own.glob("binaries-*/*/*/kernel.code"))
    (record.parent / "entry.json").unlink()  # one kernel is deleted
    code, _, errors = aotc(*words)
    assert code == 4
    assert "neither in the cache nor in the tuning record: 1 of 3 kernels (" in errors


def test_every_command_says_the_same_of_frozen(aotc):
    said = "measure nothing, and fail if a kernel is neither in cache nor record"
    _, out, _ = aotc("doctor", "--json")
    (row,) = [row for row in json.loads(out)["settings"] if row["name"] == "AOTC_FROZEN"]
    assert row["meaning"] == said
    for name in ("build", "tune"):
        assert said in " ".join(aotc(name, "--help")[1].split()).lower()


def test_dump_keeps_the_stages_of_a_build_that_fails(aotc, spec, cache, tmp_path, monkeypatch):
    monkeypatch.setenv("AOTC_DUMP", str(tmp_path / "dump"))
    monkeypatch.setattr("aotc.aot.compile.lower", lambda scheduled, traits: 1 // 0)
    code, _, errors = aotc("build", spec, "-o", tmp_path / "out", "--cache-dir", cache)
    assert code == 70
    assert "internal error in stage `lower`: ZeroDivisionError" in errors
    names = sorted(path.name for path in (tmp_path / "dump").iterdir())
    assert names == ["0-capture.txt", "1-rewrite.txt", "2-schedule.txt"]
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_nothing_half_written(spec, cache, bundle, tmp_path):
    """A limit on file sizes stands for a full disk; `bundle` has filled the cache before."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "from aotc.aot.cli.program import run; import aotc.aot.pipeline; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); sys.exit(run(sys.argv[1:]))"
    )
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", code, "build", spec, "-o", out, "--cache-dir", cache, "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert list(tmp_path.iterdir()) == []
