"""What an exchange among the GPUs of one host takes by itself, by words and by flags.

    python -m benchmarks.gpu.exchange --ranks 2 4

Each GPU replays a graph of STEPS exchanges in a row, all at the same time, as a program that is
split does it (`kernels/templates/exchange.py`). Rows of bf16; microseconds of one exchange, the
median of the replays, of the first GPU.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from aotc.kernels.templates.exchange import exchange

STEPS, REPLAYS = 64, 41
STATUS, UNIT_BYTES, MOST_BYTES = 32, 16, 1 << 23  # of a result, and of what says that it has come
COUNTS = (512, 4096, 8192, 16384, 65536)


@dataclass(frozen=True)
class Form:
    """One way to exchange: elements at a time, of those that travel as words, and warps."""

    name: str
    is_by_words: bool
    block: int
    warps: int


FORMS = (
    Form("words", True, 512, 8),
    Form("words", True, 512, 4),
    Form("words", True, 256, 4),
    Form("words", True, 256, 2),
    Form("words", True, 128, 1),
    Form("flags", False, 2048, 8),
)


def arenas(ranks: int) -> list[torch.Tensor]:
    """Memory of each GPU that the others reach: results, then what says that they have come."""
    found = [
        torch.zeros(4 * MOST_BYTES, dtype=torch.uint8, device=f"cuda:{i}") for i in range(ranks)
    ]
    for one in found:
        for other in found:
            one[:1].copy_(other[:1])  # torch has each reach the others' memory
    return found


def launches(
    rank: int, memory: list[torch.Tensor], data: torch.Tensor, form: Form
) -> tuple[Callable[[int], None], list[torch.Tensor]]:
    """Launches the exchange of a number on a GPU; and the two results that take turns."""
    count, ranks = data.numel(), len(memory)
    own = memory[rank]
    peers = tuple((other.data_ptr() - own.data_ptr()) // UNIT_BYTES for other in memory)
    status = [torch.zeros(STATUS, dtype=torch.int32, device=own.device) for _ in range(2)]
    parts = [own[turn * MOST_BYTES :] for turn in range(4)]
    results = [
        part[: ranks * count * 2].view(torch.bfloat16).view(ranks, count) for part in parts[:2]
    ]
    arrivals = [part[:MOST_BYTES].view(torch.int64) for part in parts[2:]]
    programs = max(1, min(STATUS, -(-count // form.block)))

    def launch(step: int) -> None:
        turn = step % 2
        exchange[(programs,)](
            results[turn], status[turn], data, status[1 - turn], arrivals[turn], peers, count,
            RANKS=ranks, IS_SCATTERED=False, PROGRAMS=programs, STATUS=STATUS,
            FLAGS=STATUS * ranks // 2, UNIT=UNIT_BYTES // 2, BLOCK=form.block,
            MOST_WORDS=MOST_BYTES if form.is_by_words else 0, WORDS_BLOCK=form.block,
            LIMIT=1 << 23, num_warps=form.warps,
        )  # fmt: skip

    return launch, results


def exchange_us(memory: list[torch.Tensor], count: int, form: Form) -> float:
    """Microseconds of one of STEPS exchanges in a row."""
    rows = [torch.randn(count, device=each.device).bfloat16() for each in memory]
    for each in memory:
        each.zero_()
        torch.cuda.synchronize(each.device)
    pairs = [launches(rank, memory, row, form) for rank, row in enumerate(rows)]
    both = [launch for launch, _ in pairs]
    for step in range(2):  # compiles, and nobody waits for long
        for each, launch in zip(memory, both, strict=True):
            with torch.cuda.device(each.device):
                launch(step)
    graphs = [captured(each, launch) for each, launch in zip(memory, both, strict=True)]
    times = []
    for _ in range(REPLAYS):
        marks = [replayed(each, graph) for each, graph in zip(memory, graphs, strict=True)]
        for each in memory:
            torch.cuda.synchronize(each.device)
        times.append(marks[0][0].elapsed_time(marks[0][1]) / STEPS * 1e3)
    expected = torch.stack([row.to(memory[0].device) for row in rows])
    for _, results in pairs:
        assert all(torch.equal(found.to(expected.device), expected) for found in results)
    return statistics.median(times)


def captured(memory: torch.Tensor, launch: Callable[[int], None]) -> torch.cuda.CUDAGraph:
    """STEPS exchanges of a GPU, as a graph."""
    with torch.cuda.device(memory.device):
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for step in range(STEPS):
                launch(step)
    return graph


def replayed(memory: torch.Tensor, graph: torch.cuda.CUDAGraph) -> list[torch.cuda.Event]:
    """Events before and after a replay, with one more in front: all GPUs are then under way."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    with torch.cuda.device(memory.device):
        for mark in marks:
            graph.replay()
            mark.record()
    return marks


def main() -> None:
    """A table for each number of GPUs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    for ranks in parser.parse_args().ranks:
        memory = arenas(ranks)
        print(
            f"{ranks} GPUs ({torch.cuda.get_device_name()}); us of an exchange of so many elements"
        )
        print(f"{'':22}" + "".join(f"{count:>8}" for count in COUNTS))
        for form in FORMS:
            row = [exchange_us(memory, count, form) for count in COUNTS]
            label = f"{form.name} of {form.block}, {form.warps} warps"
            print(f"{label:22}" + "".join(f"{each:8.2f}" for each in row))


if __name__ == "__main__":
    main()
