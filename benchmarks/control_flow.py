"""Control flow behind `torch.compile(backend="aotc")`, beside the same in eager's ops.

    python -m benchmarks.control_flow [--rounds 20]

A branch, a loop and scans over rows, of layers of 64. Each takes turns with the same written as
Python's own branches and loops; the fastest call of each counts. Graph by graph is how a call of
control flow runs where something inside has no kernel.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from aotc.aot.capture import importer
from aotc.aot.dynamo import aotc

SIZE, TURNS = 64, 5


def branch(x: Any, w: Any) -> Any:
    """One layer of two."""
    return torch.cond(x.sum() > 0, lambda x, w: (x @ w).relu(), lambda x, w: (x - w).sin(), (x, w))


def branch_in_python(x: Any, w: Any) -> Any:
    """The same."""
    return (x @ w).relu() if x.sum() > 0 else (x - w).sin()


def loop(x: Any, w: Any) -> Any:
    """A layer some times."""
    start = torch.zeros((), dtype=torch.int64)
    given = (start, x, w)
    return while_loop(
        lambda i, x, w: i < TURNS, lambda i, x, w: (i + 1, (x @ w).sin() + 1, w.clone()), given
    )[1]


def loop_in_python(x: Any, w: Any) -> Any:
    """The same."""
    for _ in range(TURNS):
        x = (x @ w).sin() + 1
    return x


def recurrence(x: Any, w: Any) -> Any:
    """A layer over rows, which carries its result."""

    def combine(carried: Any, row: Any) -> Any:
        carried = torch.tanh(carried @ w + row)
        return carried, carried * 2

    return scan(combine, x[0] * 0, x)[1]


def recurrence_in_python(x: Any, w: Any) -> Any:
    """The same."""
    carried, rows = x[0] * 0, []
    for row in x:
        carried = torch.tanh(carried @ w + row)
        rows.append(carried * 2)
    return torch.stack(rows)


def each_row(x: Any, w: Any) -> Any:
    """A softmax and a product of each row."""
    return map_rows(lambda row, w: row.softmax(0) @ w, x, w)


def each_row_in_python(x: Any, w: Any) -> Any:
    """The same."""
    return torch.stack([row.softmax(0) @ w for row in x])


CASES = {
    "branch": (branch, branch_in_python),
    f"loop of {TURNS} turns": (loop, loop_in_python),
    f"scan of {SIZE} rows": (recurrence, recurrence_in_python),
    f"map of {SIZE} rows": (each_row, each_row_in_python),
}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function behind our back end, which refuses what it cannot compile; by a back end of its
    own, since Dynamo keeps what it compiled for a function by back ends."""
    backend = partial(aotc, options={"fallback": "error"})
    return torch.compile(function, backend=backend)  # type: ignore[no-any-return]


def contenders(function: Any, plain: Any, given: Any) -> dict[str, Callable[..., Any]]:
    """Called once each, and right."""
    found = {"aotc": compiled(function)}
    found["aotc"](*given)
    with patch.object(importer, "CONTROL", ()):  # nothing is imported as a part of a program
        found["graph by graph"] = compiled(function)
        found["graph by graph"](*given)
    found["eager's ops"] = plain
    for call in found.values():
        torch.testing.assert_close(call(*given), plain(*given), rtol=1e-4, atol=1e-4)
    return found


def main() -> None:
    """Print a row for each case, in microseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    given = (torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE) * 0.1)
    print("| µs a call | aotc | graph by graph | eager's ops |\n|---|---|---|---|")
    for name, (function, plain) in CASES.items():
        with torch.no_grad():
            calls = contenders(function, plain, given)
            best = dict.fromkeys(calls, math.inf)
            for _ in range(rounds):
                for who, call in calls.items():
                    start = time.perf_counter()
                    for _ in range(10):
                        call(*given)
                    best[who] = min(best[who], (time.perf_counter() - start) / 10)
        cells = " | ".join(f"{1e6 * each:.0f}" for each in best.values())
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
