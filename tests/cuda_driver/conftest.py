"""The small program of `fake_program`, loaded on the fake driver."""

import pytest
from fake_program import COUNT, KERNELS, Host, small_plan

from aotc.runtime.drivers.cuda.driver import Executable


@pytest.fixture
def weights():
    """Two tensors beside each other and one that no launch reads."""
    host = Host(bytes([10] * COUNT + [0] * 48 + [20] * COUNT + [0] * 48 + [99] * COUNT))
    places = {"w": 0, "v": 64, "unused": 128}
    table = {name: (host.address + at, COUNT) for name, at in places.items()}
    table["host"] = host  # keeps the memory alive
    return table


@pytest.fixture
def program(fake_cuda, weights):
    """`program(**options of small_plan)`: an executable of the small plan."""
    fake_cuda.kernels.update(KERNELS)

    def make(device=0, **options):
        image, plan = small_plan(**options)
        return Executable(image, plan, weights, (COUNT,), (COUNT,), device)

    return make
