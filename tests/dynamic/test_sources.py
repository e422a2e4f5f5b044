"""`sources/` of bundles of dynamic size, and `aotc tune` from them."""

from __future__ import annotations

import json

import pytest
import torch

from aotc.aot.calls import calls_of
from aotc.aot.capture.capture import capture
from aotc.aot.capture.spec import load_spec
from aotc.aot.compile import schedule_and_lower
from aotc.aot.errors import SourcesInvalid
from aotc.aot.ir.size import typical
from aotc.aot.rewrites.rewrite import rewrite_each
from aotc.aot.sources import print_sources, read_sources
from aotc.aot.stages import Clock, Quiet
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.targets.families import find_target
from aotc.aot.tune.tune import Tuned, Tuning
from aotc.runtime import load
from aotc.runtime.errors import BundleMalformed
from dynamic.conftest import _case_text
from dynamic.models import CASES, made
from dynamic.test_dynamic import agrees

TARGETS = ("cpu:x86-64-v3", "cuda:sm_90")


class Folder:
    """What `read_sources` asks of an open bundle."""

    def __init__(self, files):
        self.read_extra = files.get

    def where(self, name):
        return name


@pytest.fixture
def reread():
    """Sources as `read_sources` finds them after a change to their record."""

    def read(sources, change=lambda record: None):
        files = print_sources([sources])
        record = json.loads(files[f"sources/{sources.target}.json"])
        change(record)
        files[f"sources/{sources.target}.json"] = json.dumps(record).encode()
        return read_sources(Folder(files), sources.target)

    return read


@pytest.fixture(scope="module")
def sources_of(tmp_path_factory):
    folder, graphs = tmp_path_factory.mktemp("specs"), {}

    def make(name, target):
        if name not in graphs:
            spec = folder / f"{name}.py"
            spec.write_text(_case_text(name))
            graph, families = capture(load_spec(str(spec))).graph, {"cpu": CPU, "cuda": GPUS[90]}
            graphs[name] = rewrite_each(graph, families)
        row = find_target(target)
        graph = graphs[name][row.device][0]
        return schedule_and_lower(row, [graph], Clock(Quiet()))[1]

    return make


# What `encoder` has is in `bert` too.
NAMES = [
    pytest.param(name, marks=pytest.mark.nightly if name == "encoder" else ()) for name in CASES
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_sources_are_read_as_they_were_written(sources_of, reread, name, target):
    sources = sources_of(name, target)
    found = reread(sources)
    assert len(found.variants) > 1
    assert (found.dims, found.limits) == (sources.dims, sources.limits)
    for one, other in zip(found.variants, sources.variants, strict=True):
        assert one.assignment == other.assignment
        assert one.dims == other.dims
        assert [spec.digest for spec in one.specs] == [spec.digest for spec in other.specs]
    # Kernels of several variants are written once, with the sizes of the first.
    known = {}
    for spec in sources.specs:
        known.setdefault(spec.digest, spec)
    assert {spec.digest: spec for spec in found.specs} == known
    assert print_sources([found]) == print_sources([sources])


@pytest.mark.parametrize("name", NAMES)
def test_calls_that_are_measured_stay_within_their_memory(sources_of, name):
    sources = sources_of(name, "cuda:sm_90")
    first = {
        spec.digest: Tuned(spec.candidates[0], KernelBinary(f"k{spec.digest}", b"code"))
        for spec in sources.specs
    }
    calls = list(calls_of(sources, Tuning(first, (), 0)))
    assert len(calls) == len(sources.variants)
    launches = {tuple(spec.digest for spec in each.specs): each for each in sources.variants}
    for call in calls:
        variant = launches[tuple(launch.digest for launch in call.launches)]
        for launch, buffers in zip(call.launches, variant.assignment.launches, strict=True):
            for (number, start), operand in zip(launch.operands, buffers.operands, strict=True):
                nbytes = typical(operand.nbytes) - operand.start_bytes
                assert 0 <= start <= call.blocks[number].nbytes - nbytes


def _appended(record, *rows):
    """The value of the last of some rows, in which −1 is the value of the one before."""
    for row in rows:
        last = len(record["dims"]) + len(record["sizes"]) - 1
        record["sizes"].append([row[0], *(last if each == -1 and row[0] != "number" else each
                                          for each in row[1:])])  # fmt: skip
    return [last + 1]


CHANGES = {
    "is value 9999, expected one of": lambda record: record["limits"].append([9999]),
    "expected less than": lambda record: record["sizes"].append(["add", 500, 500]),
    "may be less than 1": lambda record: record["limits"].append(
        _appended(record, ["number", -1, 0], ["mul", 0, -1], ["floordiv", 0, -1])
    ),
    "is of variant 64 of": lambda record: record["kernels"][0].update(variant=64),
    "reads a dim that is not there": lambda record: record["kernels"][-1].update(sizes=[7]),
    "has another digest": lambda record: record["kernels"][0].update(digest="0"),
    "has 1 ranges of 2 dims": lambda record: record["variants"][0]["ranges"].pop(),
    "names no kernel": lambda record: record["variants"][0]["launches"][0].update(kernel="0"),
}


@pytest.mark.parametrize("reason", CHANGES)
def test_what_breaks_the_grammar_is_named(sources_of, reread, reason):
    with pytest.raises((SourcesInvalid, BundleMalformed), match=reason):
        reread(sources_of("perceptron", "cuda:sm_90"), CHANGES[reason])


def test_a_finished_bundle_is_tuned_at_every_range(built, aotc, tmp_path):
    path, _ = built("perceptron")
    record, cache = tmp_path / "record", tmp_path / "cache"
    words = ("--json", "--quiet", "--cache-dir", cache, "--record", record)
    code, text, errors = aotc("tune", path, "-o", tmp_path / "tuned", *words)
    assert code == 0, errors
    report = json.loads(text)
    sizes = {row["name"] for row in kernels_of(path)}
    assert report["measured"] > len(sizes) / 2
    code, text, errors = aotc("tune", path, "-o", tmp_path / "frozen", "--frozen", *words)
    assert code == 0, errors
    assert json.loads(text)["digest"] == report["digest"]
    case, model = CASES["perceptron"], made("perceptron")
    with load(tmp_path / "tuned") as program, torch.no_grad():
        for values in case.sizes:
            inputs = case.inputs(*values)
            assert agrees(program(*inputs), model(*inputs))
    code, _, errors = aotc("verify", tmp_path / "tuned")
    assert code == 0, errors


def test_kernels_that_are_wrong_at_other_sizes_are_never_written(
    built, aotc, tmp_path, monkeypatch
):
    from aotc.aot import validation

    path, _ = built("perceptron")
    run, shapes = validation.run, []

    def spoiled(row, library, plan, weights, inputs, outputs):
        run(row, library, plan, weights, inputs, outputs)
        if inputs[0].shape[:2] != CASES["perceptron"].example:  # not the golden input
            shapes.append(inputs[0].shape)
            outputs[0][:] = len(shapes)

    monkeypatch.setattr(validation, "run", spoiled)
    words = ("--quiet", "--cache-dir", tmp_path / "cache", "--tune-budget", 1)
    code, _, errors = aotc("tune", path, "-o", tmp_path / "out", *words)
    assert code == 1
    assert "at sizes" in errors
    assert shapes
    assert not (tmp_path / "out").exists()


def kernels_of(path):
    (file,) = (path / "sources").glob("*.json")
    return json.loads(file.read_text())["kernels"]
