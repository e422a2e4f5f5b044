"""What launches take and what they could: `python -m benchmarks.gpu.lower_bounds BUNDLE JSON`.

The profile of `aotc profile` and, beside it, the bytes that every implementation has to move.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from aotc.aot.cli.profile import profile_bundle
from aotc.runtime.bundle.opened import Bundle

REPETITIONS = 20


def least_bytes(bundle: Path) -> int:
    """Weights, inputs and outputs, as the bundle stores them."""
    with Bundle(bundle) as opened:
        manifest = opened.manifest
    entry = manifest.entry()
    weights = manifest.weights.nbytes if manifest.weights else 0
    return int(weights + sum(spec.nbytes for spec in (*entry.inputs, *entry.outputs)))


def main() -> None:
    """Profile on the device and write the record."""
    bundle, out = map(Path, sys.argv[1:])
    profile = profile_bundle(bundle, "cuda", REPETITIONS)
    kernels = [
        {
            "name": rows[0].name,
            "launches": len(rows),
            "time_us": sum(row.time_us for row in rows),
            "limit": profile.share_of_limit(rows),
        }
        for rows in profile.by_kernel().values()
    ]
    record = {**profile.record(), "least_bytes": least_bytes(bundle), "kernels": kernels}
    out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
