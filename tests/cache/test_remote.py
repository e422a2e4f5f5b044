"""A remote cache: what is written is read again, and whatever a server does wrong is a miss."""

import gzip
import hashlib
import hmac
import json
import shutil
import ssl
import subprocess
import threading
import time
import tracemalloc
import warnings

import pytest

from aotc.cache import Key, Store, remote, transport
from aotc.cache.errors import (
    CacheWarning,
    RemoteCacheAddressInvalid,
    RemoteCacheKeyMissing,
    RemoteCacheSecretInvalid,
)
from aotc.cache.keys import canonical
from aotc.cache.remote import RemoteLayer, open_remote
from aotc.cache.transport import Address

from .remote_server import ENTRY, FILES, KEY, TOKEN, free_port, serving


@pytest.fixture
def server():
    with serving() as made:
        yield made


@pytest.fixture
def filled(server, tmp_path):
    """The server with one entry, by a store that used it."""
    store = writer(server, tmp_path / "writer")
    assert store.get(ENTRY) is None
    store.put(ENTRY, FILES)
    assert store.send() == 1
    server.requests.clear()
    return server


def writer(server, folder):
    return Store(folder, [RemoteLayer(server.url, KEY, TOKEN)])


def reader(server, folder, **given):
    return Store(folder, [RemoteLayer(server.url, KEY, **given)])


def entries(folder):
    """What is left in a store besides its tag."""
    return sorted(path.name for path in folder.rglob("*") if path.name != "CACHEDIR.TAG")


def test_what_one_machine_has_made_another_has(filled, tmp_path):
    store = reader(filled, tmp_path / "other")
    assert dict(store.get(ENTRY).files) == FILES
    assert (store.counters.hits, store.counters.misses) == (1, 0)
    filled.requests.clear()
    assert dict(store.get(ENTRY).files) == FILES  # now from the own folder
    assert filled.requests == []
    assert filled.connections <= 3  # one of the writer, one of the reader


def test_the_layout_is_that_of_bazels_caches(filled):
    digests = {f"/cas/{hashlib.sha256(data).hexdigest()}" for data in FILES.values()}
    (record,) = filled.files.keys() - digests
    assert filled.files.keys() == digests | {record}
    assert record.startswith("/ac/")
    assert len(record) == len("/ac/") + 64


def test_fetch_brings_many_at_once_and_leaves_the_rest(server, tmp_path):
    keys = [Key.of("binaries", kernel=f"k{number}") for number in range(60)]
    store = writer(server, tmp_path / "writer")
    for number, key in enumerate(keys[:50]):
        store.get(key)
        store.put(key, {"f": b"%d" % number})
    assert store.send() == 50
    other = reader(server, tmp_path / "other")
    other.fetch(keys)
    server.requests.clear()
    assert [other.get(key) is not None for key in keys] == [True] * 50 + [False] * 10
    assert server.requests == []  # neither for what is here nor for what the server has not
    assert server.connections <= 1 + 2 * remote.CONNECTIONS


def test_an_entry_without_the_files_it_should_have_is_a_miss(filled, tmp_path):
    store = reader(filled, tmp_path / "other")
    with pytest.warns(CacheWarning, match="lacks files"):
        assert store.get(ENTRY, (frozenset({"kernel.o"}),)) is None


def test_nothing_is_written_without_a_token_or_when_set_to_read(server, tmp_path):
    for given in ({}, {"token": TOKEN, "is_writable": False}):
        store = reader(server, tmp_path / f"own{len(given)}", **given)
        store.get(ENTRY)
        store.put(ENTRY, FILES)
        assert store.send() == 0
    assert server.files == {}
    assert set(server.methods) == {"GET"}


