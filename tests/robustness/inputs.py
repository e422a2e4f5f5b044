"""Altered bytes for everything that reads a file of somebody else's: typed errors, or equal values.

A kind of file has honest examples. An input is one of them with a few bytes altered, or with a few
of the values inside it, and then with every length and digest around it made right, so that it
reaches the rules behind them. A reader may refuse it by an error of aotc's, or return values that
say the same as the input does; it has SECONDS of processor time and MEMORY_BYTES.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import json
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import null_driver  # noqa: F401  # puts itself in the table of drivers
import small_bundle

from aotc.aot.distribution.image import image_of
from aotc.aot.pack.tensors import tensor_file
from aotc.cache import Key, Store
from aotc.cache.archive import export_to, import_from
from aotc.cache.errors import CacheError
from aotc.cache.keys import canonical
from aotc.cache.reading import Damage, file_row, read_entry
from aotc.cache.remote import FORMAT, read_rows
from aotc.runtime.bundle.canonical import decode, encode
from aotc.runtime.bundle.frame import FORMAT as BUNDLE_FORMAT
from aotc.runtime.bundle.frame import HEADER, LIMITS, MANIFEST_MAGIC
from aotc.runtime.bundle.image import read_image
from aotc.runtime.bundle.manifest import Extras, Manifest
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.bundle.plan import Plan, split_library
from aotc.runtime.bundle.weights import read_header
from aotc.runtime.errors import AotcError
from aotc.runtime.loading import load
from aotc.runtime.trust.envelope import read_envelope
from aotc.runtime.trust.revocation import check_revoked
from aotc.runtime.trust.statement import check_statement

from .spread import Found

SECONDS, MEMORY_BYTES = 1.0, 64 << 20
NUMBERS = (
    0,
    1,
    -1,
    63,
    64,
    65,
    255,
    256,
    1 << 16,
    1 << 31,
    1 << 32,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
)
TEXTS = ("", ".", "..", "a/b", "/", "weight", "input", "x" * 200, "é", "\0", "\ud800")
HEAD_BYTES = 8  # of a weights file, before its header
Draw = random.Random


@dataclass(frozen=True)
class Kind:
    """A kind of file. read: returns None, or bytes that must be the input. share: of the inputs."""

    honest: tuple[bytes, ...]
    read: Callable[[bytes], bytes | None]
    alter: tuple[Callable[[bytes, Draw], bytes], ...]
    share: int = 4


def some_bytes(data: bytes, draw: Draw) -> bytes:
    """One to four bytes, or a stretch of them, replaced, removed, repeated or put in."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(found) + 1)
        to = min(len(found), at + draw.choice((1, 1, 2, 4, 8, 64)))
        how = draw.randrange(7)
        if how == 0 and at < len(found):
            found[at] ^= 1 << draw.randrange(8)
        elif how == 1:
            found[at:to] = draw.randbytes(to - at)
        elif how == 2:
            del found[at:to]
        elif how == 3:
            found[at:at] = found[at:to]
        elif how == 4:
            found[at:at] = draw.choice(
                (b"\xff", b"\0", b"\x80" * 9, b"[" * 99, b'"', b"\xc1", b"-")
            )
        elif how == 5:
            order = draw.choice(("big", "little"))
            found[at:to] = (draw.choice(NUMBERS) % (1 << 64)).to_bytes(8, order)[: to - at]
        else:
            del found[at:]
    return bytes(found)


