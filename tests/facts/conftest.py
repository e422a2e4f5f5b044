"""The small programs of `tests/runtime`, `tests/pack` and `tests/fallback`."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("pack", "runtime", "fallback")]
