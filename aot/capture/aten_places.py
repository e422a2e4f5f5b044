"""The devices that tensors of an AOTAutograd graph may be on, and what is left to torch on a CUDA
device.

Left to torch there: convolutions of f32 where torch's switches ask for lower precision, and checked
indices and divisors, whose error the device would report one call late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from aotc.aot.capture.imports.call import NotSupported

CPU = torch.device("cpu")
LATE = "its data are checked on the device, which would say what is wrong one call late"
CONVOLUTIONS = frozenset({"convolution", "convolution_backward"})


@dataclass(frozen=True, slots=True)
class Place:
    """A device, and what a graph on it leaves to torch.

    leaves_convolutions: whether those of f32 are torch's, since it computes them or, with our
    products, we would compute them in TF32. Its switch for convolutions may change from call to
    call of a compiled graph; that for products makes Dynamo compile anew.
    is_checked_late: whether what a call's data is refused for is known after the call only.
    names_by_place: whether inputs have names of their place, so that equal layers are equal graphs.
    """

    device: torch.device = CPU
    leaves_convolutions: bool = False
    is_checked_late: bool = False
    names_by_place: bool = False

    def check_memory(self, value: torch.Tensor) -> None:
        """Raise `NotSupported` for an argument that is not plain memory of the device, or of the
        host: what reads that is left, but a graph may hand it on, as states of generators."""
        if not self._has(value) and not value.is_cpu:
            raise NotSupported(f"device `{value.device}`, which has no target here")
        self.check_constant(value)

    def check_constant(self, value: torch.Tensor) -> None:
        """The same of a constant of the graph, which is copied from wherever it lies."""
        if value.layout != torch.strided:
            raise NotSupported(f"layout `{value.layout}`")

    def check_node(self, node: torch.fx.Node) -> None:
        """Raise `NotSupported` for a call with tensors elsewhere, or one of f32 that torch
        may compute in TF32."""
        ends = [each for each in (*node.all_input_nodes, node) if each.op != "get_attr"]
        values = [each for end in ends for each in _tensors(end.meta.get("val"))]
        for value in values:
            if not self._has(value) and not value.is_meta:
                raise NotSupported(f"a tensor on `{value.device}` in a graph on `{self.device}`")
        is_of_f32 = any(each.dtype == torch.float32 for each in values)
        if self.leaves_convolutions and is_of_f32 and _base_name(node) in CONVOLUTIONS:
            raise NotSupported("a convolution of f32 where torch's switches ask for TF32")

    def _has(self, value: torch.Tensor) -> bool:
        return value.is_cpu if self.device == CPU else value.device == self.device


def _base_name(node: torch.fx.Node) -> str:
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    return str(name).removeprefix("aten::")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for each in value if isinstance(value, list | tuple) else (value,):
        if isinstance(each, torch.Tensor):
            yield each


HOST = Place()