def values_of(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place inside a tree of maps and lists: the map or list, and the key there."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], (dict, list)):
            yield from values_of(tree[key])


def some_values(tree: Any, draw: Draw) -> Any:
    """A copy of a tree with one to three values replaced, removed or repeated."""
    tree = copy.deepcopy(tree)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        places = list(values_of(tree))
        if not places:
            break
        holder, key = draw.choice(places)
        how = draw.randrange(5)
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        elif how == 2:
            other, name = draw.choice(places)
            holder[key] = copy.deepcopy(other[name])
        elif how == 3 and isinstance(holder[key], int):
            holder[key] = holder[key] + draw.choice((1, -1, 64, 1 << 32))
        else:
            holder[key] = some_value(draw)
    return tree


def some_value(draw: Draw) -> Any:
    """A value that is probably of another type or out of range."""
    made: list[Callable[[], Any]] = [
        lambda: draw.choice((None, True, False)),
        lambda: draw.choice(NUMBERS),
        lambda: draw.choice(TEXTS),
        lambda: draw.randbytes(draw.randrange(40)),
        lambda: [draw.randrange(6) for _ in range(draw.randrange(5))],
        lambda: {str(draw.randrange(6)): draw.randrange(6) for _ in range(draw.randrange(4))},
    ]
    return draw.choice(made)()


def encoded(tree: Any) -> bytes:
    """MessagePack, of values that have it."""
    try:
        return encode(tree)
    except (OverflowError, UnicodeEncodeError):
        return b"\xc0"


def as_json(tree: Any) -> bytes:
    """JSON; what has none is written as text."""
    return json.dumps(tree, default=repr, separators=(",", ":"), sort_keys=True).encode()


def packed_tree(data: bytes, draw: Draw) -> bytes:
    """Some values of a MessagePack file."""
    return encoded(some_values(decode(data, LIMITS, "x"), draw))


def json_tree(data: bytes, draw: Draw) -> bytes:
    """Some values of a JSON file."""
    return as_json(some_values(json.loads(data), draw))


def framed(payload: bytes) -> bytes:
    """A manifest's header and digest around a payload."""
    data = HEADER.pack(MANIFEST_MAGIC, *BUNDLE_FORMAT, len(payload)) + payload
    return data + hashlib.sha256(data).digest()


def framed_bytes(data: bytes, draw: Draw) -> bytes:
    """Some bytes of a manifest's payload, the frame made right."""
    return framed(some_bytes(data[HEADER.size : -32], draw))


def framed_tree(data: bytes, draw: Draw) -> bytes:
    """Some values of a manifest, the frame made right."""
    return framed(packed_tree(data[HEADER.size : -32], draw))


def header_text(data: bytes, draw: Draw) -> bytes:
    """Some bytes of a weights file's header, its length made right."""
    nbytes = int.from_bytes(data[:HEAD_BYTES], "little")
    text = some_bytes(data[HEAD_BYTES : HEAD_BYTES + nbytes], draw)
    return len(text).to_bytes(8, "little") + text + data[HEAD_BYTES + nbytes :]


def header_tree(data: bytes, draw: Draw) -> bytes:
    """Some values of it."""
    nbytes = int.from_bytes(data[:HEAD_BYTES], "little")
    text = json_tree(data[HEAD_BYTES : HEAD_BYTES + nbytes], draw)
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[HEAD_BYTES + nbytes :]


def read_manifest(data: bytes) -> bytes:
    """The manifest, written again."""
    return framed(encode(Manifest.from_bytes(data).to_map()))


def read_plan(data: bytes) -> bytes:
    """The plan, checked against a signature, and at sizes it has, written again."""
    plan = Plan.from_msgpack(data)
    plan.validate([(1, 2)], {"layer.weight"}, "plan", None)
    for lows in plan.lows[:4]:
        plan.at(*lows)
    return plan.to_msgpack()


def read_weights(data: bytes) -> None:
    """Tensors that lie inside the file."""
    for tensor in read_header(data, "weights").values():
        assert HEAD_BYTES <= tensor.offset <= tensor.offset + tensor.nbytes <= len(data)


def kinds(bundles: list[Path], scratch: Path) -> dict[str, Kind]:
    """All kinds of file, with examples of a small bundle and of those that were built."""
    small = scratch / "small"
    small_bundle.write(small)
    manifests, plans, weights, libraries, extras, images = [], [], [], [], [], []
    for path in (small, *bundles):
        with Bundle(path) as opened:
            manifests.append(opened.data)
            plans.append(opened.read(opened.manifest.targets[0].plan))
            libraries.append(opened.read(opened.manifest.targets[0].library)[-4096:])
            extras.append((path / "extras.msgpack").read_bytes())
            images.append(image_of(opened).manifest_bytes)
            digest = opened.digest
    weights = [b"".join(bytes(part) for part in tensor_file(small_bundle.contents().weights))]
    framing = (some_bytes, framed_bytes, framed_tree, framed_tree)
    both, texts = (some_bytes, packed_tree, packed_tree), (some_bytes, json_tree, json_tree)
    found = {
        "manifest": Kind(tuple(manifests), read_manifest, framing, 8),
        "extras": Kind(tuple(extras), lambda data: Extras.from_bytes(data).to_bytes(), both),
        "plan": Kind(tuple(plans), read_plan, both, 8),
        "weights": Kind(tuple(weights), read_weights, (some_bytes, header_text, header_tree)),
        "library": Kind(
            tuple(libraries), lambda data: b"".join(split_library(data)), (some_bytes,)
        ),
        "image": Kind(tuple(images), lambda data: bool(read_image(data, "x")) and None, texts),
    }
    return (
        found | signed_kinds(digest, scratch) | cache_kinds(scratch) | bundle_kinds(small, scratch)
    )


def signed_kinds(digest: str, scratch: Path) -> dict[str, Kind]:
    """What is read about trust."""
    statement = as_json(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "predicate": {},
            "predicateType": "x",
            "subject": [{"digest": {"sha256": digest}, "name": "manifest.msgpack"}],
        }
    )
    envelope = as_json(
        {
            "payload": "e30=",
            "payloadType": "application/vnd.in-toto+json",
            "signatures": [{"keyid": "a", "sig": "AAAA"}],
        }
    )
    revoked = scratch / "revoked"

    def read_revoked(data: bytes) -> None:
        revoked.write_bytes(data)
        check_revoked("0" * 64, revoked, "x")

    lines = f"# a list\nsha256:{digest}\n{digest.upper()} # why\n".encode()
    texts = (some_bytes, json_tree)
    return {
        "envelope": Kind((envelope,), lambda data: bool(read_envelope(data, "x")) and None, texts),
        "statement": Kind((statement,), lambda data: check_statement(data, digest, "x"), texts),
        "revoked digests": Kind((lines,), read_revoked, (some_bytes,), 1),
    }


