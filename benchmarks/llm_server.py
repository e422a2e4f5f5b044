"""A batch of requests through `examples/llm`'s slots: the bundle, and eager torch in its place.

    python -m benchmarks.llm_server FOLDER BUNDLE [--requests 48]

FOLDER is the model that BUNDLE was built from. Both sides run the very same loop of `batches.py`,
with the same cache and greedy tokens; on the eager side the calls go to the model of transformers,
whose next token is its plain argmax. Prints tokens a second and latencies from the arrival on.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import torch

from aotc import runtime
from aotc.aot.huggingface import causal_step

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "llm"))
from batches import Batches, Request

MAX_TOKENS = 48


class EagerSession:
    """Calls of a session, run by torch."""

    def __init__(self, step: torch.nn.Module) -> None:
        self.step = step

    def __call__(self, *arrays: Any) -> dict[str, Any]:
        tensors = [torch.from_numpy(numpy.asarray(each)) for each in arrays[:4]]
        with torch.inference_mode():
            return {"tokens": self.step(*tensors)["tokens"].numpy()}


def requests(count: int) -> list[Request]:
    """Prompts of 4 to 60 bytes, the same at each call."""
    draw = numpy.random.default_rng(0)
    lengths = draw.integers(4, 60, count)
    prompts = [draw.integers(32, 127, length).tolist() for length in lengths]
    return [Request(prompt, MAX_TOKENS, temperature=0.0) for prompt in prompts]


def measured(batches: Batches, count: int) -> dict[str, Any]:
    """Run all requests at once; tokens a second and latencies in seconds."""
    asked = requests(count)
    started, ends = time.perf_counter(), {}
    for request in asked:
        batches.add(request)
    while not batches.is_idle():
        for request in batches.step():
            if request.finish is not None:
                ends[request] = time.perf_counter() - started
    seconds = time.perf_counter() - started
    latencies = sorted(ends.values())
    return {
        "tokens": [request.tokens for request in asked],
        "rate": sum(len(request.tokens) for request in asked) / seconds,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[min(len(latencies) - 1, len(latencies) * 99 // 100)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("bundle")
    parser.add_argument("--requests", type=int, default=48)
    given = parser.parse_args()
    found = {}
    with runtime.load(given.bundle) as program:
        batches = Batches(program)
        measured(batches, given.requests)  # meets the shapes
        found["aotc"] = measured(batches, given.requests)
        sizes = SimpleNamespace(states=program.states, dims=program.dims)
        step, _, _ = causal_step(
            given.folder, max_length=batches.max_length, batch=batches.slots, sampling=False
        )
        sizes.session = lambda: EagerSession(step)
        eager = Batches(sizes)
        measured(eager, 4)
        found["eager"] = measured(eager, given.requests)
    pairs = zip(found["aotc"]["tokens"], found["eager"]["tokens"], strict=True)
    equal = sum(ours == theirs for ours, theirs in pairs)
    for name, row in found.items():
        print(
            f"{name:6} {row['rate']:8.0f} tokens/s  p50 {row['p50']:.2f} s  p99 {row['p99']:.2f} s"
        )
    ratio = found["aotc"]["rate"] / found["eager"]["rate"]
    print(f"{ratio:.1f} times, {equal} of {given.requests} texts equal")


if __name__ == "__main__":
    main()
