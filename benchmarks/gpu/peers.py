"""Torch compiles one model, which fills its caches.

`python -m benchmarks.gpu.peers SPEC MODE JSON`.

A later process then starts warm, as a server of torch.compile would after its first deployment.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from benchmarks.gpu.forward import channels_last, load_spec

CALLS = 3


def main() -> None:
    """Compile, call, write the seconds that it took."""
    path, mode, out = sys.argv[1:]
    torch.set_grad_enabled(False)
    model, args, named = channels_last(*load_spec(path))
    started_s = time.perf_counter()
    compiled = torch.compile(model, mode=None if mode == "default" else mode)
    for _ in range(CALLS):
        compiled(*args, **named)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started_s
    Path(out).write_text(json.dumps({"mode": mode, "compile_seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
