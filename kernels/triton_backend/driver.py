"""The driver that Triton finds where `AOTC_TRITON_CPU=1` and no other device is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from triton.backends.driver import DriverBase

from aotc.kernels.triton_backend import NAME


class Driver(DriverBase):  # type: ignore[misc]
    """Makes `aotc.kernels.driver.CpuDriver`."""

    def __new__(cls) -> Any:
        from aotc.kernels.driver import CpuDriver

        return CpuDriver()

    @classmethod
    def is_active(cls) -> bool:
        """On request, and never beside another: Triton wants one."""
        from aotc.runtime.settings import read

        if not read("AOTC_TRITON_CPU").value:
            return False
        from triton.backends import backends

        others = (row.driver for name, row in backends.items() if name != NAME)
        return not any(driver.is_active() for driver in others)

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError

    def get_current_target(self) -> Any:
        raise NotImplementedError

    def get_active_torch_device(self) -> Any:
        raise NotImplementedError

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        raise NotImplementedError
