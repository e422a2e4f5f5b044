"""Crafted files with valid digests: an error that names them, before memory is spent on them."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc

import pytest
import small_bundle
from plan_trees import with_uses

from aotc.runtime import load
from aotc.runtime.bundle.canonical import encode
from aotc.runtime.bundle.frame import FORMAT, HEADER
from aotc.runtime.bundle.manifest import MANIFEST_MAGIC, Manifest
from aotc.runtime.bundle.plan import Plan
from aotc.runtime.bundle.weights import read_header
from aotc.runtime.errors import AotcError, BundleError

MEMORY_LIMIT_BYTES = 48 << 20  # the largest of the files below has 16 MiB


def framed(payload: bytes, minor: int = FORMAT[1]) -> bytes:
    """A manifest file with a valid header and digest around any payload."""
    data = HEADER.pack(MANIFEST_MAGIC, FORMAT[0], minor, len(payload)) + payload
    return data + hashlib.sha256(data).digest()


def tree(**changes) -> dict:
    """The small bundle's manifest as plain values, with some fields replaced."""
    digest = b"d" * 32
    entry = {
        "name": "forward",
        "inputs": [{"name": "x", "dtype": "f32", "shape": [2, 3]}],
        "outputs": [{"name": "y", "dtype": "f32", "shape": [2, 3]}],
        "structure": {"inputs": [], "outputs": []},
        "dims": [],
        "sizes": [],
        "guards": [],
    }
    entry |= {name: changes.pop(name) for name in entry.keys() & changes.keys()}
    base = {
        "features": [],
        "producer": "aotc",
        "targets": [
            {
                "name": "null",
                "device": "null",
                "abi": 1,
                "needs": [],
                "plan": "targets/null/plan.msgpack",
                "library": "targets/null/kernels.so",
            }
        ],
        "entries": [entry],
        "weights": None,
        "extras": None,
        "files": [
            {"name": "targets/null/plan.msgpack", "nbytes": 3, "sha256": digest},
            {"name": "targets/null/kernels.so", "nbytes": 3, "sha256": digest},
        ],
    }
    return {**base, **changes}


def test_the_base_of_the_cases_is_accepted():
    assert Manifest.from_bytes(framed(encode(tree()))).entry().inputs[0].shape == (2, 3)


MIB = 1 << 20
RAW = {
    "4 G array": b"\xdd\xff\xff\xff\xff",
    "4 G map": b"\xdf\xff\xff\xff\xff",
    "4 G text": b"\xdb\xff\xff\xff\xff",
    "4 G bytes": b"\xc6\xff\xff\xff\xff",
    "empty arrays": b"\xdd\x00\xff\xff\x00" + b"\x90" * (16 * MIB - 1024),
    "empty maps": b"\xdd\x00\xff\xff\x00" + b"\x80" * (16 * MIB - 1024),
    "arrays of arrays": b"\xdc\xff\xff" * 5000,
    "long nested arrays": b"\xdd\x00\x01\xff\xff" * 1000 + b"\xc0" * 15 * MIB,
    "long nested maps": b"\xdf\x00\x00\xff\xff\xa1a" * 1000 + b"\xc0" * 15 * MIB,
    "arrays full of arrays": (b"\xdc\xff\xff" + b"\x90" * 65535) * 200,
    "deep arrays": b"\x91" * 100_000,
    "deep maps": b"\x81\xa1a" * 100_000,
    "too long": b"\x90" * (16 * MIB + 1),
    "key twice": b"\x82\xa1a\x01\xa1a\x01",
    "keys out of order": b"\x82\xa1b\x01\xa1a\x01",
    "integer key": b"\x81\x01\x01",
    "extension": b"\xd4\x05\x00",
    "timestamp": b"\xd6\xff\x00\x00\x00\x00",
    "extension 32": b"\xc9\xff\xff\xff\xff\x01",
    "float": b"\xcb" + struct.pack(">d", 1.0),
    "nan": b"\xcb" + struct.pack(">d", float("nan")),
    "never used tag": b"\xc1",
    "long small number": b"\xcc\x05",
    "long negative": b"\xd1\xff\xff",
    "negative in signed as positive": b"\xd0\x05",
    "long text header": b"\xd9\x01a",
    "long array header": b"\xdc\x00\x01\x01",
    "broken utf-8": b"\xa2\xff\xfe",
    "surrogate": b"\xa3\xed\xa0\x80",
    "two values": b"\xc0\xc0",
    "nothing": b"",
    "half a number": b"\xcd\x01",
}


