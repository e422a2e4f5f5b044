"""Where this folder's helpers are found."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]
