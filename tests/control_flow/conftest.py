"""The folder's own modules are imported by name, and those of small bundles."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), *(str(FOLDER.parent / name) for name in ("runtime", "pack"))]
