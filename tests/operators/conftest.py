"""Compiles all samples of this folder into one cache."""

import warnings

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.operators.drive import native


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Runs a captured batch as native code of this machine's CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with native(tmp_path_factory.mktemp("operators")) as runner:
            yield runner
