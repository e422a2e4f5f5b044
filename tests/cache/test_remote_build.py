"""Builds over a remote cache: a second machine compiles nothing, a liar changes nothing."""

import json

import pytest

from aotc.cache import remote

from .remote_server import KEY, TOKEN, serving

pytest.importorskip("torch")
TARGET = ("--target", "cpu-x86-64-v3")


@pytest.fixture(scope="module")
def server():
    with serving() as made:
        yield made


@pytest.fixture
def key(monkeypatch, tmp_path):
    """The settings of a reader, its key in a file."""
    (tmp_path / "key").write_text(KEY.decode())
    monkeypatch.setenv("AOTC_REMOTE_CACHE_KEY_FILE", str(tmp_path / "key"))


@pytest.fixture
def first(server, key, build, tmp_path, monkeypatch):
    """The report of a machine that fills the server, whose answers are right."""
    server.fault = None
    monkeypatch.setenv("AOTC_REMOTE_CACHE_TOKEN", TOKEN)
    flags = (*TARGET, "--remote-cache", server.url)
    report = build(tmp_path / "first", *flags, cache_dir=tmp_path / "first-cache")
    monkeypatch.delenv("AOTC_REMOTE_CACHE_TOKEN")
    server.requests.clear()
    return report


def files_of(bundle):
    return {path.name: path.read_bytes() for path in bundle.rglob("*") if path.is_file()}


def test_a_second_machine_compiles_nothing_and_writes_the_same_bundle(
    first, server, build, tmp_path, monkeypatch
):
    monkeypatch.setenv("AOTC_REMOTE_CACHE", server.url)
    report = build(tmp_path / "out", *TARGET, cache_dir=tmp_path / "own")
    assert (report["compiled"], report["cache_hits"]) == (
        0,
        first["cache_hits"] + first["compiled"],
    )
    assert set(server.methods) == {"GET"}
    assert report["digest"] == first["digest"]
    kept = b"".join(files_of(tmp_path / "out").values())
    for secret in (TOKEN.encode(), KEY, server.url.encode()):
        assert secret not in kept
    server.requests.clear()
    again = build(tmp_path / "out", *TARGET, "--force", cache_dir=tmp_path / "own")
    assert again["compiled"] == 0
    assert server.requests == []


def test_a_server_that_lies_changes_nothing(first, server, spec, aotc, tmp_path):
    def lie(handler, body):
        if body is None:
            return False
        handler.answer(200, bytes(byte ^ 0x55 for byte in body))
        return True

    server.fault = lie
    flags = (*TARGET, "--remote-cache", server.url, "--cache-dir", tmp_path / "own", "--json")
    code, text, errors = aotc("build", spec, "-o", tmp_path / "out", "--quiet", *flags)
    report = json.loads(text)
    assert code == 0
    assert errors.count("remote cache") == 1
    assert report["compiled"] > 0
    assert report["digest"] == first["digest"]
    assert len(server.requests) <= remote.FAILURES + 2 * remote.CONNECTIONS


def test_doctor_shows_it_without_its_secrets(aotc, key, monkeypatch):
    monkeypatch.setenv("AOTC_REMOTE_CACHE", "https://cache.example/aotc")
    monkeypatch.setenv("AOTC_REMOTE_CACHE_TOKEN", "my-secret-token")
    for flags in ((), ("--json",)):
        _, text, _ = aotc("doctor", *flags)
        assert "my-secret-token" not in text
        assert KEY.decode() not in text
    record = json.loads(text)
    assert record["cache"]["remote"] == "https://cache.example/aotc, written, authenticated"
    rows = {row["name"]: row["value"] for row in record["settings"]}
    assert rows["AOTC_REMOTE_CACHE_TOKEN"] == "(set)"
    monkeypatch.delenv("AOTC_REMOTE_CACHE_KEY_FILE")
    assert "has no key" in json.loads(aotc("doctor", "--json")[1])["cache"]["remote"]
