"""Makes `small_bundle` importable for this folder, as `scripts/robustness` does."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("pack", "build")]
