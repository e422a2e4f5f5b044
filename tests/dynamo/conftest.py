"""Caches of their own for the tests of `backend="aotc"`, a Dynamo that has met nothing, and a back
end that rewrites alone."""

from __future__ import annotations

import pytest
import torch

from aotc.aot.dynamo.rewrite_backend import rewrite_module


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


@pytest.fixture
def forgetful():
    """A Dynamo that has met nothing, and after the test has not met it."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def rewriting():
    """A back end that rewrites and runs eagerly; what it did and left is on it."""

    class Eagerly:
        def __init__(self):
            self.done, self.modules = [], []

        def __call__(self, module, inputs):
            self.done.append(dict(rewrite_module(module)))
            self.modules.append(module)
            module.graph.lint()
            return module.forward

        def calls(self):
            return [
                str(getattr(node.target, "_schema", node.target)).partition("(")[0]
                for module in self.modules
                for node in module.graph.nodes
                if node.op.startswith("call_")
            ]

    return Eagerly()