def test_a_token_that_is_refused_ends_writing_with_one_warning(server, tmp_path):
    store = reader(server, tmp_path / "own", token="another")
    for number in range(30):
        store.put(Key.of("binaries", kernel=f"k{number}"), FILES)
        store.get(Key.of("binaries", kernel=f"k{number}"))
    with pytest.warns(CacheWarning) as found:
        assert store.send() == 0
    assert len(found) == 1
    assert "401" in str(found[0].message)
    assert "another" not in str(found[0].message)
    assert server.methods.count("PUT") <= 2 * remote.CONNECTIONS


def test_what_was_there_before_is_sent_too_and_once(server, tmp_path):
    Store(tmp_path / "own").put(ENTRY, FILES)
    store = writer(server, tmp_path / "own")
    assert store.get(ENTRY) is not None
    assert store.send() == 1
    assert store.send() == 0
    assert writer(server, tmp_path / "own").send() == 0  # nothing was used


def test_another_key_is_another_cache(filled, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = Store(tmp_path / "own", [RemoteLayer(filled.url, b"x" * 32, TOKEN)])
        assert store.get(ENTRY) is None
        store.put(ENTRY, {"facts.json": b"other"})
        assert store.send() == 1
        assert dict(reader(filled, tmp_path / "more").get(ENTRY).files) == FILES


def test_a_file_that_the_server_dropped_is_a_miss_without_a_warning(filled, tmp_path):
    del filled.files[f"/cas/{hashlib.sha256(FILES['kernel.code']).hexdigest()}"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = writer(filled, tmp_path / "own")
        assert store.get(ENTRY) is None
        store.put(ENTRY, FILES)
        assert store.send() == 1
    assert reader(filled, tmp_path / "more").get(ENTRY) is not None


def test_a_writer_mends_what_is_damaged_there(filled, tmp_path):
    path = f"/cas/{hashlib.sha256(FILES['kernel.code']).hexdigest()}"
    filled.files[path] = bytes(len(FILES["kernel.code"]))
    store = writer(filled, tmp_path / "own")
    with pytest.warns(CacheWarning, match="other bytes"):
        assert store.get(ENTRY) is None
    store.put(ENTRY, FILES)
    assert store.send() == 1
    assert filled.files[path] == FILES["kernel.code"]


def test_a_writer_mends_a_file_of_which_only_a_part_arrived(filled, tmp_path):
    path = f"/cas/{hashlib.sha256(FILES['kernel.code']).hexdigest()}"
    filled.files[path] = b"part"
    store = writer(filled, tmp_path / "own")
    key = Key.of("binaries", kernel="other")
    store.get(key)
    store.put(key, FILES)
    assert store.send() == 1
    assert filled.files[path] == FILES["kernel.code"]


def test_certificates_are_verified(filled, tmp_path, monkeypatch):
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem", "-days", "2"]
    made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([program, *map(str, made)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with serving() as server:
        server.files.update(filled.files)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = server.url.replace("http://127.0.0.1", "https://localhost")
        with pytest.warns(CacheWarning, match="certificate is not trusted"):
            assert RemoteLayer(url, KEY).get(ENTRY) is None
        assert server.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert RemoteLayer(url, KEY, TOKEN).get(ENTRY) == FILES
        other = url.replace("localhost", "127.0.0.1")
        with pytest.warns(CacheWarning, match="certificate is not trusted"):
            assert RemoteLayer(other, KEY).get(ENTRY) is None


# Faults: (answer in place of the right one); each gets the handler and the right body.


def cut_off(handler, body):
    handler.raw(
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body[: len(body) // 2]
    )


def cut_without_length(handler, body):
    handler.raw(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body[:-1])


def wrong_bytes(handler, body):
    handler.answer(200, bytes(body[:-1]) + bytes([body[-1] ^ 1]))


def shorter(handler, body):
    handler.answer(200, body[:-1])


def longer(handler, body):
    handler.answer(200, body + b" ")


def failing(handler, _):
    handler.answer(500, b"<html>" + bytes(2000))


def unavailable(handler, _):
    handler.raw(b"")


def redirected(handler, _):
    handler.answer(307, Location=f"http://127.0.0.1:{handler.server.other_port}/")


def endless(handler, _):
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    try:
        while True:
            handler.wfile.write(bytes(1 << 16))
    except OSError:
        pass


def endless_chunks(handler, _):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.close_connection = True
    try:
        while True:
            handler.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")
    except OSError:
        pass


def endless_header(handler, _):
    handler.close_connection = True
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            handler.wfile.write(b"x" * 4096)
    except OSError:
        pass


def continued_for_ever(handler, _):
    handler.close_connection = True
    try:
        while True:
            handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            time.sleep(0.005)
    except OSError:
        pass


def dripping(handler, body):
    """A byte at a time, each before any time-out for the next one."""
    handler.close_connection = True
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for byte in body:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.05)
    except OSError:
        pass


def silent(handler, _):
    handler.server.ended.wait(20)
    handler.close_connection = True


def claims_terabytes(handler, _):
    handler.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\nx")


def negative_length(handler, body):
    handler.raw(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n" + body + b"more")


def bomb(handler, _):
    handler.answer(200, gzip.compress(bytes(10 << 20)), Content_Encoding="gzip")


def no_http(handler, _):
    handler.raw(b"\x16\x03\x01\x00\x00 this is no answer\r\n\r\n")


FAULTS = (
    cut_off,
    cut_without_length,
    wrong_bytes,
    shorter,
    longer,
    failing,
    unavailable,
    redirected,
    endless,
    endless_chunks,
    endless_header,
    continued_for_ever,
    dripping,
    silent,
    claims_terabytes,
    negative_length,
    bomb,
    no_http,
)


@pytest.mark.parametrize("part", ["/ac/", "/cas/"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_one_warning_a_miss_and_leaves_nothing(filled, tmp_path, fault, part):
    filled.ended = threading.Event()
    filled.other_port = free_port()

    def wrong(handler, body):
        if not handler.path.startswith(part) or body is None:
            return False
        fault(handler, body)
        return True

    filled.fault = wrong
    store = reader(filled, tmp_path / "own", total_s=0.3)
    try:
        with pytest.warns(CacheWarning) as found:  # noqa: PT031
            for _ in range(2):
                assert store.get(ENTRY) is None
    finally:
        filled.ended.set()
    assert [row.category for row in found] == [CacheWarning]
    assert filled.url in str(found[0].message)
    assert entries(tmp_path / "own") == []
    assert len(filled.requests) <= 4  # what failed is not asked for again


def test_after_some_failures_the_server_is_not_asked_again(filled, tmp_path):
    filled.fault = lambda handler, _: handler.answer(500) or True
    store = reader(filled, tmp_path / "own", token=TOKEN)
    keys = [Key.of("binaries", kernel=f"k{number}") for number in range(100)]
    with pytest.warns(CacheWarning) as found:  # noqa: PT031
        store.fetch(keys)
        store.put(ENTRY, FILES)
        store.get(ENTRY)
        assert store.send() == 0
    assert [str(row.message) for row in found] == [
        f"remote cache {filled.url}: the server answers 500; going on without what it has"
    ]
    assert len(filled.requests) <= remote.FAILURES + 2 * remote.CONNECTIONS


def test_a_server_that_is_not_there_costs_nothing(tmp_path):
    layer = RemoteLayer(f"http://127.0.0.1:{free_port()}", KEY)
    store = Store(tmp_path / "own", [layer])
    with pytest.warns(CacheWarning, match="refused") as found:
        store.fetch([Key.of("binaries", kernel=f"k{number}") for number in range(100)])
    assert len(found) == 1


@pytest.mark.parametrize("status", [413, 500, 507])
def test_a_server_that_is_full_is_one_warning(server, tmp_path, status):
    server.fault = lambda handler, _: handler.command == "PUT" and (handler.answer(status) or True)
    store = writer(server, tmp_path / "own")
    keys = [Key.of("binaries", kernel=f"k{number}") for number in range(40)]
    for key in keys:
        store.get(key)
        store.put(key, FILES)
    with pytest.warns(CacheWarning, match=str(status)) as found:
        assert store.send() == 0
    assert len(found) == 1
    assert all(store.get(key) for key in keys)


def test_memory_is_bounded_whatever_a_server_sends(filled, tmp_path):
    filled.fault = lambda handler, body: endless(handler, body) or True
    store = reader(filled, tmp_path / "own", total_s=2)
    tracemalloc.start()
    with pytest.warns(CacheWarning):
        assert store.get(ENTRY) is None
    assert tracemalloc.get_traced_memory()[1] < 8 * remote.RECORD_LIMIT_BYTES
    tracemalloc.stop()


def test_a_deep_or_hostile_record_is_refused_without_a_key_too(server, tmp_path):
    layer = RemoteLayer(server.url, None)
    right = {
        "files": [{"name": "f", "size_bytes": 1, "sha256": "0" * 64}],
        "format": remote.FORMAT,
        "key": ENTRY.record(),
    }

    def changed(**row):
        return right | {"files": [right["files"][0] | row]}

    hostile = [
        b"[" * 100_000,
        b'{"files":' + b"9" * 10_000 + b"}",
        b"\xff\xfe",
        b"null",
        *(
            canonical(tree)
            for tree in (
                right | {"key": Key.of("binaries", kernel="other").record()},
                right | {"format": "aotc.remote/2"},
                right | {"more": 1},
                right | {"files": []},
                right | {"files": {}},
                right | {"files": right["files"] * 2},
                right | {"files": right["files"] * 5000},
                changed(name="../../x"),
                changed(name="/etc/passwd"),
                changed(name=".hidden"),
                changed(name="entry.json"),
                changed(name="a/b"),
                changed(name="a\0b"),
                changed(name="n" * 4096),
                changed(name=None),
                changed(size_bytes=-1),
                changed(size_bytes=True),
                changed(size_bytes=1.0),
                changed(size_bytes=1 << 62),
                changed(sha256="../ac/" + "0" * 58),
                changed(sha256="A" * 64),
                changed(more=1),
            )
        ),
    ]
    for record in hostile:
        with pytest.raises(remote.Damage):
            remote.read_rows(record, ENTRY)
    authenticated = f"{remote.FORMAT} record\n".encode() + hostile[0]
    head = f"{remote.FORMAT} {hashlib.sha256(authenticated).hexdigest()}\n".encode()
    server.fault = lambda handler, _: handler.answer(200, head + hostile[0]) or True
    with pytest.warns(CacheWarning, match="does not parse"):
        assert Store(tmp_path / "own", [layer]).get(ENTRY) is None
    assert entries(tmp_path / "own") == []


def test_every_bit_of_a_record_counts(filled):
    layer = RemoteLayer(filled.url, KEY)
    (path,) = (path for path in filled.files if path.startswith("/ac/"))
    text = filled.files[path]
    assert layer._rows(text, ENTRY)
    for bit in range(8 * len(text)):
        changed = bytearray(text)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(remote.Damage):
            layer._rows(bytes(changed), ENTRY)
    for length in range(len(text)):
        with pytest.raises(remote.Damage):
            layer._rows(text[:length], ENTRY)


def test_a_record_by_another_key_or_of_another_entry_is_refused(filled, tmp_path):
    (path,) = (path for path in filled.files if path.startswith("/ac/"))
    record = filled.files[path].partition(b"\n")[2]
    other = Key.of("binaries", kernel="other")
    layer = RemoteLayer(filled.url, KEY)
    forged = hmac.new(b"x" * 32, f"{remote.FORMAT} record\n".encode() + record, hashlib.sha256)
    right = filled.files[path]
    for text in (
        f"{remote.FORMAT} {forged.hexdigest()}\n".encode() + record,
        record,
        b"\n" + record,
    ):
        filled.files[path] = text
        with pytest.warns(CacheWarning, match="authenticated by our key"):
            assert reader(filled, tmp_path / "own").get(ENTRY) is None
    filled.files[f"/ac/{layer._address(other)}"] = right
    with pytest.warns(CacheWarning, match="belongs to another key"):
        assert reader(filled, tmp_path / "own").get(other) is None
    assert entries(tmp_path / "own") == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "cache.example",
        "ftp://cache.example",
        "file:///etc/passwd",
        "http://",
        "http://user:word@cache.example",
        "http://cache.example:99999",
        "http://cache.example/?a=b",
        "http://cache.example/#part",
        "http://cache.example/a b",
        "http://cache.example/\r\nX: y",
        "http://[::1",
    ],
)
def test_addresses_that_are_refused(url):
    with pytest.raises(RemoteCacheAddressInvalid) as refusal:
        Address.of(url)
    assert "word" not in str(refusal.value)


def test_secrets_come_from_files_and_are_never_shown(tmp_path):
    url = "https://cache.example/aotc"
    with pytest.raises(RemoteCacheKeyMissing):
        open_remote(url)
    assert open_remote(url, is_authenticated=False).is_authenticated is False
    assert open_remote(url, key="x" * 32, token="t").is_writable
    (tmp_path / "key").write_text("y" * 40 + "\n")
    (tmp_path / "token").write_text("secret token\n")
    assert open_remote(url, key_file=str(tmp_path / "key")).is_authenticated
    for given in (
        {"key": "short"},
        {"key": "x" * 32, "token": "two words"},
        {"key": "x" * 32, "token": "line\r\nX: y"},
        {"key": "x" * 32, "token_file": str(tmp_path / "token")},
        {"key_file": str(tmp_path / "nowhere")},
        {"key_file": "/dev/null"},
    ):
        with pytest.raises(RemoteCacheSecretInvalid) as refusal:
            open_remote(url, **given)
        for word in ("short", "two words", "line\r", "secret token"):
            assert word not in str(refusal.value)
    with pytest.raises(RemoteCacheSecretInvalid, match="over http"):
        open_remote("http://cache.example", key="x" * 32, token="t")


def test_a_token_is_a_bearers_or_a_user_with_a_password(server):
    for token, wanted in (("abc", "Bearer abc"), ("user:word", "Basic dXNlcjp3b3Jk")):
        RemoteLayer(server.url, KEY, token).get(ENTRY)
        assert server.requests[-1][2]["Authorization"] == wanted
    assert server.requests[-1][2]["Accept-Encoding"] == "identity"


def test_a_proxy_of_the_environment_is_asked(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url.replace("http://", "http://me:word@"))
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert RemoteLayer("http://cache.example/x", KEY).get(ENTRY) is None
    _, path, headers = server.requests[-1]
    assert path.startswith("http://cache.example:80/x/ac/")
    assert headers["Host"] == "cache.example:80"
    assert headers["Proxy-Authorization"] == "Basic bWU6d29yZA=="


def test_connections_that_the_server_has_closed_are_opened_again(filled, tmp_path):
    answers = transport.Transport(Address.of(filled.url))

    def once(handler, body):
        handler.answer(200, body)
        handler.close_connection = True  # without saying so
        return True

    filled.fault = once
    (path,) = (path for path in filled.files if path.startswith("/ac/"))
    for _ in range(5):
        assert answers.get(path, 10_000) == filled.files[path]
    answers.close()


def test_the_address_of_a_record_tells_nothing_and_needs_the_key(filled):
    (path,) = (path for path in filled.files if path.startswith("/ac/"))
    assert ENTRY.digest not in path
    assert json.loads(filled.files[path].partition(b"\n")[2])["key"] == ENTRY.record()


def test_without_another_thread_files_are_fetched_one_after_the_other(monkeypatch):
    def refuse(*_arguments, **_named):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    layer = RemoteLayer("http://127.0.0.1:1", KEY)
    assert list(layer._parallel(lambda number: number + 1, range(40))) == list(range(1, 41))
    with pytest.raises(ZeroDivisionError):
        list(layer._parallel(lambda number: 1 // number, range(3)))
