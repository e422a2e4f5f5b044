"""DSSE by its specification, and the reader of envelopes: strict, bounded, typed."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotc.runtime.bundle.strict_json import NotStrict, parse
from aotc.runtime.trust.envelope import LIMIT_BYTES, pae, read_envelope
from aotc.runtime.trust.errors import SignatureMalformed, SignatureStatement
from aotc.runtime.trust.statement import check_statement

TYPE = "application/vnd.in-toto+json"
# The seeds of RFC 8032's first two tests, and signatures that DSSE's authors made with them.
KEYS = {
    "A": "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    "B": "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
}
STATEMENT = "eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEifQ=="
BY_A = "2WAfaHm5jluo0w+0rk8uVkluELJYWjSmU9x7EUzx+AyteDGJ4/nqyJXfmAUVFIAoQafWm7AxBZNw5M9ixNHiCA=="
BY_B = "c1+67/aT0yqEpwx8PsVY3MLHsj9D0CZ014/Fv/QlG59P+9CobUZ7xECJ/V3USG0Ob9CiE5LjReEZUzNF2l7eBw=="
URL_SAFE = (
    "P-_KHICeR7tI6S_YyejJTRtrXhcQyQ2LYPaL8h90KjC9qN8HU_svOQ6TuDOT1HIrsGW886DbWNWcCmX5twLrAw=="
)
NOT_ASCII = (
    "xmSk/ug66ysT7ayhkCIjhAq42zgZXSsEWuzUaNL7w2eGAdF/NU6/fRXPtmfN+5DNSAs5/i2lUnHjbbjPsu0tAw=="
)
EMPTY = "gSggCAaTLTYyRH6FIDBem6meyIynsYy8RTHVzwx9tnTb7Bg/1jMWnuVgI/gffqmbsC2VX5/jHfkkDqsj7CDbDg=="
# Payload type, payload, (key id, signature) …, the keys that are accepted.
VECTORS = {
    "one signature": (TYPE, STATEMENT, [("A", BY_A)], "A"),
    "url-safe base64": (TYPE, "-_-_Pj8=", [("A", URL_SAFE)], "A"),
    "another type": ("application/vnd.example.other+json", STATEMENT, [("A", BY_A)], ""),
    "a type of 29 bytes": ("application/vnd.exämple+json", STATEMENT, [("A", NOT_ASCII)], "A"),
    "an empty payload": (TYPE, "", [("A", EMPTY)], "A"),
    "two keys": (TYPE, STATEMENT, [("A", BY_A), ("B", BY_B)], "AB"),
    "one key twice": (TYPE, STATEMENT, [("A", BY_A), ("A", BY_A)], "A"),
    "no key ids": (TYPE, STATEMENT, [(None, BY_A), (None, BY_B)], "AB"),
    "key ids that lie": (TYPE, STATEMENT, [("B", BY_A)], "A"),
}


def test_pae_of_the_specification():
    found = pae("http://example.com/HelloWorld", b"hello world")
    assert found == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        (TYPE, b"", b"DSSEv1 28 application/vnd.in-toto+json 0 "),
        ("", b"{}", b"DSSEv1 0  2 {}"),
        ("ä", b"\x00", b"DSSEv1 2 \xc3\xa4 1 \x00"),
    ],
)
def test_pae_counts_bytes(kind, payload, expected):
    assert pae(kind, payload) == expected


@given(st.text(), st.binary(), st.text(), st.binary())
def test_pae_is_one_to_one(kind, payload, other_kind, other_payload):
    is_same = (kind, payload) == (other_kind, other_payload)
    assert (pae(kind, payload) == pae(other_kind, other_payload)) == is_same


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_of_the_specification(name):
    pytest.importorskip("cryptography", reason="the extra `signing` is not installed")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from aotc.runtime.trust.keys import PublicKey
    from aotc.runtime.trust.trust import accepted_keys

    kind, payload, rows, expected = VECTORS[name]
    signatures = [{"sig": sig} | ({"keyid": key} if key else {}) for key, sig in rows]
    tree = {"payload": payload, "payloadType": kind, "signatures": signatures}
    keys = [
        PublicKey(name, name, Ed25519PublicKey.from_public_bytes(bytes.fromhex(raw)))
        for name, raw in KEYS.items()
    ]
    envelope = read_envelope(json.dumps(tree).encode(), "vector")
    assert "".join(key.keyid for key in accepted_keys(envelope, keys)) == expected


def text_of(**changes):
    tree = {"payload": "e30=", "payloadType": TYPE, "signatures": [{"keyid": "k", "sig": "AAAA"}]}
    tree |= changes
    return json.dumps({name: value for name, value in tree.items() if value is not ...}).encode()


def test_fields_that_the_specification_lets_others_add():
    envelope = read_envelope(text_of(signatures=[{"sig": "AAAA", "cert": "x"}], extra=[1]), "e")
    assert envelope.signatures[0].keyid == ""
    assert envelope.payload == b"{}"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{",
        b'\xef\xbb\xbf{"payload":""}',
        text_of() + b"x",
        text_of().replace(b'"payload":', b'"payload": "", "payload":'),
        text_of().replace(b"{", b'{"x": NaN, ', 1),
        text_of().replace(b"{", b'{"x": 1.5, ', 1),
        text_of().replace(b"{", b'{"x": ' + b"9" * 5000 + b", ", 1),
        text_of().replace(b"{", b'{"x": "\\ud800", ', 1),
        text_of().replace(b"{", b'{"x": ' + b"[" * 20 + b"]" * 20 + b", ", 1),
        b"[" * 100_000,
        b'{"x":' * 50_000,
        text_of(payload=...),
        text_of(payload=None),
        text_of(payload=7),
        text_of(payload="e30"),  # no padding
        text_of(payload="e31="),  # bits after the end
        text_of(payload="e3 0="),
        text_of(payload="e30=\n"),
        text_of(payload="ä"),
        text_of(payloadType=...),
        text_of(payloadType=3),
        text_of(payloadType="x" * 257),
        text_of(signatures=...),
        text_of(signatures=[]),
        text_of(signatures={}),
        text_of(signatures=[[]]),
        text_of(signatures=[{"keyid": "k"}]),
        text_of(signatures=[{"keyid": 3, "sig": "AAAA"}]),
        text_of(signatures=[{"keyid": "k" * 257, "sig": "AAAA"}]),
        text_of(signatures=[{"sig": "AAAA"}] * 65),
        text_of() + b" " * LIMIT_BYTES,
    ],
    ids=lambda data: repr(data[:40]),
)
def test_what_is_no_envelope(data):
    with pytest.raises(SignatureMalformed) as caught:
        read_envelope(data, "signature.dsse.json")
    assert caught.value.exit_code == 6
    assert len(str(caught.value)) < 400


@given(st.data())
def test_any_change_of_an_envelope_is_read_or_refused(data):
    text = bytearray(text_of())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    with suppress(SignatureMalformed):
        read_envelope(bytes(text), "e")


@given(st.binary(max_size=200))
def test_any_payload_is_a_statement_or_is_refused(payload):
    with pytest.raises(SignatureStatement):
        check_statement(payload, "0" * 64, "e")


def test_strict_json_reads_what_is_plain():
    tree = {"a": [1, -2, "x", True, None, {"b": {}}], "ü": "\U0001f600"}
    assert parse(json.dumps(tree).encode()) == tree
    assert parse(json.dumps("[" * 50).encode()) == "[" * 50  # no depth inside of strings
    with pytest.raises(NotStrict, match="twice"):
        parse(b'{"a":1,"a":1}')
    many = ",".join(f'"{at}":1' for at in [*range(200_000), 199_999])
    with pytest.raises(NotStrict, match="the key '199999' twice"):  # within a second
        parse(f"{{{many}}}".encode())
