"""Tests on a real device: marked `gpu`, left out where there is none; `scripts/check-gpu` runs
them."""

import sys
from pathlib import Path

import pytest

from aotc.runtime.drivers.cuda import driver as cuda

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("checks", "control_flow"))]


def pytest_collection_modifyitems(items):
    reason = cuda.why_absent()
    for item in items:
        if HERE in Path(str(item.path)).parents:
            item.add_marker(pytest.mark.gpu)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def device():
    """Device 0, closed after the test."""
    from aotc.runtime.drivers.cuda.device import Device

    device = Device()
    yield device
    device.close()