def cache_kinds(scratch: Path) -> dict[str, Kind]:
    """What is read of a cache: an entry's record, a remote one, an archive."""
    store, key = Store(scratch / "cache"), Key.of("binaries", kernel="k")
    files = {"a.o": b"code" * 20, "meta.json": b"{}"}
    store.put(key, files)
    rows = [file_row(name, data) for name, data in sorted(files.items())]
    folder = store.path(key)
    record = (folder / "entry.json").read_bytes()
    remote = canonical({"files": rows, "format": FORMAT, "key": key.record()})
    archive = scratch / "archive"
    export_to(store, archive)
    packed = archive.read_bytes()

    def read_record(data: bytes) -> None:
        (folder / "entry.json").chmod(0o600)
        (folder / "entry.json").write_bytes(data)
        read = read_entry(store.root, folder, key)
        assert all(files[name] == found for name, found in read.items())

    def read_archive(data: bytes) -> None:
        archive.write_bytes(data)
        with tempfile.TemporaryDirectory(dir=scratch) as name:
            import_from(Store(Path(name) / "cache"), archive)

    texts = (some_bytes, json_tree)
    return {
        "cache entry": Kind((record,), read_record, texts, 2),
        "remote entry": Kind((remote,), lambda data: bool(read_rows(data, key)) and None, texts),
        "archive": Kind((packed,), read_archive, (some_bytes,), 1),
    }


def bundle_kinds(small: Path, scratch: Path) -> dict[str, Kind]:
    """A whole bundle, whose plan was altered and whose manifest lists it as it is, to be loaded."""
    folder = shutil.copytree(small, scratch / "whole")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    plan, manifest = folder / "targets/null/plan.msgpack", folder / "manifest.msgpack"
    honest = Manifest.from_bytes(manifest.read_bytes())

    def read(data: bytes) -> None:
        plan.write_bytes(data)
        entries = tuple(
            entry.replace(nbytes=len(data), sha256=hashlib.sha256(data).digest())
            if entry.name.endswith("plan.msgpack")
            else entry
            for entry in honest.files
        )
        manifest.write_bytes(honest.replace(files=entries).to_bytes())
        load(folder).close()

    return {"whole bundle": Kind((plan.read_bytes(),), read, (some_bytes, packed_tree), 1)}


def judge(kind: Kind, data: bytes, what: str, found: Found) -> None:
    """One input: refused by type, or read as what it says, within the bounds."""
    started_s = time.thread_time()
    try:
        read = kind.read(data)
        found.counts["accepted"] += 1
        if read is not None and read != data:
            found.say(f"{what}: read as other values than it has")
    except (AotcError, CacheError, Damage):
        found.counts["refused"] += 1
    except Exception as error:
        found.say(f"{what}: {type(error).__name__}: {error}"[:300])
    spent_s = time.thread_time() - started_s
    found.at_most("seconds", spent_s)
    if spent_s > SECONDS:
        found.say(f"{what}: {spent_s:.1f} s")


def read_altered(bundles: list[Path], folder: Path) -> Callable[[Iterator[int], Found], None]:
    """The work of one process: inputs by their numbers."""

    def work(numbers: Iterator[int], found: Found) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            rows = kinds(bundles, Path(name))
            names = [name for name, kind in rows.items() for _ in range(kind.share)]
            for kind in rows.values():
                for data in kind.honest:
                    honest = Found()
                    judge(kind, data, "an honest file", honest)
                    assert not honest.wrong, honest.wrong
            gc.collect()
            before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            for number in numbers:
                draw = Draw(number)
                which = draw.choice(names)
                kind = rows[which]
                data = draw.choice(kind.alter)(draw.choice(kind.honest), draw)
                found.counts[which] += 1
                judge(kind, data, f"{which}, input {number}", found)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) << 10
            found.at_most("bytes", grown)
            if grown > MEMORY_BYTES:
                found.say(f"{grown} bytes of memory")

    return work
