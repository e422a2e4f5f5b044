"""Where the host's time of a training step goes: `python -m benchmarks.gpu.training_host encoder`.

Milliseconds of the host in forward, backward and the optimiser's step, each begun on an idle
device, and samples of the Python stacks of all threads during steps that follow each other. A
sample counts the line in which a thread is, and once each function on its stack; samples themselves
make a step longer.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import threading
import time
from collections import Counter
from types import FrameType
from typing import Self

import torch

from benchmarks.gpu.training import CONTENDERS, Contender, cases, timed_ms

FIRST_STEPS, STEPS, BLOCKS = 8, 30, 9
SAMPLE_SECONDS, SHOWN = 0.0007, 45
IN_A_STEP = ("step", "backward")  # a function of these names is on each stack of a step


def host_ms(contender: Contender, batch: tuple[torch.Tensor, torch.Tensor]) -> list[float]:
    """Medians of forward, backward and the optimiser's step."""
    rows = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        marks = [time.perf_counter()]
        with torch.autocast("cuda", torch.bfloat16):
            loss = contender.loss(contender.call(batch[0]), batch[1])
        contender.optimizer.zero_grad()
        marks.append(time.perf_counter())
        loss.backward()
        marks.append(time.perf_counter())
        contender.optimizer.step()
        marks.append(time.perf_counter())
        rows.append([1e3 * (end - begin) for begin, end in itertools.pairwise(marks)])
    return [statistics.median(column) for column in zip(*rows, strict=True)]


class Samples:
    """Samples of the stacks of other threads; a context manager."""

    def __init__(self) -> None:
        self.lines: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()
        self.count = 0
        self._is_over = False
        self._thread = threading.Thread(target=self._take, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    def _take(self) -> None:
        own = threading.get_ident()
        while not self._is_over:
            time.sleep(SAMPLE_SECONDS)
            for thread, frame in sys._current_frames().items():
                if thread != own:
                    self._add(frame)

    def _add(self, frame: FrameType | None) -> None:
        stack = []
        while frame is not None:
            code = frame.f_code
            name = code.co_filename.split("site-packages/")[-1]
            stack.append((f"{name}:{code.co_name}", frame.f_lineno))
            frame = frame.f_back
        if any(name.endswith(tuple(f":{each}" for each in IN_A_STEP)) for name, _ in stack):
            self.count += 1
            self.lines[f"{stack[0][0]}:{stack[0][1]}"] += 1
            self.functions.update({name for name, _ in stack})


def show(title: str, counts: Counter[str], total: int) -> None:
    """The largest of some counts, as shares."""
    print(title)
    for name, count in counts.most_common(SHOWN):
        print(f"  {100 * count / max(total, 1):5.1f} %  {name[-110:]}")


def main() -> None:
    """Measure one model in one way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", choices=cases("full"))
    parser.add_argument("--contender", choices=CONTENDERS, default="aotc")
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--seconds", type=float, default=5.0, help="of samples")
    given = parser.parse_args()
    case = cases(given.size)[given.model]
    torch.manual_seed(0)
    start, batch = case.build().to("cuda").train(), case.batch()
    options = {"fallback": "inductor", "unchecked_indices": True, "tune": "off"}
    contender = Contender(given.contender, case, start, options)
    for _ in range(FIRST_STEPS):
        contender.step(batch)
    found = ", ".join(f"{each:.2f}" for each in host_ms(contender, batch))
    print(f"host, ms: forward, backward, optimiser {found}")
    step_ms = statistics.median(timed_ms(contender, batch) for _ in range(BLOCKS))
    print(f"a step, ms: {step_ms:.2f}", flush=True)
    ends_s, steps = time.perf_counter() + given.seconds, 0
    with Samples() as samples:
        while time.perf_counter() < ends_s:
            contender.step(batch)
            steps += 1
        torch.cuda.synchronize()
    print(f"{steps} steps, {samples.count} samples")
    show("lines", samples.lines, samples.count)
    show("functions, with what they call", samples.functions, samples.count)


if __name__ == "__main__":
    main()
