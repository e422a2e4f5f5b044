"""The small programs of `tests/runtime` and `tests/pack`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "pack"))
sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
sys.path.insert(0, str(Path(__file__).parent))
