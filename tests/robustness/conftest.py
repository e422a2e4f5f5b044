"""Makes `small_bundle` importable for this folder, as `scripts/robustness` does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "pack"))
