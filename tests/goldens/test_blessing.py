"""`--bless`: a difference comes with the command that accepts it; what is written is listed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1] / "expected_texts.py"
TESTS = """
from pathlib import Path
import pytest
HERE = Path(__file__).parent

@pytest.mark.parametrize("name", ["same", "other", "new"])
def test_text(name, expect_text):
    expect_text(HERE / f"{name}.txt", "one\\ntwo\\n")
"""


@pytest.fixture
def run(tmp_path):
    shutil.copy(PLUGIN, tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_texts.py").write_text(TESTS)
    (tmp_path / "same.txt").write_text("one\ntwo\n")
    (tmp_path / "other.txt").write_text("one\nthree\n")

    def call(*options):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout

    return call


def test_a_difference_is_shown_and_can_be_accepted(run, tmp_path):
    code, out = run()
    assert code == 1
    assert "other.txt differs:\n--- other.txt\n+++ found\n" in out
    assert "-three\n+two\n" in out
    assert "new.txt does not exist:" in out
    assert "to accept what was found: pytest test_texts.py --bless" in out
    assert "2 failed, 1 passed" in out
    assert (tmp_path / "other.txt").read_text() == "one\nthree\n"
    assert not (tmp_path / "new.txt").exists()

    code, out = run("--bless")
    assert code == 0
    assert "2 expected texts were written: read their diff" in out
    assert "new.txt (new)\nother.txt (+1 -1 lines)\n" in out
    assert (
        (tmp_path / "other.txt").read_text() == (tmp_path / "new.txt").read_text() == "one\ntwo\n"
    )
