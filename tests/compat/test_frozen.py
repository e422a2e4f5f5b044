"""Bundles of every released format version still load and still give the same numbers.

`frozen/<version>` was written once and is never written again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aotc.runtime import check, load
from aotc.runtime.manifest import FORMAT
from aotc.runtime.verify import verify

FROZEN = Path(__file__).parent / "frozen"
IDENTITIES = {"1.0": "0435b8da9da9bcf724dd74823957b07da60597e0ae2c379ea531599794487dd2"}


@pytest.mark.parametrize("version", IDENTITIES)
def test_frozen_bundle(version, tmp_path):
    path = tmp_path / "bundle"
    shutil.copytree(FROZEN / version, path)
    assert check(path) == []
    assert {finding.status for finding in verify(path)} == {"ok"}
    with load(path, digest=IDENTITIES[version]) as program:
        assert program(bytes(range(24)))[0].tobytes() == bytes(range(24))


def test_the_present_version_is_frozen():
    assert ".".join(map(str, FORMAT)) in IDENTITIES
