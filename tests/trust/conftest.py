"""A small bundle, and keys of the extra `signing`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pack"))


@pytest.fixture
def bundle(tmp_path):
    """A fresh small bundle, writable so that tests can damage it."""
    import small_bundle

    return small_bundle.write_writable(tmp_path / "bundle")


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    """Paths of two pairs: `keys.alice`, `keys.alice_public`, `keys.bob`, `keys.bob_public`."""
    pytest.importorskip("cryptography", reason="the extra `signing` is not installed")
    from types import SimpleNamespace

    from aotc.aot.distribution.signing import make_keys

    folder = tmp_path_factory.mktemp("keys")
    found = {}
    for name in ("alice", "bob"):
        private, public, found[f"{name}_id"] = make_keys(str(folder / name))
        found[name], found[f"{name}_public"] = private, public
    return SimpleNamespace(**found)
