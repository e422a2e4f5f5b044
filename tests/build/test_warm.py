"""Warm images: a cache filled once, then only read by builds that compile nothing."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from unprivileged import make_read_only, run

pytest.importorskip("torch")
AOTC = (sys.executable, "-m", "aotc.aot.cli")
WIDE = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
model = model.bfloat16()
example_inputs = (torch.randn(2, 512).bfloat16(),)
"""
TARGETS = ("--target", "cuda:sm_90", "--target", "cpu-x86-64-v3")


@pytest.fixture(scope="module")
def image(spec, tmp_path_factory):
    """(a cache that `aotc warm` filled and nobody can write any more, the report).

    Warmed by a process of its own: ops that other tests register are part of a capture's key.
    """
    folder = tmp_path_factory.mktemp("image") / "cache"
    done = run([*AOTC, "warm", spec, *TARGETS, "--shared", "--json", "--cache-dir", folder])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    make_read_only(folder)
    yield folder, report
    for path in (folder, *folder.rglob("*")):  # so that pytest can delete it
        if path.is_dir():
            path.chmod(0o755)


def test_the_report_counts_every_kernel(image):
    rows = {row["target"]: row for row in image[1]["rows"]}
    assert set(rows) == {"cuda-sm_90", "cpu-x86-64-v3"}
    assert sum(row["kernels"] for row in rows.values()) == 6
    assert image[1]["compiled"] == 6 + 2  # those of the weights program
    assert image[1]["failed"] == 0


def test_every_user_can_read_the_cache_of_an_image(image):
    for path in image[0].rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o555 if path.is_dir() else 0o444)


def test_a_build_with_a_cache_that_can_only_be_read_compiles_nothing(image, spec, tmp_path):
    before = sorted(image[0].rglob("*"))
    command = (*AOTC, "build", spec, "-o", tmp_path / "out", "--cache-dir", image[0])
    done = run([*command, *TARGETS, "--json"])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["compiled"], report["cache_hits"]) == (0, 6 + 2)
    assert "cannot be" not in done.stderr
    assert sorted(image[0].rglob("*")) == before


def test_below_a_cache_of_ones_own_it_serves_and_what_it_lacks_is_kept_above(
    image, build, tmp_path, monkeypatch
):
    monkeypatch.setenv("AOTC_CACHE_LOWER", str(image[0]))
    own = tmp_path / "own"
    report = build(tmp_path / "out", *TARGETS, "--target", "cpu-x86-64-v4", cache_dir=own)
    assert (report["compiled"], report["cache_hits"]) == (3, 6 + 2)
    assert len(list(own.glob("binaries-*/*/*"))) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--quantize", "int8", "--adapters", "--round-intermediates", *TARGETS),
        ("--quantize", "int4", "--tensor-parallel", "2", "--target", "cuda:sm_90"),
    ],
    ids=["quantised, adapters", "quantised, on two GPUs"],
)
def test_a_build_with_the_options_of_the_warming_compiles_nothing(options, tmp_path):
    spec, cache = tmp_path / "wide.py", tmp_path / "cache"
    spec.write_text(WIDE)
    place = ["--cache-dir", str(cache), "--json", "--quiet"]
    done = run([*AOTC, "warm", spec, *options, *place])
    assert done.returncode == 0, done.stderr
    done = run([*AOTC, "build", spec, "-o", tmp_path / "out", "--frozen", *options, *place])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["compiled"] == 0


def test_warming_for_a_tuning_compiles_its_candidates_too(spec, cache):
    from aotc.aot.options import BuildOptions
    from aotc.aot.warm import warm

    options = BuildOptions(cache_folder=cache, tune="quick")
    (row,) = warm([str(spec)], ["cpu-x86-64-v3"], options).rows
    assert row.candidates > row.kernels