@pytest.mark.parametrize("name", RAW)
def test_raw_payloads(name):
    data = framed(RAW[name])
    tracemalloc.start()
    try:
        with pytest.raises(BundleError):
            Manifest.from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_LIMIT_BYTES
    finally:
        tracemalloc.stop()


def file_row(name: str) -> dict:
    return {"name": name, "nbytes": 3, "sha256": b"d" * 32}


def target_row(**changes) -> dict:
    return {**tree()["targets"][0], **changes}


FIELDS = {
    "escape": {"files": [file_row("../../etc/passwd")]},
    "absolute": {"files": [file_row("/etc/passwd")]},
    "dot": {"files": [file_row("targets/./x")]},
    "hidden": {"files": [file_row(".ssh/config")]},
    "empty part": {"files": [file_row("a//b")]},
    "nul": {"files": [file_row("a\0b")]},
    "backslash": {"files": [file_row("a\\b")]},
    "unicode twin": {"files": [file_row("k\u0435rnels.so")]},
    "long name": {"files": [file_row("a" * 4096)]},
    "deep name": {"files": [file_row("/".join("a" * 9))]},
    "twin files": {"files": [*tree()["files"], tree()["files"][0]]},
    "manifest lists itself": {"files": [*tree()["files"], file_row("manifest.msgpack")]},
    "plan not listed": {"targets": [target_row(plan="other.msgpack")]},
    "plan escapes": {"targets": [target_row(plan="../plan.msgpack")]},
    "twin targets": {"targets": [target_row(), target_row()]},
    "no targets": {"targets": []},
    "no outputs": {"outputs": []},
    "twin inputs": {"inputs": tree()["entries"][0]["inputs"] * 2},
    "unknown dtype": {"inputs": [{"name": "x", "dtype": "f33", "shape": []}]},
    "negative dim": {"inputs": [{"name": "x", "dtype": "f32", "shape": [-1]}]},
    "overflowing shape": {"inputs": [{"name": "x", "dtype": "f32", "shape": [1 << 40] * 60}]},
    "rank 65": {"inputs": [{"name": "x", "dtype": "f32", "shape": [1] * 65}]},
    "control character": {"inputs": [{"name": "x\x1b[31m", "dtype": "f32", "shape": []}]},
    "boolean number": {"targets": [target_row(abi=True)]},
    "short digest": {"files": [{"name": "a", "nbytes": 1, "sha256": b"short"}]},
    "digest as text": {"files": [{"name": "a", "nbytes": 1, "sha256": "d" * 32}]},
    "huge file": {"files": [{"name": "a", "nbytes": 1 << 60, "sha256": b"d" * 32}]},
    "chunks too few": {
        "weights": {
            "name": "weights.safetensors",
            "nbytes": 1 << 30,
            "chunk_bytes": 4 << 20,
            "chunks": [],
        }
    },
    "weights elsewhere": {
        "weights": {"name": "/dev/zero", "nbytes": 8, "chunk_bytes": 4096, "chunks": [b"d" * 32]}
    },
    "unknown field": {"pickle": b"cos\nsystem\n"},
}


@pytest.mark.parametrize("name", FIELDS)
def test_manifest_fields(name):
    with pytest.raises(BundleError) as caught:
        Manifest.from_bytes(framed(encode(tree(**FIELDS[name]))))
    assert caught.value.exit_code == 6
    assert "\x1b" not in str(caught.value)


def test_a_newer_minor_version_may_have_more_fields_but_not_other_types():
    more = tree(colour="green")
    more["targets"] = [target_row(colour="green")]
    newer = FORMAT[1] + 1
    assert Manifest.from_bytes(framed(encode(more), newer)) == Manifest.from_bytes(
        framed(encode(tree()))
    )
    with pytest.raises(BundleError):
        Manifest.from_bytes(framed(encode({**more, "targets": 3}), newer))


