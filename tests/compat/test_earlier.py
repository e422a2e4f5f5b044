"""Bundles of earlier formats get one clear line, and nothing of them is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotc.runtime import check, load
from aotc.runtime.errors import FormatTooOld
from aotc.runtime.verify import verify

FROZEN = Path(__file__).parent / "frozen"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_earlier_formats_are_refused_in_one_line(version):
    with pytest.raises(FormatTooOld) as caught:
        load(FROZEN / version)
    assert f"built by an earlier format, {version}" in str(caught.value)
    assert "build it again" in caught.value.hint_text
    (row,) = check(FROZEN / version)
    assert row.code == "format-too-old"
    (finding,) = verify(FROZEN / version)
    assert finding.status != "ok"
