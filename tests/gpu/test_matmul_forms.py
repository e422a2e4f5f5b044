"""Every form of a matmul with an epilogue under compute-sanitizer, split ones above all."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "checked_matmul.py"
SHAPES = ((16, 2048, 8192), (100, 300, 1000))  # few rows of long columns; has_tail everywhere
FOUND_ERRORS = 9


@pytest.mark.parametrize("shape", SHAPES)
def test_forms_stay_within_their_memory(shape):
    checker = shutil.which("compute-sanitizer")
    if checker is None:
        pytest.skip("compute-sanitizer is not on the PATH")
    words = [checker, "--tool", "memcheck", "--error-exitcode", str(FOUND_ERRORS)]
    command = [*words, sys.executable, PROGRAM, *map(str, shape)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "ERROR SUMMARY: 0 errors" in done.stdout
    assert "right split" in done.stdout
