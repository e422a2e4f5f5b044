"""The kernel of `exchange`, compiled for the CPU: a process a rank, which wait for each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.triton]

STATUS, ARENA = 8, 1 << 19
SCRIPT = """
import sys, numpy, torch
from aotc.kernels.driver import run_on_cpu
from aotc.kernels.templates.exchange import exchange

STATUS, ARENA, OUT, ARRIVALS, UNIT_BYTES = 8, 1 << 19, 0, 1 << 17, 16
path, out, rank, ranks, silent, limit = sys.argv[1:3] + [int(each) for each in sys.argv[3:]]
block = torch.from_numpy(numpy.memmap(path, numpy.uint8, "r+"))
arena = block[rank * ARENA : (rank + 1) * ARENA]
peers = tuple((each - rank) * ARENA // UNIT_BYTES for each in range(ranks))
status = torch.zeros(STATUS, dtype=torch.int32)
found = []
for turn in range(24):
    dtype = (torch.bfloat16, torch.float32, torch.float64, torch.int8)[turn % 4]
    count = (1, 63, 640, 1501)[turn // 4 % 4]
    is_scattered, programs = turn % 3 == 2, min(STATUS, -(-count // 64))
    rows = ranks if is_scattered else 1
    data = (torch.arange(rows * count).reshape(rows, count) % 29 + 31 * rank + turn % 24).to(dtype)
    nbytes = ranks * count * data.element_size()
    given = arena[OUT + ARENA // 8 * (turn % 2) :][:nbytes].view(dtype)  # as a plan does it
    arrivals = arena[ARRIVALS + ARENA // 4 * (turn % 2) :].view(torch.int64)
    is_small = data.element_size() < 8 and turn % 5 != 4
    after = torch.full_like(status, -1)
    options = {
        "RANKS": ranks, "IS_SCATTERED": is_scattered, "PROGRAMS": programs, "STATUS": STATUS,
        "FLAGS": STATUS * ranks // 2, "UNIT": UNIT_BYTES // data.element_size(), "BLOCK": 64,
        "MOST_WORDS": 4096 if is_small else 0, "WORDS_BLOCK": 64, "LIMIT": limit,
    }
    arguments = (given, after, data, status, arrivals, peers, count)
    run_on_cpu(exchange, (programs, 1, 1), arguments, options)
    status = after
    found.append(given.view(ranks, count).double().numpy().copy())
    if silent and turn == 1:
        break
numpy.savez(out, status=status.numpy(), **{str(turn): rows for turn, rows in enumerate(found)})
"""


def ran(folder: Path, ranks: int, silent: frozenset[int] = frozenset(), limit: int = 1 << 40):
    """What each rank that takes part has found."""
    arenas = folder / "arenas"
    arenas.write_bytes(bytes(ranks * ARENA))
    processes = {
        rank: subprocess.Popen(
            [sys.executable, "-c", SCRIPT, arenas, folder / f"{rank}.npz", str(rank), str(ranks),
             str(len(silent)), str(limit)]
        )
        for rank in range(ranks)
        if rank not in silent
    }  # fmt: skip
    assert {process.wait(timeout=300) for process in processes.values()} == {0}
    return {rank: numpy.load(folder / f"{rank}.npz") for rank in processes}


def sent(rank, ranks, turn):
    """The rows that a rank gives: of these types, whole numbers that all of them hold."""
    count = (1, 63, 640, 1501)[turn // 4 % 4]
    rows = ranks if turn % 3 == 2 else 1
    row = numpy.arange(rows * count).reshape(rows, count) % 29 + 31 * rank + turn % 24
    return numpy.broadcast_to(row, (ranks, count)) if rows == 1 else row


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.nightly), 3])
def test_rows_are_gathered_and_scattered(tmp_path, ranks):
    for rank, found in ran(tmp_path, ranks).items():
        assert not found["status"].any()
        for turn in range(24):
            expected = [sent(each, ranks, turn)[rank] for each in range(ranks)]
            assert (found[str(turn)] == numpy.stack(expected)).all()


@pytest.mark.nightly
def test_a_silent_rank_is_named_and_nobody_waits_again(tmp_path):
    """Many looks at a flag, since ranks compile before they come."""
    for found in ran(tmp_path, 3, frozenset({1}), limit=1 << 30).values():
        assert found["status"].tolist() == [2] + [0] * 7
