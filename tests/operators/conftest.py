"""Finds the harness, and compiles all samples of this folder into one cache."""

import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.operators.drive import native


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Runs a captured batch as native code of this machine's CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with native(tmp_path_factory.mktemp("operators")) as runner:
            yield runner
