"""Bundles for the tests of this folder: a small one without code, and one with native code."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pack"))
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def bundle(tmp_path):
    """A fresh small bundle, writable so that tests can damage it."""
    import small_bundle

    return small_bundle.write_writable(tmp_path / "bundle")


@pytest.fixture(scope="session")
def native(tmp_path_factory):
    """Path of the bundle of `native_bundle`; building it needs triton."""
    pytest.importorskip("triton")
    import native_bundle

    return native_bundle.write(tmp_path_factory.mktemp("native") / "bundle")


@pytest.fixture
def cuda(fake_cuda):
    """The fake CUDA driver, which knows the kernel of `device_bundle`."""
    import device_bundle

    fake_cuda.kernels["copy"] = device_bundle.copy
    return fake_cuda


@pytest.fixture
def program(tmp_path, cuda):
    """The program of `device_bundle`, loaded on the fake driver."""
    import device_bundle

    from aotc.runtime import load

    opened = load(device_bundle.write(tmp_path / "bundle"))
    yield opened
    opened.close()
