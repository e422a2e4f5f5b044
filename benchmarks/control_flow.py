"""Control flow behind `torch.compile(backend="aotc")` and in bundles, beside the same in eager.

    python -m benchmarks.control_flow [--rounds 20]

A branch, a loop and scans over rows, of layers of 64. Each takes turns with the same written as
Python's own branches and loops; the fastest call of each counts. Graph by graph is how a call of
control flow runs where something inside has no kernel. In bundles, a turn of a loop, and recurrent
layers of torch as scans over their cells; on one thread.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from aotc.aot.capture import importer
from aotc.aot.dynamo import aotc
from aotc.runtime import load

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


# -- bundles ---------------------------------------------------------------------------------------

HEAD = """
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
"""
LOOP = """
class Model(nn.Module):
    def forward(self, x):
        start = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, x: i < 1000, lambda i, x: (i + 1, x * 0.5 + 1), (start, x))[1]

model, example_inputs = Model(), (torch.randn(64),)
"""
LINEAR = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(256, 256)

    def forward(self, x, rows):
        def step(x, row):
            x = torch.tanh(self.layer(x) + row)
            return x, x.sum(1)

        if {is_scan}:
            return scan(step, x, rows)[0]
        for row in rows:
            x, _ = step(x, row)
        return x

model, example_inputs = Model().eval(), (torch.randn(8, 256), torch.randn(64, 8, 256))
"""
LAYER = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.{kind}Cell({inner}, {size})

    def forward(self, frames):
        start = frames.new_zeros(frames.shape[1], {size})

        def combine(state, frame):
            found = self.cell(frame, state if len(state) > 1 else state[0])
            found = found if isinstance(found, tuple) else (found,)
            return found, found[0].clone()

        return scan(combine, tuple(start.clone() for _ in range({states})), frames)[1]

model, example_inputs = Model().eval(), (torch.randn({frames}, {batch}, {inner}),)
"""


def bundles() -> dict[str, tuple[str, int, Callable[[Any], Callable[..., Any]] | None]]:
    """What → its spec, its turns, and a layer of torch that does the same."""
    found: dict[str, Any] = {
        "while_loop over 64 numbers": (LOOP, 1000, None),
        "scan over Linear(256), batch 8": (LINEAR.format(is_scan=True), 64, None),
        "the same, written out": (LINEAR.format(is_scan=False), 64, None),
    }
    for kind, states, inner, size, frames, batch in (
        ("LSTM", 2, 256, 256, 64, 1),
        ("GRU", 1, 8, 32, 100, 3),
        ("GRU", 1, 8, 32, 1000, 32),
    ):
        text = LAYER.format(
            kind=kind, states=states, inner=inner, size=size, frames=frames, batch=batch
        )
        layer = partial(getattr(torch.nn, kind), inner, size)
        found[f"scan over {kind}Cell({inner}, {size}), batch {batch}"] = (text, frames, layer)
    return found


def print_bundles(rounds: int) -> None:
    """A row for each, in microseconds a turn."""
    print("\n| µs a turn | aotc | torch's layer |\n|---|---|---|")
    for name, (text, turns, layer) in bundles().items():
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            spec, bundle = Path(folder, "spec.py"), Path(folder, "bundle")
            spec.write_text(HEAD + text)
            build = [sys.executable, "-m", "aotc.aot.cli", "build", str(spec), "-o", str(bundle)]
            subprocess.run([*build, "--target", "cpu", "--quiet"], check=True, capture_output=True)
            made: dict[str, Any] = {}
            exec(compile(HEAD + text, name, "exec"), made)
            with load(str(bundle)) as program:
                given = [each.numpy() for each in made["example_inputs"]]
                calls = {"aotc": partial(program, *given)}
                if layer is not None:
                    calls["torch"] = partial(layer().eval(), *made["example_inputs"])
                best = fastest(calls, rounds, 1)
        cells = [
            f"{1e6 * best[who] / turns:.2g}" if who in best else "" for who in ("aotc", "torch")
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def fastest(calls: dict[str, Callable[..., Any]], rounds: int, times: int) -> dict[str, float]:
    """Seconds of the fastest call of each, which take turns."""
    best = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for who, call in calls.items():
            start = time.perf_counter()
            for _ in range(times):
                call()
            best[who] = min(best[who], (time.perf_counter() - start) / times)
    return best


def main() -> None:
    """Print a row for each case, in microseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    given = (torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE) * 0.1)
    print("| µs a call | aotc | graph by graph | eager's ops |\n|---|---|---|---|")
    for name, (function, plain) in CASES.items():
        with torch.no_grad():
            made = contenders(function, plain, given)
            best = fastest({who: partial(call, *given) for who, call in made.items()}, rounds, 10)
        cells = " | ".join(f"{1e6 * each:.0f}" for each in best.values())
        print(f"| {name} | {cells} |", flush=True)
    os.environ["AOTC_THREADS"] = "1"
    torch.set_num_threads(1)
    print_bundles(rounds)


if __name__ == "__main__":
    main()
