"""The record of a tuning over four nodes is that of one node, also where a node is killed."""

from __future__ import annotations

import pytest


@pytest.mark.ray
@pytest.mark.nightly
def test_records_do_not_depend_on_who_measured():
    pytest.importorskip("ray", reason="ray is not installed")
    from benchmarks.many_machines import measure, page

    runs = measure(16, 0.2)
    assert len({each.record for each in runs}) == 1
    assert runs[0].record.count("\n") == 1 + 16
    assert "DIFFERS" not in page(runs, 16)
