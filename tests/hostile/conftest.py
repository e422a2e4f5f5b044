"""Makes `small_bundle` importable for the tests of this folder."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pack"))


@pytest.fixture
def bundle(tmp_path):
    """A fresh small bundle, writable so that tests can damage it."""
    import small_bundle

    path = tmp_path / "bundle"
    small_bundle.write(path)
    for file in path.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)
    return path
