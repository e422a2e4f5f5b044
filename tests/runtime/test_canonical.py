"""Canonical MessagePack: readable by msgpack, one encoding for each value, no other accepted."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotc.runtime.bundle.canonical import Limits, decode, encode
from aotc.runtime.errors import BundleError, BundleLimit, BundleMalformed, BundleTruncated

LIMITS = Limits(file_bytes=1 << 20, values=10_000, depth=16, text_bytes=1 << 16)
TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=300)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20),
    max_leaves=40,
)


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_round_trip_and_msgpack_agree(tree):
    data = encode(tree)
    assert decode(data, LIMITS, "x") == tree
    assert msgpack.unpackb(data, strict_map_key=False) == tree


@pytest.mark.parametrize("bits", [5, 7, 8, 15, 16, 31, 32, 63])
@pytest.mark.parametrize("offset", [-1, 0, 1])
@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_are_as_short_as_msgpacks(bits, offset, sign):
    number = sign * (1 << bits) + offset
    if number >= -(1 << 63):
        assert encode(number) == msgpack.packb(number)
        assert decode(encode(number), LIMITS, "x") == number


@pytest.mark.parametrize("length", [0, 15, 16, 31, 32, 255, 256, 65535, 65536])
def test_lengths_are_as_short_as_msgpacks(length):
    for value in ("a" * length, b"a" * length):
        assert encode(value) == msgpack.packb(value)
    if length < 300:
        for value in ([1] * length, {f"{index:05}": 1 for index in range(length)}):
            assert encode(value) == msgpack.packb(value)
            assert decode(encode(value), LIMITS, "x") == value


@settings(max_examples=2000, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_canonical(data):
    try:
        tree = decode(data, LIMITS, "x")
    except BundleError:
        return
    assert encode(tree) == data


@settings(max_examples=200, deadline=None)
@given(TREES, st.data())
def test_damaged_encodings_are_refused_or_canonical(tree, data):
    encoded = bytearray(encode(tree))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] = data.draw(st.integers(0, 255))
    try:
        found = decode(bytes(encoded), LIMITS, "x")
    except BundleError:
        return
    assert encode(found) == bytes(encoded)


@pytest.mark.parametrize("value", [1.5, object(), {1: 2}, {1, 2}, float("nan")])
def test_what_has_no_encoding(value):
    with pytest.raises(TypeError):
        encode(value)


def test_numbers_beyond_64_bits():
    for number in (1 << 64, -(1 << 63) - 1):
        with pytest.raises(ValueError, match="64 bits"):
            encode(number)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ([None] * 20, "number of values"),
        ([[None] * 9, [None] * 9], "number of values"),
        ({str(index): None for index in range(10)}, "number of values"),
        ([[[[[]]]]], "nesting"),
        ({"a": [{"a": [{}]}]}, "nesting"),
        ("aé" * 7, "length in bytes"),
        (b"a" * 21, "length in bytes"),
        (["a" * 20] * 10, "size in bytes"),
    ],
)
def test_limits_are_named(value, what):
    limits = Limits(file_bytes=200, values=20, depth=4, text_bytes=20)
    with pytest.raises(BundleLimit) as caught:
        decode(encode(value), limits, "x")
    assert caught.value.what == what


def test_what_just_fits():
    limits = Limits(file_bytes=200, values=20, depth=4, text_bytes=20)
    for value in ([None] * 19, [[[[]]]], "é" * 10, b"a" * 20):
        assert decode(encode(value), limits, "x") == value


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", BundleTruncated),
        (b"\x92\x01", BundleTruncated),
        (b"\xdd\x00", BundleTruncated),
        (b"\xa3ab", BundleTruncated),
        (b"\x81\xa1a", BundleTruncated),
        (b"\x01\x01", BundleMalformed),
        (b"\xc1", BundleMalformed),
        (b"\x91\xcb\x00\x00\x00\x00\x00\x00\x00\x00", BundleMalformed),
        (b"\xc7\x00\x05", BundleMalformed),
        (b"\xd6\xff\x00\x00\x00\x00", BundleMalformed),
        (b"\x82\xa1a\x01\xa1a\x01", BundleMalformed),
        (b"\x91\xcc\x05", BundleMalformed),
    ],
)
def test_refusals_have_their_type(data, kind):
    with pytest.raises(kind):
        decode(data, LIMITS, "x")
