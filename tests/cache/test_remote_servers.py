"""The remote cache against nginx and lighttpd with WebDAV, where they are installed."""

import contextlib
import hashlib
import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from aotc.cache import Key, Store
from aotc.cache.errors import CacheWarning
from aotc.cache.remote import RemoteLayer

from .remote_server import KEY, TOKEN, free_port

HERE = Path(__file__).parent
PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
KEYS = [Key.of("binaries", kernel=f"k{number}") for number in range(40)]


def files(number):
    return {"facts.json": b"{}", "kernel.code": b"%d " % number * 50_000, "kernel.texts": b""}


def own_user():
    """nginx's workers of root are another user, who cannot enter the folders of a test."""
    return f"user {pwd.getpwuid(0).pw_name};" if os.geteuid() == 0 else ""


def command(name, config, folder):
    """How a server is run in the foreground; it need not be installed at its usual place."""
    program = shutil.which(name, path=PLACES)
    if program is None:
        pytest.skip(f"{name} is not installed")
    if name == "nginx":
        return [
            program,
            "-p",
            folder,
            "-c",
            config,
            "-e",
            folder / "error.log",
            "-g",
            f"daemon off; {own_user()}",
        ]
    beside = Path(program).resolve().parent.parent / "lib" / "lighttpd"
    if not (beside / "mod_webdav.so").exists():
        pytest.skip("lighttpd has no mod_webdav")
    return [program, "-D", "-f", config, "-m", beside]


@pytest.fixture(scope="module", params=["nginx", "lighttpd"])
def url(request, tmp_path_factory):
    """The address of a real server with an empty cache."""
    folder = tmp_path_factory.mktemp(request.param)
    for name in ("files/ac", "files/cas", "incoming"):
        (folder / name).mkdir(parents=True)
    port = free_port()
    text = (HERE / f"{request.param}.conf").read_text()
    for word, value in (("PORT", str(port)), ("FOLDER", str(folder)), ("TOKEN", TOKEN)):
        text = text.replace(word, value)
    config = folder / "server.conf"
    config.write_text(text)
    process = subprocess.Popen(
        [str(part) for part in command(request.param, config, folder)], stderr=subprocess.PIPE
    )
    try:
        wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def wait_for(port, process):
    for _ in range(500):
        if process.poll() is not None:
            pytest.fail(f"the server ended: {process.stderr.read().decode()}")
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    pytest.fail("the server does not listen")


def test_what_one_machine_writes_another_reads(url, tmp_path):
    store = Store(tmp_path / "writer", [RemoteLayer(url, KEY, TOKEN)])
    store.fetch(KEYS)
    for number, key in enumerate(KEYS):
        assert store.get(key) is None
        store.put(key, files(number))
    assert store.send() == len(KEYS)
    other = Store(tmp_path / "reader", [RemoteLayer(url, KEY)])
    other.fetch(KEYS)
    (layer,) = other.layers
    assert layer.traffic.entries_read == len(KEYS)
    assert layer.traffic.failures == 0
    for number, key in enumerate(KEYS):
        assert dict(other.get(key).files) == files(number)
    assert (other.counters.hits, other.counters.misses) == (len(KEYS), 0)
    assert store.send() == 0  # it has all of them


def test_who_has_no_token_writes_nothing(url, tmp_path):
    key = Key.of("binaries", kernel="of a stranger")
    store = Store(tmp_path / "own", [RemoteLayer(url, KEY, "wrong")])
    store.get(key)
    store.put(key, files(1))
    with pytest.warns(CacheWarning, match="nothing is written there"):
        assert store.send() == 0
    assert Store(tmp_path / "other", [RemoteLayer(url, KEY)]).get(key) is None


def test_other_paths_are_not_served(url):
    from aotc.cache.transport import Address, Transport, TransportFault

    transport = Transport(Address.of(url), TOKEN)
    for path in ("/server.conf", "/../server.conf", "/cas/../../server.conf", "/ac/x", "/x"):
        with pytest.raises(TransportFault):
            transport.put(path, b"x")
        with contextlib.suppress(TransportFault):
            assert transport.get(path, 1 << 20) is None
    digest = hashlib.sha256(b"x").hexdigest()
    assert not transport.has(f"/cas/{digest}")
    transport.put(f"/cas/{digest}", b"x")
    assert transport.get(f"/cas/{digest}", 1, 1) == b"x"
    transport.close()
