"""Bundles, small or with megabytes of weights, a registry that fails on demand, and no waiting."""

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pack"))
sys.path.insert(0, str(Path(__file__).parents[1] / "trust"))
sys.path.insert(0, str(Path(__file__).parent))

from aotc.aot.distribution import chunked, pushing, registry

WEIGHTS_BYTES = 9 << 20  # three chunks


@pytest.fixture(params=["mapped", "written"])
def way(request):
    """How a pull receives into a large file, which depends on the number of processors."""
    return request.param


@pytest.fixture(autouse=True)
def quick(request, monkeypatch, tmp_path):
    """Attempts follow at once, pieces are small, nobody's credentials are read; files are mapped
    but where a test asks for both ways."""
    is_written = "way" in request.fixturenames and request.getfixturevalue("way") == "written"
    monkeypatch.setattr(chunked, "MANY_PROCESSORS", 1 << 30 if is_written else 1)
    monkeypatch.setattr(registry, "PAUSE_LIMIT_S", 0.0)
    monkeypatch.setattr(chunked, "PIECE_BYTES", 4 << 20)
    monkeypatch.setattr(pushing, "PART_BYTES", 4 << 20)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    """A bundle with a few megabytes of weights that no test changes."""
    import small_bundle

    from aotc.aot.pack import TensorData, pack

    contents = small_bundle.contents()
    data = random.Random(0).randbytes(WEIGHTS_BYTES)
    weights = {**contents.weights, "layer.large": TensorData("u8", (WEIGHTS_BYTES,), data)}
    path = tmp_path_factory.mktemp("bundle") / "bundle"
    pack(replace(contents, weights=weights), path)
    return path


@pytest.fixture
def fake():
    import fake_registry

    found = fake_registry.FakeRegistry()
    yield found
    found.close()


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    pytest.importorskip("cryptography", reason="the extra `signing` is not installed")
    from aotc.aot.distribution.signing import make_keys

    return make_keys(str(tmp_path_factory.mktemp("keys") / "alice"))


@pytest.fixture
def push(fake, bundle):
    """Push the bundle to the fake registry; the report."""
    from aotc.aot.distribution.exchange import push_bundle

    return lambda tag="v1", jobs=4, source=bundle: push_bundle(
        source, f"{fake.host}/team/model:{tag}", jobs
    )


@pytest.fixture
def pull(fake, tmp_path):
    """Pull from the fake registry to `out`; the report."""
    from aotc.aot.distribution.exchange import pull_bundle
    from aotc.runtime.trust.trust import policy

    def call(version=":v1", out=tmp_path / "out", keys=None, revoked=None, **options):
        reference = f"{fake.host}/team/model{version}"
        return pull_bundle(reference, out, policy(keys, revoked), **options)

    return call
