"""Caches of their own for the tests of `backend="aotc"`, and a Dynamo that has met nothing."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session")
def caches(tmp_path_factory):
    """The variables that put our cache and torch's in fresh folders."""
    folder = tmp_path_factory.mktemp("caches")
    return {
        "AOTC_CACHE_DIR": str(folder / "aotc"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),
    }


@pytest.fixture
def fresh(caches, monkeypatch):
    """Dynamo without memory, and the session's caches; gives the variables."""
    for name, value in caches.items():
        monkeypatch.setenv(name, value)
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield caches
    torch._dynamo.reset()
