"""Links, pipes, folders and permissions in place of a bundle's files: refused, never followed."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import socket
from pathlib import Path

import pytest
import small_bundle

from aotc.runtime import check, load
from aotc.runtime.errors import AotcError, BundleFileRefused, BundleNotFound, EnvironmentFault

PLAN = "targets/null/plan.msgpack"


def refused(bundle) -> AotcError:
    with pytest.raises(AotcError) as caught:
        load(bundle)
    assert check(bundle)
    return caught.value


@pytest.mark.parametrize("name", ["manifest.msgpack", PLAN, "weights.safetensors"])
def test_link_to_the_same_bytes(bundle, tmp_path, name):
    outside = tmp_path / "outside"
    shutil.move(bundle / name, outside)
    (bundle / name).symlink_to(outside)
    assert isinstance(refused(bundle), BundleFileRefused)


def test_linked_folder(bundle, tmp_path):
    shutil.move(bundle / "targets", tmp_path / "outside")
    (bundle / "targets").symlink_to(tmp_path / "outside")
    assert isinstance(refused(bundle), BundleFileRefused)


def test_the_bundle_itself_may_be_linked(bundle, tmp_path):
    (tmp_path / "current").symlink_to(bundle)
    load(tmp_path / "current").close()


@pytest.mark.parametrize("name", [PLAN, "manifest.msgpack"])
def test_pipe_does_not_block(bundle, name):
    (bundle / name).unlink()
    os.mkfifo(bundle / name)
    assert isinstance(refused(bundle), BundleFileRefused)


def test_socket(bundle, monkeypatch):
    monkeypatch.chdir(bundle / "targets/null")  # socket names are short
    (bundle / PLAN).unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("plan.msgpack")
        assert isinstance(refused(bundle), BundleFileRefused)


def test_folder_in_place_of_a_file(bundle):
    (bundle / PLAN).unlink()
    (bundle / PLAN).mkdir()
    assert isinstance(refused(bundle), BundleFileRefused)


def test_file_in_place_of_a_folder(bundle):
    shutil.rmtree(bundle / "targets")
    (bundle / "targets").write_text("no folder")
    assert isinstance(refused(bundle), BundleFileRefused)


def test_no_bundle(tmp_path):
    (tmp_path / "file").write_text("x")
    for name in ("absent", "file"):
        assert isinstance(refused(tmp_path / name), BundleNotFound)
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty").code == "not-a-bundle"


def test_unreadable_file_is_the_environments_fault(bundle, monkeypatch):
    """As another user would meet it; the tests may run as root, who may read everything."""
    real = os.open

    def guarded(path, *args, **named):
        if path == "plan.msgpack":
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args, **named)

    monkeypatch.setattr(os, "open", guarded)
    with pytest.raises(EnvironmentFault) as caught:
        load(bundle)
    assert (caught.value.code, caught.value.exit_code) == ("permission", 7)
    assert PLAN in caught.value.message


def test_descriptors_do_not_leak(bundle):
    """Neither a load that works nor one that is refused leaves a file open."""
    load(bundle).close()
    gc.collect()
    before = len(small_bundle.names(Path("/proc/self/fd")))
    for _ in range(20):
        load(bundle).close()
    file = bundle / "weights.safetensors"
    data = file.read_bytes()
    for damaged in (data[:-1], data[:-1] + b"\xff"):
        file.write_bytes(damaged)
        with contextlib.suppress(AotcError):  # `raises` would keep the frames alive
            load(bundle)
    gc.collect()
    assert len(small_bundle.names(Path("/proc/self/fd"))) == before
