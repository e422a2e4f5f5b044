"""Verify: digests, compatibility and golden numbers, as findings."""

from __future__ import annotations

import hashlib
import struct
import sys
from dataclasses import replace

import pytest
import small_bundle

from aotc.aot.pack import Golden, TensorData, pack
from aotc.runtime import check
from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.bundle.manifest import MAIN, MANIFEST_NAME, Manifest
from aotc.runtime.comparison import elements, relative_difference
from aotc.runtime.errors import GoldenMissing
from aotc.runtime.extras import read_golden
from aotc.runtime.verify import verify


def statuses(findings) -> dict[str, str]:
    return {f"{each.layer} {each.subject}": each.status for each in findings}


def test_a_sound_bundle(bundle):
    found = statuses(verify(bundle))
    assert set(found.values()) == {"ok"}
    for name in small_bundle.names(bundle):
        if name.endswith((".safetensors", ".json")):
            assert f"integrity {name}" in found
    assert "golden y" in found


def test_native_golden(native):
    assert statuses(verify(native, layers=("golden",))) == {"golden y": "ok"}
    assert check(native) == []


def test_golden_numbers_that_differ(tmp_path):
    contents = small_bundle.contents()
    wrong = TensorData("f32", (6,), struct.pack("<6f", 1, 1, 1, 1, 1, 1.5))
    zeros = contents.golden[MAIN].inputs[0]
    golden = {MAIN: Golden((zeros,), (zeros, wrong), (0.0, 0.25))}
    pack(replace(contents, golden=golden), tmp_path / "bundle")
    findings = verify(tmp_path / "bundle", layers=("golden",))
    by_name = {each.subject: each for each in findings}
    assert by_name["y"].status == "ok"
    assert by_name["w"].status == "failed"
    assert by_name["w"].code == "golden-differs"
    assert by_name["w"].difference == pytest.approx(0.5 / 1.5)
    assert by_name["w"].as_map()["tolerance"] == 0.25


def test_golden_file_that_does_not_fit(bundle):
    other = small_bundle.contents(shape=(3, 2))
    pack(other, bundle.parent / "other")
    for name in ("golden.safetensors", "extras.msgpack"):
        (bundle / name).write_bytes((bundle.parent / "other" / name).read_bytes())
        findings = verify(bundle, layers=("golden",))
        assert [each.code for each in findings] == ["bundle-altered"]
    manifest = Manifest.from_bytes((bundle / MANIFEST_NAME).read_bytes())
    extras = manifest.extras.replace(
        nbytes=(bundle / "extras.msgpack").stat().st_size,
        sha256=hashlib.sha256((bundle / "extras.msgpack").read_bytes()).digest(),
    )
    (bundle / MANIFEST_NAME).write_bytes(manifest.replace(extras=extras).to_bytes())
    assert [each.code for each in verify(bundle, layers=("golden",))] == ["bundle-malformed"]


def test_golden_numbers_that_were_deleted(bundle):
    for name in ("golden.safetensors", "extras.msgpack"):
        (bundle / name).unlink()
        assert [each.status for each in verify(bundle, layers=("golden",))] == ["absent"]
        with pytest.raises(GoldenMissing):
            read_golden(bundle)


def test_golden_waits_for_integrity(bundle):
    (bundle / "targets/null/kernels.so").write_bytes(b"other!!")
    layers = {each.layer for each in verify(bundle)}
    assert "golden" not in layers


def test_no_bundle_is_a_finding(tmp_path):
    assert [each.code for each in verify(tmp_path)] == ["not-a-bundle"]


def pack_floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        ((1.0, 2.0), (1.0, 2.0), 0.0),
        ((1.0, 2.5), (1.0, 2.0), 0.25),
        ((0.0, 0.5), (0.0, 0.0), 0.5),
        ((NAN, 2.0), (NAN, 2.0), 0.0),
        ((NAN, 3.0), (NAN, 2.0), 0.5),
        ((INF, 3.0), (INF, 2.0), 0.5),
        ((NAN, 2.0), (1.0, 2.0), INF),
        ((1.0, 2.0), (NAN, 2.0), INF),
        ((INF, 2.0), (-INF, 2.0), INF),
        ((-0.0, 2.0), (0.0, 2.0), 0.0),
    ],
)
def test_relative_difference(found, expected, difference):
    assert relative_difference("f32", pack_floats(*found), pack_floats(*expected)) == difference


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_only_makes_it_faster(dtype, monkeypatch):
    numpy = pytest.importorskip("numpy")
    bits = numpy.random.default_rng(5).integers(0, 256, (2, 4096), "u1")
    finite = bits & (1 if dtype == "bool" else 0x3F)
    pairs = [(found.tobytes(), expected.tobytes()) for found, expected in (finite, bits)]
    if dtype == "bool":
        pairs.pop()
    fast = [relative_difference(dtype, *pair) for pair in pairs]
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert fast == [relative_difference(dtype, *pair) for pair in pairs]


def test_differences_of_other_types():
    assert relative_difference("i64", struct.pack("<2q", 3, 4), struct.pack("<2q", 3, 8)) == 0.5
    assert relative_difference("bool", b"\x01\x00", b"\x01\x01") == 1.0
    assert relative_difference("f32", b"", b"") == 0.0
    assert relative_difference("f32", bytes(4), bytes(8)) == INF


def test_elements_agree_with_torch():
    torch = pytest.importorskip("torch")
    from aotc.runtime.arrays.exchange import TORCH_DTYPES

    for dtype in DTYPES:
        tensor = (torch.arange(-8, 8) * 0.37).to(getattr(torch, TORCH_DTYPES[dtype]))
        data = bytes(tensor.view(torch.uint8).numpy())
        assert list(elements(dtype, data)) == tensor.tolist(), dtype