def test_unknown_feature_is_refused_by_name(bundle):
    from aotc.runtime import check

    manifest = bundle / "manifest.msgpack"
    rows = Manifest.from_bytes(manifest.read_bytes()).to_map()
    manifest.write_bytes(framed(encode({**rows, "features": ["quantum"]})))
    assert [row.found for row in check(bundle)] == ["`quantum`"]
    with pytest.raises(AotcError, match="quantum") as caught:
        load(bundle)
    assert caught.value.exit_code == 5


def plan_tree(**changes) -> dict:
    """The small bundle's plan with some fields of it, or of its one variant, replaced."""
    tree = Plan.of(small_bundle.copy_plan(24, 24)).to_map()
    variant = {**tree["variants"][0]}
    for name in changes.keys() & variant.keys():
        variant[name] = changes.pop(name)
    return with_uses({**tree, "variants": [variant], **changes})


def launch(grid=(1, 1, 1), kernel=0, args=(("int", 0),)) -> dict:
    row = {"kind": "kernel", "kernel": kernel, "grid": list(grid), "maps": []}
    return {"steps": [{**row, "args": [list(each) for each in args]}]}


IMAGE = {
    "offset": 0, "nbytes": 64, "threads": 128, "shared_bytes": 0, "scratch_bytes": 0,
    "is_programmatic": 0,
}  # fmt: skip


def kernel_with(**changes) -> dict:
    return {"kernels": [{"symbol": "k", "name": "k", "image": {**IMAGE, **changes}}]}


PLANS = {
    "abi": {"abi": 1},
    "a feature of nothing": {"features": ["state"]},
    "a feature twice": {"features": ["state", "state"]},
    "two variants of nothing": {"variants": plan_tree()["variants"] * 2},
    "ranges of no dims": {"ranges": [[1, 2]]},
    "a step of no kind": {"steps": [{"kernel": 0, "grid": [1, 1, 1], "args": [], "maps": []}]},
    "a step of an unknown kind": {"steps": [{"kind": "jump", "kernel": 0}]},
    "a formula of no value": {"arena_bytes": [0]},
    "early and a half": kernel_with(is_programmatic=2),
    "arena too large": {"arena_bytes": 1 << 50},
    "buffer past the end": {"buffers": [{"name": "b", "offset": 0, "nbytes": 65}]},
    "buffer offset past the end": {"buffers": [{"name": "b", "offset": 1 << 39, "nbytes": 1}]},
    "buffer not aligned": {"buffers": [{"name": "b", "offset": 8, "nbytes": 8}]},
    "kernel index": launch(kernel=1),
    "negative kernel": launch(kernel=-1),
    "zero grid": launch(grid=(0, 1, 1)),
    "flat grid": launch(grid=(1, 1)),
    "huge grid": launch(grid=(1 << 20, 1 << 20, 1)),
    "arena offset outside": launch(args=(("arena", 64),)),
    "arena offset in no buffer": launch(args=(("arena", 25),)),
    "negative arena offset": launch(args=(("arena", -64),)),
    "arena offset as text": launch(args=(("arena", "0"),)),
    "unknown space": launch(args=(("address", 140000),)),
    "half an argument": launch(args=(("int",),)),
    "65-bit number": launch(args=(("int", 1 << 63),)),
    "symbol of the C library": {"kernels": [{"symbol": "../system", "name": "k", "image": None}]},
    "empty symbol": {"kernels": [{"symbol": "", "name": "k", "image": None}]},
    "zeroed past the arena": {"zeroed_bytes": 65},
    "image without code": kernel_with(nbytes=0),
    "image before the library": kernel_with(offset=-1),
    "no threads": kernel_with(threads=0),
    "half a warp": kernel_with(threads=48),
    "too many threads": kernel_with(threads=1056),
    "too much shared memory": kernel_with(shared_bytes=(227 << 10) + 1),
    "scratch without bound": kernel_with(scratch_bytes=1 << 40),
    "image as text": {"kernels": [{"symbol": "k", "name": "k", "image": "cubin"}]},
}


