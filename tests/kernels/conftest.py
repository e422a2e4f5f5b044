"""`AOTC_TEST_DEVICE=cuda pytest tests/kernels` makes all tensors of these tests on that device."""

import os

import pytest


@pytest.fixture(autouse=True)
def tensors_on_the_device():
    """The default device of torch, for each test."""
    name = os.environ.get("AOTC_TEST_DEVICE")
    if not name:
        yield
        return
    torch = pytest.importorskip("torch")
    before = torch.get_default_device()
    torch.set_default_device(name)
    yield
    torch.set_default_device(before)
