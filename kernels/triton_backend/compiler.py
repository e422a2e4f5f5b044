"""The compiler that Triton finds for targets of `aotc.kernels`."""

from __future__ import annotations

from typing import Any

from triton.backends.compiler import BaseBackend

from aotc.kernels.triton_backend import NAME


class Compiler(BaseBackend):  # type: ignore[misc]
    """Makes `aotc.kernels.driver.CpuBackend`."""

    def __new__(cls, target: Any) -> Any:
        from aotc.kernels.driver import CpuBackend

        return CpuBackend(target)

    @staticmethod
    def supports_target(target: Any) -> bool:
        return bool(target.backend == NAME)

    def hash(self) -> str:
        raise NotImplementedError

    def parse_options(self, options: dict[str, Any]) -> object:
        raise NotImplementedError

    def add_stages(self, stages: dict[str, Any], options: object, language: Any = None) -> None:
        raise NotImplementedError

    def load_dialects(self, context: Any) -> None:
        raise NotImplementedError

    def get_module_map(self) -> dict[str, Any]:
        raise NotImplementedError
