"""docs/rewrites.md says what the tables hold."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.torch
def test_the_page_is_what_the_tables_say():
    script = ROOT / "scripts" / "rewrites_page.py"
    done = subprocess.run([sys.executable, str(script), "--check"], check=False)
    assert done.returncode == 0, "run scripts/rewrites_page.py"
