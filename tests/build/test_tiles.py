"""Bundles of bf16 models for processors with tiles and without, of one copy of the weights."""

from dataclasses import replace

import pytest

from aotc.runtime import load
from aotc.runtime.bundle.manifest import MANIFEST_NAME, Manifest
from aotc.runtime.drivers.cpu import driver as cpu
from aotc.runtime.drivers.cpu import tile_permission

torch = pytest.importorskip("torch")
TARGETS = ("cpu-x86-64-amx", "cpu-x86-64-v4-bf16", "cpu-x86-64-v4", "cpu-x86-64-v3")

# Rows that tiles of 32 divide, that the last tile moves back for, few, and one; depths that pairs
# and tiles divide, and not; columns of one panel, of several and of a part of one.
MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wide = nn.Linear(96, 192)
        self.narrow = nn.Linear(192, 20)
        self.odd = nn.Linear(20, 70)
        self.long = nn.Linear(1056, 130, bias=False)

    def forward(self, x, y, few, one):
        found = self.odd(self.narrow(torch.nn.functional.gelu(self.wide(x))))
        return found, self.wide(y), self.wide(few), self.wide(one), self.long(self.rows(y))

    def rows(self, y):
        return torch.cat([y] * 11, 1)


def build_model():
    return Model().bfloat16().eval()


def inputs(rows):
    return torch.randn(rows, 96, generator=torch.Generator().manual_seed(rows)).bfloat16()


example_inputs = tuple(inputs(rows) for rows in (128, 45, 5, 1))
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory, cache):
    """(the model, its inputs, the bundle)."""
    from aotc.aot.pipeline import BuildOptions, build

    folder = tmp_path_factory.mktemp("tiles")
    (folder / "model.py").write_text(MODEL)
    space = {}
    exec((folder / "model.py").read_text(), space)
    build(str(folder / "model.py"), folder / "out", TARGETS, BuildOptions(cache_folder=cache))
    return space["build_model"](), space["example_inputs"], folder / "out"


def test_weights_are_stored_once(parts):
    manifest = Manifest.from_bytes((parts[2] / MANIFEST_NAME).read_bytes())
    assert [target.name for target in manifest.targets] == list(TARGETS)
    size = sum(parameter.numel() for parameter in parts[0].parameters())
    padded = 96 * 192 + 192 * 64 + 20 * 128 + 1056 * 192
    assert 2 * size < manifest.weights.nbytes < 2 * padded + 8192


@pytest.mark.parametrize("hidden", ["", "amx", "avx512_bf16 amx", "avx512 amx"])
def test_every_target_gives_the_model_s_numbers(parts, hidden, monkeypatch):
    model, inputs, bundle = parts
    found = cpu.processor_features()
    words = tuple(hidden.split())
    kept = frozenset(word for word in found if not words or not word.startswith(words))
    monkeypatch.setattr(cpu, "processor_features", lambda: kept)
    if not hidden and cpu.best_isa(cpu.features()) != "x86-64-amx":
        pytest.skip("this processor has no tiles, or its kernel denies them")
    with torch.no_grad():
        wide = model.double()(*(each.double() for each in inputs))
        model.bfloat16()
    for result, expected in zip(load(bundle, threads=2)(*inputs), wide, strict=True):
        # The last product's operands are bf16, and so is the result: 2⁻⁹ of the largest term each.
        limit = 2.0**-7 * expected.abs().amax()
        assert (result.double() - expected).abs().amax() <= limit


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_needs_what_its_kernels_use(name, parts, cache, tmp_path):
    """Code without products of narrow numbers runs on processors that multiply none."""
    from aotc.aot.pipeline import BuildOptions, build

    plain = "x86-64-v3" if "v3" in name else "x86-64-v4"
    text = MODEL.replace(".bfloat16()", "")
    (tmp_path / "model.py").write_text(text)
    build(str(tmp_path / "model.py"), tmp_path / "out", (name,), BuildOptions(cache_folder=cache))
    (target,) = Manifest.from_bytes((tmp_path / "out" / MANIFEST_NAME).read_bytes()).targets
    assert set(target.needs) == cpu.ISA_FEATURES[plain]
    manifest = Manifest.from_bytes((parts[2] / MANIFEST_NAME).read_bytes())
    needs = {row.name: set(row.needs) for row in manifest.targets}
    assert needs[name] == cpu.ISA_FEATURES[name.removeprefix("cpu-")]


def test_a_denied_permission_leads_to_the_next_target(parts, monkeypatch):
    everything = frozenset().union(*cpu.ISA_FEATURES.values())
    if not cpu.ISA_FEATURES["x86-64-v4-bf16"] <= cpu.processor_features():
        pytest.skip("this processor has no AVX-512 BF16")
    monkeypatch.setattr(cpu, "processor_features", lambda: everything)
    monkeypatch.setattr(tile_permission, "_refusals", ["a kernel that denies it (no)"])
    with load(parts[2], threads=1) as program:
        assert program.target == "cpu-x86-64-v4-bf16"


def test_tuning_asks_for_what_all_candidates_may_use(cache, tmp_path, monkeypatch):
    """One row is chosen without tiles or words, and others that would be measured have them."""
    from aotc.aot.errors import TuningDeviceMissing
    from aotc.aot.pipeline import BuildOptions, build
    from aotc.aot.retune import retune

    text = MODEL.replace("(128, 45, 5, 1)", "(1, 1, 1, 1)").replace(".bfloat16()", "")
    (tmp_path / "model.py").write_text(text)
    options = BuildOptions(cache_folder=cache)
    build(str(tmp_path / "model.py"), tmp_path / "out", ("cpu-x86-64-amx",), options)
    kept = cpu.ISA_FEATURES["x86-64-v4"]
    monkeypatch.setattr(cpu, "processor_features", lambda: kept)
    with pytest.raises(TuningDeviceMissing):
        retune(tmp_path / "out", tmp_path / "tuned", replace(options, tune="quick"))


def test_a_profile_knows_how_fast_products_of_bf16_can_be(parts):
    """By the names of kernels, whose bytes and operations come from the bundle's graphs."""
    from aotc.aot.cli.profile import _parts
    from aotc.aot.targets.cpu.isa import ISAS
    from aotc.runtime.bundle.opened import read_bundle

    program, _, facts, _ = read_bundle(parts[2], lambda opened: _parts(opened, None, None), None)
    with program:
        expected = dict(ISAS[program.target.removeprefix("cpu-")].product_rates).get("bf16", 1.0)
    rates = facts["product_rates"].items()
    assert {rate for name, rate in rates if name.startswith("matmul")} == {expected}
