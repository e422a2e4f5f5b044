"""Bundles of every released format version still load and still give the same numbers.

`frozen/<version>` was written once and is never written again, as were bundles of later plan abis.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from aotc.runtime import check, load
from aotc.runtime.bundle.manifest import FORMAT
from aotc.runtime.size_errors import SizeGuard
from aotc.runtime.verify import verify

FROZEN = Path(__file__).parent / "frozen"
IDENTITIES = {
    "1.0": "0435b8da9da9bcf724dd74823957b07da60597e0ae2c379ea531599794487dd2",
    "1.1": "b6471c450739c382e56f3832128356350f65b7f54f6dd0a0a6832e4c118695c9",
}
DYNAMIC = "1ef1580275cdf5b7901b9924dd35cc2b5224f68a36c889c39147762b23f40427"  # plan-abi-4


@pytest.mark.parametrize("version", IDENTITIES)
def test_frozen_bundle(version, tmp_path):
    path = tmp_path / "bundle"
    shutil.copytree(FROZEN / version, path)
    assert check(path) == []
    assert {finding.status for finding in verify(path)} == {"ok"}
    with load(path, digest=IDENTITIES[version]) as program:
        assert program(bytes(range(24)))[0].tobytes() == bytes(range(24))


def test_frozen_structure():
    """Version 1.1 brought structures: this bundle takes a dict and gives a record in a tuple."""
    with load(FROZEN / "1.1") as program:
        y, rest = program(batch={"x": bytes(range(24))}, scale=0.5)
        assert y.tobytes() == bytes(range(24))
        assert rest.weight.tolist() == [1.0] * 6
        assert rest["none"] is None


def test_frozen_calls_of_torch():
    """Plan abi 5 brought ops that torch runs: `y` is `x` less a weight of ones, sorted by rows."""
    pytest.importorskip("torch")
    path = FROZEN / "plan-abi-5"
    assert check(path) == []
    assert {finding.status for finding in verify(path)} == {"ok"}
    identity = "bb2e9c33f2c323cb8076dc7093abfa07f23eaed8479c6dc346068c1e97b2ad93"
    with load(path, digest=identity) as program:
        y, order = program(struct.pack("<6f", 3, 1, 2, -1, 5, 0))
        assert struct.unpack("<6f", y) == (0, 1, 2, -2, -1, 4)
        assert struct.unpack("<6q", order) == (1, 2, 0, 0, 2, 1)
        assert program.fallback_calls == {"aten::sort.stable": 1, "aten::sub.Tensor": 1}


def test_frozen_shapes_of_a_call(tmp_path):
    """Plan abi 4 brought sizes that a call decides: ranges, a guard, a variant of fixed shapes."""
    path = tmp_path / "bundle"
    shutil.copytree(FROZEN / "plan-abi-4", path)
    assert check(path) == []
    assert {finding.status for finding in verify(path)} == {"ok"}
    with load(path, digest=DYNAMIC) as program:
        for rows in (4, 2, 1000, 4):
            given = memoryview(bytes(range(24)) * rows).cast("f", (rows, 6))
            y, w = program(given)
            assert y.tobytes() == given.tobytes()
            assert w.tolist() == [1.0] * 6
        with pytest.raises(SizeGuard, match=r"n = 3"):
            program(memoryview(bytes(72)).cast("f", (3, 6)))


def test_frozen_native_functions():
    """Plan abi 6 brought native functions, here one embedded: `y` is 2 · (relu(x) + x)."""
    path = FROZEN / "plan-abi-6"
    mismatches = check(path)
    if mismatches:
        pytest.skip(f"needs x86-64-v3: {mismatches[0]}")
    statuses = {finding.status for finding in verify(path)}
    assert statuses == {"ok", "absent"}  # its sources are left out
    identity = "73001582cf066cc911f882ccd34e48c297d1dbe9aa9ab1a055485e81f3916c6f"
    with load(path, digest=identity) as program:
        y = program(struct.pack("<6f", 1, -2, 3, -4, 5, -6))
        assert y.tolist() == [[4, -4, 12], [-8, 20, -12]]


def test_frozen_states():
    """Plan abi 7 brought states: `y` is the input of the call before, first a weight."""
    path = FROZEN / "plan-abi-7"
    assert check(path) == []
    assert {finding.status for finding in verify(path)} == {"ok"}
    identity = "b9e9c87f62ada1c835f6038d6f77912507e624bef97290bd01d1af6aca19a5d2"
    with load(path, digest=identity) as program:
        x = bytes(range(24))
        assert struct.unpack("<6f", program(x)) == (9, 8, 7, 6, 5, 4)
        assert program(x).tobytes() == x
        assert bytes(program.state["spare"]) == bytes(8)


def test_the_present_version_is_frozen():
    assert ".".join(map(str, FORMAT)) in IDENTITIES