@pytest.mark.parametrize("name", PLANS)
def test_plan_fields(name):
    with pytest.raises(BundleError):
        Plan.from_msgpack(encode(plan_tree(**PLANS[name])))


@pytest.mark.parametrize("args", [("input", 1), ("output", 2), ("weight", "layer.other")])
def test_plan_arguments_outside_the_signature(args):
    plan = Plan.from_msgpack(encode(plan_tree(**launch(args=(args,)))))
    with pytest.raises(BundleError) as caught:
        plan.validate([(1, 2)], {"layer.weight"}, "plan.msgpack", None)
    assert caught.value.field == "steps[0][0]"


def use(tree: dict, image_bytes: int | None = 64) -> None:
    plan = Plan.from_msgpack(encode(plan_tree(**tree)))
    plan.validate([(1, 2)], {"layer.weight"}, "plan.msgpack", image_bytes)


def test_images_are_for_devices_and_inside_the_library():
    use(kernel_with(), 64)
    use({}, None)
    for tree, image_bytes, field in (
        (kernel_with(), None, "kernels[0].image"),
        ({}, 64, "kernels[0].image"),
        (kernel_with(offset=1), 64, "kernels[0].image"),
        (kernel_with(nbytes=65), 64, "kernels[0].image"),
        ({**kernel_with(), **launch(grid=(1, 65536, 1))}, 64, "steps[0].grid"),
        ({**kernel_with(), **launch(grid=(1, 1, 65536))}, 64, "steps[0].grid"),
        (
            {**kernel_with(scratch_bytes=1 << 20), **launch(grid=(1 << 21, 1, 1))},
            64,
            "steps[0].grid",
        ),
    ):
        with pytest.raises(BundleError) as caught:
            use(tree, image_bytes)
        assert caught.value.field == field
    use(launch(grid=(1, 65536, 1)), None)


def test_an_unknown_feature_of_a_plan_is_refused_by_name():
    with pytest.raises(AotcError, match="quantum") as caught:
        Plan.from_msgpack(encode(plan_tree(features=["quantum"])))
    assert caught.value.exit_code == 5


def weights_file(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


ROW = b'"dtype":"U8","shape":[4],"data_offsets":[0,4]'
WEIGHTS = {
    "nothing": b"",
    "short": b"\x01",
    "header of 4 G": struct.pack("<Q", 1 << 32),
    "header past the end": struct.pack("<Q", 100) + b"{}",
    "not JSON": weights_file(b"hello"),
    "array": weights_file(b"[]"),
    "deep": weights_file(b'{"a":' * 10000),
    "key twice": weights_file(b'{"a":{' + ROW + b'},"a":{' + ROW + b"}}", b"1234"),
    "metadata": weights_file(b'{"__metadata__":{"a":"b"}}'),
    "escape in a name": weights_file(b'{"a\\u0062":{' + ROW + b"}}", b"1234"),
    "float offset": weights_file(
        b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4.0]}}', b"1234"
    ),
    "negative offset": weights_file(b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[-4,0]}}'),
    "leading zero": weights_file(
        b'{"a":{"dtype":"U8","shape":[04],"data_offsets":[0,4]}}', b"1234"
    ),
    "unknown dtype": weights_file(
        b'{"a":{"dtype":"U9","shape":[4],"data_offsets":[0,4]}}', b"1234"
    ),
    "size unlike shape": weights_file(b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}}'),
    "past the end": weights_file(b'{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}', b"1234"),
    "hole": weights_file(b'{"a":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}}', b"1234"),
    "rest": weights_file(b'{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}', b"1234"),
    "overlap": weights_file(
        b'{"a":{' + ROW + b'},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}', b"123456"
    ),
    "overflowing shape": weights_file(
        b'{"a":{"dtype":"U8","shape":[%s],"data_offsets":[0,0]}}' % b",".join([b"99999999999"] * 60)
    ),
    "after the object": weights_file(b"{}x"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_headers(name):
    tracemalloc.start()
    try:
        with pytest.raises(BundleError):
            read_header(WEIGHTS[name], "weights.safetensors")
        assert tracemalloc.get_traced_memory()[1] < MEMORY_LIMIT_BYTES
    finally:
        tracemalloc.stop()
