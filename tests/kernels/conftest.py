"""`AOTC_TEST_DEVICE=cuda pytest tests/kernels` makes all tensors of these tests on that device.

A test that means something on the CPU alone is marked `cpu_only` with its reason, and skipped.
"""

import os

import pytest

DEVICE = os.environ.get("AOTC_TEST_DEVICE") or "cpu"


@pytest.fixture(autouse=True)
def tensors_on_the_device(request):
    """The default device of torch, for each test."""
    if DEVICE == "cpu":
        yield
        return
    mark = request.node.get_closest_marker("cpu_only")
    if mark is not None:
        pytest.skip(mark.args[0])
    torch = pytest.importorskip("torch")
    before = torch.get_default_device()
    torch.set_default_device(DEVICE)
    yield
    torch.set_default_device(before)
