"""Modules that the goldens share: those of this folder, and the graphs of the tests of `lower`."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lower")]
