"""Bundles for several GPUs, built on a machine without one: files, plan, and what is refused."""

from __future__ import annotations

import json

import numpy
import pytest

pytest.importorskip("triton")
torch = pytest.importorskip("torch")

from fake_cuda import FakeCuda, install  # noqa: E402

from aotc.aot.cli.inspect import inspect_bundle  # noqa: E402
from aotc.aot.errors import NothingToSplit, SplitUnsupported  # noqa: E402
from aotc.aot.pipeline import BuildOptions, build  # noqa: E402
from aotc.runtime import check, load  # noqa: E402
from aotc.runtime.bundle.manifest import Manifest  # noqa: E402
from aotc.runtime.bundle.plan import Plan  # noqa: E402
from aotc.runtime.bundle.weights import read_header  # noqa: E402
from aotc.runtime.errors import BundleIncompatible, BundleMalformed  # noqa: E402
from aotc.runtime.loading import _check_parts  # noqa: E402

RANKS = 2
SPEC = """
import torch, torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.LayerNorm(256), nn.Linear(256, 1024)
).eval()
example_inputs = (torch.randn(4, 256),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("split")


@pytest.fixture(scope="module")
def made(folder):
    def make(name, *targets, text=SPEC, **options):
        (folder / "spec.py").write_text(text)
        chosen = BuildOptions(cache_folder=folder / "cache", force=True, **options)
        build(str(folder / "spec.py"), folder / name, targets or ("cuda:sm_90",), chosen)
        return folder / name

    return make


@pytest.fixture(scope="module")
def bundle(made):
    return made("bundle", ranks=RANKS)


def test_each_rank_has_a_part_of_each_weight(bundle, folder):
    data = (bundle / "weights.safetensors").read_bytes()
    tensors = read_header(memoryview(data), "weights")
    scope = {}
    exec((folder / "spec.py").read_text(), scope)  # the spec above
    state = scope["model"].state_dict()
    parts = {name: row for name, row in tensors.items() if "@rank" in name or
             f"{name}@rank1" in tensors}  # fmt: skip
    assert len(parts) == 2 * 5  # three weights, and the biases of what is split by columns
    size = int.from_bytes(data[:8], "little") + 8
    found = []
    for name in sorted(each for each in parts if "@" not in each):
        rows = [
            numpy.frombuffer(data, "f4", row.nbytes // 4, size + row.offset - size)
            for row in (tensors[name], tensors[f"{name}@rank1"])
        ]
        assert not (rows[0] == rows[1]).all()
        found.append(numpy.sort(numpy.concatenate(rows)))
    wholes = [numpy.sort(each.numpy().ravel()) for each in state.values() if each.numel() > 256]
    for each in wholes:
        assert any(row.shape == each.shape and (row == each).all() for row in found)


def test_the_manifest_and_what_inspect_says(bundle):
    manifest = Manifest.from_bytes((bundle / "manifest.msgpack").read_bytes())
    assert manifest.ranks == RANKS
    assert "tensor-parallel" in manifest.features
    record = inspect_bundle(bundle)
    assert record["ranks"] == RANKS
    assert record["layouts"] == []
    json.dumps(record)


def test_nothing_shares_memory_with_what_other_ranks_may_write(bundle):
    """From the exchange before it on."""
    manifest = Manifest.from_bytes((bundle / "manifest.msgpack").read_bytes())
    plan = Plan.from_msgpack((bundle / manifest.targets[0].plan).read_bytes())
    assert plan.ranks == RANKS
    fixed = plan.fixed
    sizes = {row.offset: row.nbytes for row in fixed.buffers}
    steps = [step.args for step in fixed.steps]
    exchanges = [at for at, args in enumerate(steps) if ("peer", 1) in args]
    assert len(exchanges) == 2
    flags = {tuple(steps[at])[4] for at in exchanges}
    assert len(flags) == 2  # in turns
    for before, at in zip([0, *exchanges], exchanges, strict=False):
        own = steps[at][2][1]  # data, status, then what comes
        for args in steps[before:at]:
            for space, value in args:
                if space == "arena" and value not in {each[1] for each in flags}:
                    assert value + sizes.get(value, 1) <= own or own + sizes[own] <= value


def test_a_machine_with_too_few_devices(bundle, monkeypatch):
    install(monkeypatch, FakeCuda(devices=1))
    (row,) = check(bundle)
    assert (row.code, row.field) == ("device-absent", "CUDA device")
    with pytest.raises(BundleIncompatible, match="device 1"):
        load(bundle)
    install(monkeypatch, FakeCuda(devices=3))
    assert check(bundle) == []
    with pytest.raises(BundleIncompatible, match="device 3"):
        load(bundle, device="cuda:2")


def test_loading_brings_each_rank_its_weights(bundle, monkeypatch):
    fake = install(monkeypatch, FakeCuda(devices=2))
    with load(bundle) as program:
        group = program._loaded.executable
        one, other = (each.weights for each in group.ranks)
        assert one.keys() == other.keys()
        names = [name for name in one if "part" in name]
        blocks = [bytes(fake.memory(each[names[0]], 256)) for each in (one, other)]
        assert blocks[0] != blocks[1]
    assert fake.live() == {}


def test_parts_of_other_sizes_are_refused():
    whole = {"w": (64, 256), "w@rank1": (512, 256), "v": (1024, 8)}
    _check_parts(whole, 2, "plan")
    with pytest.raises(BundleMalformed, match="parts of `w` of 256, 256, -1 bytes, expected 3"):
        _check_parts(whole, 3, "plan")
    with pytest.raises(BundleMalformed, match="of 256, 128 bytes"):
        _check_parts(whole | {"w@rank1": (512, 128)}, 2, "plan")


def test_what_does_not_go_with_several_devices(made):
    for options, words in (
        ({"fallback": "torch"}, "`--fallback torch` beside `--tensor-parallel`"),
        ({"adapters": True}, "`--adapters` beside"),
    ):
        with pytest.raises(SplitUnsupported, match=words) as caught:
            made("other", ranks=2, **options)
        assert caught.value.exit_code == 2
    with pytest.raises(SplitUnsupported, match="target `cpu-"):
        made("other", "cuda:sm_90", "cpu", ranks=2)
    small = SPEC.replace("1024", "64").replace("256", "32")
    with pytest.raises(NothingToSplit, match="over 2 GPUs, expected a product with weights of at"):
        made("other", text=small, ranks=2)
