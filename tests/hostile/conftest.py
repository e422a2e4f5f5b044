"""Makes `small_bundle` importable for the tests of this folder."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pack"))


@pytest.fixture
def bundle(tmp_path):
    """A fresh small bundle, writable so that tests can damage it."""
    import small_bundle

    return small_bundle.write_writable(tmp_path / "bundle")
