"""Every flipped bit and every truncation of a bundle is refused before a driver sees it."""

from __future__ import annotations

import null_driver
import pytest
import small_bundle

from aotc.runtime import check, load
from aotc.runtime.errors import AotcError, BundleError, BundleTruncated, IncompatibleError
from aotc.runtime.verify import verify


class Reached(Exception):
    """The driver was called with a damaged bundle."""


@pytest.fixture
def guarded(bundle, monkeypatch):
    """A bundle whose load must fail before the driver."""

    def refuse(*_args, **_named):
        raise Reached

    monkeypatch.setattr(null_driver, "Executable", refuse)
    with pytest.raises(Reached):
        load(bundle)
    return bundle


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << (bit % 8)
    return bytes(damaged)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.nightly)])
def test_every_bit_of_the_manifest(guarded, step):
    """A bit of each byte, and (nightly) every bit, which `scripts/robustness` flips too."""
    manifest = guarded / "manifest.msgpack"
    data = manifest.read_bytes()
    for bit in range(0, 8 * len(data), step):
        manifest.write_bytes(flipped(data, bit))
        with pytest.raises((BundleError, IncompatibleError)):
            load(guarded)
        if bit % 16 == 0:
            assert check(guarded), bit


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("targets/null/plan.msgpack", 13),
        ("targets/null/kernels.so", 1),
        ("weights.safetensors", 11),
    ],
)
def test_bits_of_every_payload(guarded, name, step):
    file = guarded / name
    data = file.read_bytes()
    for bit in range(0, 8 * len(data), step):
        file.write_bytes(flipped(data, bit))
        with pytest.raises(BundleError) as caught:
            load(guarded)
        assert caught.value.code == "bundle-altered"
        assert name in caught.value.message


def test_weights_are_left_out_only_on_request(bundle):
    weights = bundle / "weights.safetensors"
    weights.write_bytes(flipped(weights.read_bytes(), 8 * weights.stat().st_size - 1))
    with pytest.raises(BundleError, match="chunk 0"):
        load(bundle)
    load(bundle, verify="code").close()


@pytest.mark.parametrize(
    "name", ["manifest.msgpack", "targets/null/plan.msgpack", "weights.safetensors"]
)
def test_every_truncation(guarded, name):
    file = guarded / name
    data = file.read_bytes()
    for length in range(len(data)):
        file.write_bytes(data[:length])
        with pytest.raises(BundleError) as caught:
            load(guarded)
        expected = "not-a-bundle" if (name, length) == ("manifest.msgpack", 0) else None
        assert caught.value.code == (expected or "bundle-truncated")


def test_bytes_too_many(guarded):
    for name in small_bundle.COUNTED:
        file = guarded / name
        data = file.read_bytes()
        file.write_bytes(data + b"\0")
        with pytest.raises(BundleError):
            load(guarded)
        file.write_bytes(data)


def test_missing_files_are_named(guarded):
    for name in small_bundle.COUNTED:
        file = guarded / name
        data = file.read_bytes()
        file.unlink()
        with pytest.raises(BundleError) as caught:
            load(guarded)
        assert name in str(caught.value)
        assert check(guarded)
        file.write_bytes(data)


def test_damage_beside_the_digest_does_not_stop_load_but_verify(bundle):
    for name in ("golden.safetensors", "provenance.json", "extras.msgpack"):
        file = bundle / name
        data = file.read_bytes()
        file.write_bytes(flipped(data, 8 * (len(data) // 2)))
        load(bundle).close()
        assert any(finding.status == "failed" for finding in verify(bundle)), name
        file.write_bytes(data)


def test_extras_may_be_deleted(bundle):
    for name in ("golden.safetensors", "provenance.json", "sources/copy.py", "extras.msgpack"):
        (bundle / name).unlink()
        statuses = {finding.status for finding in verify(bundle)}
        assert statuses == {"ok", "absent"}, name


def test_truncation_is_known_from_another_format(bundle):
    """What is no bundle, too new, cut off and altered are four answers."""
    manifest = bundle / "manifest.msgpack"
    data = manifest.read_bytes()
    cases = {
        "not-a-bundle": b"PK\x03\x04" + data[4:],
        "format-too-new": data[:8] + b"\x00\x05" + data[10:],
        "format-too-old": data[:8] + b"\x00\x00" + data[10:],
        "bundle-truncated": data[:-1],
        "bundle-altered": flipped(data, 8 * 40),
    }
    for code, damaged in cases.items():
        manifest.write_bytes(damaged)
        with pytest.raises(AotcError) as caught:
            load(bundle)
        assert caught.value.code == code
        assert [row.code for row in check(bundle)] == [code]
    assert BundleTruncated.exit_code == 6
