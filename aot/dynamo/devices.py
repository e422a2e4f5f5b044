"""On which device a graph of torch.compile runs, in which precision, and what is left there.

A graph whose tensors are on the CPU and on at most one CUDA device is compiled for the latter where
it has tensors there; its nodes on the CPU are then left to torch by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

from aotc.aot.dynamo.errors import CaptureRefused
from aotc.aot.dynamo.options import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotc.aot.capture.aten_places import Place


KINDS = ("cpu", "cuda")  # of devices whose generators draw for graphs


def placed(module: GraphModule, examples: Sequence[Any], options: Options) -> Options:
    """The options of a graph: those of its CUDA device where all its CUDA tensors are on one.

    Raises `CaptureRefused` for one whose first call is inside of a capture: compiled code is
    loaded, which no recorded graph can hold.
    """
    if torch.version.cuda is None and torch.version.hip is not None:
        return options  # its devices are called the same
    found = {each.device.index or 0 for each in _tensors(module, examples) if each.is_cuda}
    if len(found) != 1:
        return options
    refuse_capture()
    (ordinal,) = found
    major, minor = torch.cuda.get_device_capability(ordinal)
    precision = "tf32" if uses_tf32(is_convolution=False) else "ieee"
    target = f"cuda-sm_{major}{minor}"
    return replace(options, target=target, ordinal=ordinal, dot_precision=precision)


def refuse_capture() -> None:
    """Raise `CaptureRefused` while the caller records torch's stream as a CUDA graph."""
    if torch.cuda.is_current_stream_capturing():
        raise CaptureRefused()


def place_of(options: Options) -> Place:
    """Where the tensors of a graph are, and what the walk over it leaves to torch."""
    from aotc.aot.capture.aten_places import HOST, Place  # a warm start walks over nothing

    if options.ordinal is None:
        return HOST
    leaves = options.dot_precision != "ieee" or uses_tf32(is_convolution=True)
    return Place(
        device_at(options.ordinal), leaves, not options.unchecked_indices, names_by_place=True
    )


def device_at(ordinal: int) -> torch.device:
    """The CUDA device of this number, as torch has it."""
    return torch.device("cuda", ordinal)


def ordinal_of(value: Any) -> int | None:
    """The number of a CUDA device; None for all else."""
    is_cuda = isinstance(value, torch.device) and value.type == KINDS[1]
    return (value.index or 0) if is_cuda else None


def facts() -> str:
    """What a graph on a CUDA device depends on beside its text: the devices that there are, and
    the switches of their arithmetic. Nothing where torch runs nothing there."""
    if not torch.cuda.is_initialized():
        return ""
    count = torch.cuda.device_count()
    known = [torch.cuda.get_device_capability(ordinal) for ordinal in range(count)]
    return f"{known} {uses_tf32(is_convolution=False)} {uses_tf32(is_convolution=True)}"


def uses_tf32(is_convolution: bool) -> bool:
    """Whether torch's switches ask for products of f32 in fewer bits."""
    backends = torch.backends
    row = backends.cudnn.conv if is_convolution else backends.cuda.matmul
    return bool(row.fp32_precision == "tf32")


def _tensors(module: GraphModule, examples: Sequence[Any]) -> Iterator[torch.Tensor]:
    """The tensors of a graph: its arguments, its constants and what its nodes give."""
    for node in module.graph.nodes:
        value = node.meta.get("val")
        yield from _plain(value if isinstance(value, list | tuple) else (value,))
    yield from _plain(examples)


def _plain(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    return (each for each in values if isinstance(each, torch.Tensor))
