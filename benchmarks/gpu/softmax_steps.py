"""The tables of docs/how-to/softmax-to-the-limit.md: each step's profile on this machine's GPU.

python -m benchmarks.gpu.softmax_steps [--device cuda|cpu]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from aotc.runtime import load
from benchmarks.gpu.machine import facts

EXAMPLE = Path(__file__).parents[2] / "examples" / "profiling" / "softmax_steps.py"


def main() -> None:
    """Build the bundle and print what `aotc profile` prints of each entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    device = parser.parse_args().device
    aotc = [sys.executable, "-m", "aotc.aot.cli"]
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder, "steps.aotc")
        build = [*aotc, "build", EXAMPLE, "-o", bundle, "--target", device, "--quiet"]
        subprocess.run(build, check=True)
        with load(bundle, device=device) as program:
            names = list(program.entries)
        print(facts() if device == "cuda" else "", flush=True)
        for name in names:
            print(f"\n{name}", flush=True)
            profile = [*aotc, "profile", bundle, "--device", device, "--entry", name]
            subprocess.run(profile, check=True)


if __name__ == "__main__":
    main()
