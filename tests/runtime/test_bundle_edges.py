"""What bundles' readers do at their edges: large files, failing reads, too many tensors, names."""

import errno
import os
from types import SimpleNamespace

import pytest
import small_bundle

from aotc.runtime import load
from aotc.runtime.bundle import directory as directories
from aotc.runtime.bundle import weights
from aotc.runtime.bundle.extent import Extent
from aotc.runtime.bundle.manifest import LIMITS, find_entry
from aotc.runtime.bundle.opened import read_bundle
from aotc.runtime.bundle.signature import SessionDim, SessionSizes, TensorSpec
from aotc.runtime.errors import (
    BundleAltered,
    BundleLimit,
    BundleNotFound,
    EntryNotNamed,
    EntryUnknown,
    EnvironmentFault,
    MemoryFull,
)


def test_large_files_are_digested_before_memory_is_taken_for_them(tmp_path, monkeypatch):
    bundle = small_bundle.write_writable(tmp_path / "small")
    monkeypatch.setattr(directories, "READ_STEP_BYTES", 16)
    monkeypatch.setattr(directories, "DIGEST_STEP_BYTES", 7)
    load(bundle).close()
    plan = bundle / "targets/null/plan.msgpack"
    data = plan.read_bytes()
    plan.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(BundleAltered):
        load(bundle)


def test_reads_that_fail_are_typed(bundle, monkeypatch):
    def broken(_descriptor, _count):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with read_open(bundle) as opened, monkeypatch.context() as patched:
        patched.setattr(os, "read", broken)
        with pytest.raises(EnvironmentFault, match="input/output error"):
            opened.directory.read(opened.manifest.files[0])
        with pytest.raises(EnvironmentFault, match="input/output error"):
            opened.directory.read_head("manifest.msgpack", 1 << 20)


def read_open(bundle):
    from aotc.runtime.bundle.opened import Bundle

    return Bundle(bundle)


def test_folders_that_cannot_be_opened(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(EnvironmentFault, match="cannot open"):
        load(tmp_path / "loop")
    with pytest.raises(BundleNotFound):
        load(tmp_path / "no folder" / "bundle")


def test_a_manifest_over_its_limit_is_not_read(tmp_path):
    bundle = small_bundle.write_writable(tmp_path / "small")
    os.truncate(bundle / "manifest.msgpack", LIMITS.file_bytes + 4097)
    with pytest.raises(BundleLimit):
        load(bundle)


def test_more_tensors_than_are_read(bundle, monkeypatch):
    monkeypatch.setattr(weights, "TENSOR_LIMIT", 1)
    with pytest.raises(BundleLimit, match="number of tensors"):
        load(bundle)


def test_memory_that_is_short_is_typed_and_said_once(bundle):
    def full(_bundle):
        raise MemoryError

    def said(_bundle):
        raise MemoryFull(purpose="a purpose of its own", nbytes=1)

    with pytest.raises(MemoryFull, match="reading"):
        read_bundle(bundle, full)
    with pytest.raises(MemoryFull, match="a purpose of its own"):
        read_bundle(bundle, said)


def test_entries_by_name():
    one, main, other = (SimpleNamespace(name=name) for name in ("one", "forward", "other"))
    assert find_entry([one], None) is one
    assert find_entry([one, other], "other") is other
    with pytest.raises(EntryNotNamed, match="`one`, `other`"):
        find_entry([one, other], None)
    with pytest.raises(EntryUnknown, match="`one`, `forward`"):
        find_entry([one, main], "third")


def test_sizes_of_sessions_that_do_not_fit():
    dims = (SessionDim("batch", 2, 4, 8),)
    found = SessionSizes(dims, (), (TensorSpec("s", "f32", (Extent(3),)),)).broken()
    assert list(found) == [
        ("session_dims[0].default", 8, "from 2 to 4"),
        ("states[0].shape", "value 3", "one of 1"),
    ]
    assert str(dims[0]) == "batch = 2..4, 8 unless asked"
