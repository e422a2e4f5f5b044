"""Push and pull with a real registry, Debian's `docker-registry`, which is killed meanwhile."""

import hashlib
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import replace

import pytest
from small_bundle import snapshot

from aotc.aot.distribution import registry as client
from aotc.aot.distribution.exchange import pull_bundle, push_bundle
from aotc.aot.pack import TensorData, pack
from aotc.runtime.trust.trust import Policy

PROGRAM = shutil.which("docker-registry")
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="`docker-registry` is not installed (Debian's package of that name)"
)
NOBODY = Policy((), None)
CONFIG = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


class Server:
    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        (folder / "config.yml").write_text(CONFIG.format(folder=folder / "data", port=self.port))
        self.start()

    def start(self):
        command = [PROGRAM, "serve", str(self.folder / "config.yml")]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **quiet)
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/").close()
                return
            except OSError:
                assert self.process.poll() is None, "docker-registry did not start"
                time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(tmp_path_factory):
    found = Server(tmp_path_factory.mktemp("registry"))
    yield found
    found.kill()


def test_there_and_back(server, bundle, tmp_path):
    reference = f"127.0.0.1:{server.port}/team/model"
    sent = push_bundle(bundle, f"{reference}:v1")
    assert push_bundle(bundle, f"{reference}:v2").sent_bytes == 0
    report = pull_bundle(f"{reference}@{sent.digest}", tmp_path / "out", NOBODY)
    assert snapshot(tmp_path / "out") == snapshot(bundle)
    assert report.bundle == sent.bundle


MEMORY = """
import resource
from aotc.aot.distribution.exchange import pull_bundle, push_bundle
from aotc.runtime.trust.trust import Policy

peaks = []
for name in ("small", "large"):
    reference = f"{reference}-{{name}}:v1"
    push_bundle(f"{folder}/{{name}}", reference)
    pull_bundle(reference, f"{folder}/{{name}}-out", Policy((), None))
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
print(peaks[1] - peaks[0])
"""


def test_memory_does_not_grow_with_the_weights(server, tmp_path):
    import small_bundle

    contents = small_bundle.contents()
    pack(contents, tmp_path / "small")
    large = {**contents.weights, "large": TensorData("u8", (96 << 20,), bytes(96 << 20))}
    pack(replace(contents, weights=large), tmp_path / "large")
    code = MEMORY.format(reference=f"127.0.0.1:{server.port}/m", folder=tmp_path)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < 40  # MiB: four pieces of 4 MiB on their way, and buffers


def test_a_registry_that_is_killed_meanwhile(server, bundle, tmp_path, monkeypatch):
    """At a random place of a push, then of a pull; both go on when it is back."""
    monkeypatch.setattr(client, "PAUSE_LIMIT_S", 0.3)
    reference = f"127.0.0.1:{server.port}/team/model:v1"
    for delay_s in (0.01, 0.04, 0.09):
        shutil.rmtree(server.folder / "data", ignore_errors=True)

        def restart(delay_s=delay_s):
            time.sleep(delay_s)
            server.kill()
            server.start()

        for call in (
            lambda: push_bundle(bundle, reference),
            lambda: pull_bundle(reference, tmp_path / "out", NOBODY, force=True),
        ):
            thread = threading.Thread(target=restart)
            thread.start()
            try:
                call()
            finally:
                thread.join()
        assert snapshot(tmp_path / "out") == snapshot(bundle)


def test_a_blob_that_is_altered_in_the_registry(server, bundle, tmp_path):
    reference = f"127.0.0.1:{server.port}/team/model:v1"
    push_bundle(bundle, reference)
    name = hashlib.sha256((bundle / "weights.safetensors").read_bytes()).hexdigest()
    stored = next((server.folder / "data").rglob(f"sha256/{name[:2]}/{name}/data"))
    data = bytearray(stored.read_bytes())
    data[5_000_000] ^= 1
    stored.write_bytes(data)
    with pytest.raises(Exception, match=r"chunk 1 of `weights\.safetensors`") as caught:
        pull_bundle(reference, tmp_path / "out", NOBODY)
    assert caught.value.exit_code == 6
    assert list(tmp_path.iterdir()) == []
