"""A CUDA device's own limits, measured: bytes copied and operations of products a second."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

from aotc.aot.profile import ptx
from aotc.aot.profile.report import Limits
from aotc.runtime.drivers.cuda.handles import Arguments

COPY_TOTAL_BYTES = 1 << 30  # far more than any cache
TURNS = 4096
ROUNDS = 7


def measure_limits(device: Any) -> Limits:
    """Medians of a few rounds; takes a fraction of a second, and a second where the driver
    assembles the product's kernel for the first time."""
    with ExitStack() as stack:
        stream = stack.enter_context(closing(device.stream())).handle
        events = tuple(stack.enter_context(closing(device.event())) for _ in range(2))

        def rate(launch: Callable[[int], None], amount: float) -> float:
            return _rate(device, launch, stream, events, amount)

        copied = rate(_copy(device, stack), 2.0 * COPY_TOTAL_BYTES)
        launch, operations = _products(device, stack)
        return Limits(copied, rate(launch, operations))


def _rate(
    device: Any, launch: Callable[[int], None], stream: int, events: tuple[Any, ...], amount: float
) -> float:
    begin, end = events
    launch(stream)
    rates: list[float] = []
    for _ in range(ROUNDS):
        begin.record(stream)
        launch(stream)
        end.record(stream)
        rates.append(amount / (device.elapsed_ms(begin, end) / 1e3))
    return statistics.median(rates)


def _copy(device: Any, stack: ExitStack) -> Callable[[int], None]:
    function = _function(device, stack, ptx.COPY, "aotc_copy")
    to, source = (_memory(device, stack, COPY_TOTAL_BYTES) for _ in range(2))
    device.fill(source, 1, COPY_TOTAL_BYTES)
    device.synchronize()
    arguments = Arguments([to, source])
    grid = (COPY_TOTAL_BYTES // ptx.COPY_BYTES, 1, 1)
    return lambda stream: device.launch(function, grid, ptx.COPY_THREADS, arguments, stream)


def _products(device: Any, stack: ExitStack) -> tuple[Callable[[int], None], float]:
    """A launch that fills all multiprocessors with products, and its operations."""
    is_warpgroup = device.capability == (9, 0)
    text = ptx.warpgroup_text() if is_warpgroup else ptx.warp_text()
    operations = ptx.WARPGROUP_OPERATIONS if is_warpgroup else ptx.WARP_OPERATIONS
    function = _function(device, stack, text, "aotc_matrix")
    # The accumulators of the warpgroup form fill the registers of a multiprocessor.
    programs = device.attribute("multiprocessors") * (1 if is_warpgroup else 2)
    arguments = Arguments([_memory(device, stack, 4 * ptx.MATRIX_THREADS), TURNS])
    grid = (programs, 1, 1)
    total = float(operations) * TURNS * programs
    return lambda stream: device.launch(
        function, grid, ptx.MATRIX_THREADS, arguments, stream
    ), total


def _function(device: Any, stack: ExitStack, text: str, name: str) -> Any:
    module = stack.enter_context(closing(device.load(text.encode() + b"\0")))
    return device.function(module, name, 0)


def _memory(device: Any, stack: ExitStack, nbytes: int) -> int:
    address: int = device.allocate(nbytes, "measuring the device's limits")
    stack.callback(device.free, address)
    return address
