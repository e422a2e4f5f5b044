"""Code is loaded from a sealed copy of checked bytes and from nothing else, whatever lies on the
disk, however often, and where the system makes no such copy."""

from __future__ import annotations

import array
import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("triton")

import native_bundle

from aotc.runtime import load
from aotc.runtime.bundle.manifest import digest_of
from aotc.runtime.drivers.cpu import driver as cpu
from aotc.runtime.drivers.cpu import library
from aotc.runtime.errors import BundleError, DriverFault, LibraryUnsealed

LOADS = 2500  # names that grew with each load were past PATH_MAX at the 2042nd
CODE = "targets/cpu-x86-64-v2/kernels.so"


@pytest.fixture(scope="module")
def other_library(native):
    """The bundle's library with another product in it: what an attacker puts in its place."""
    import native as programs

    from aotc.aot.targets import toolchain
    from aotc.aot.targets.cpu import executor

    text = programs.MULTIPLY.replace("mul i64 %value, %factor", "mul i64 %value, 7")
    kernels = {**programs.KERNELS, "k_multiply": text}
    objects = {
        symbol: toolchain.compile_object(body, symbol, programs.CPU).data
        for symbol, body in kernels.items()
    }
    return toolchain.link({"executor": executor.executor_object().data, **objects})


@pytest.fixture
def swapped(native, other_library, tmp_path, monkeypatch):
    """The bundle at a path whose library is another one from the moment its bytes were checked."""
    place = shutil.copytree(native, tmp_path / "bundle")
    for path in (place, *place.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    code = place / CODE
    good = code.read_bytes()

    def swapped_library(data, *rest):
        code.write_bytes(other_library)
        try:
            return library.Library(data, *rest)
        finally:
            code.write_bytes(good)

    monkeypatch.setattr(cpu, "Library", swapped_library)
    return place


def answers(program) -> bool:
    """Whether a call gives the numbers of the bundle that was checked."""
    found = array.array("q", bytes(8 * native_bundle.COUNT))
    program(native_bundle.INPUT, out=found)
    return found == native_bundle.OUTPUT


def test_loads_never_run_the_file_on_disk(swapped):
    pinned = digest_of((swapped / "manifest.msgpack").read_bytes())
    wrong = 0
    for _ in range(LOADS):
        with load(swapped, digest=pinned, threads=1) as program:
            wrong += not answers(program)
    assert wrong == 0


def test_loads_beside_a_writer_run_the_checked_code_or_none(swapped, other_library):
    """Here the file is swapped at any moment: what does not have the digest is refused."""
    code, stop = swapped / CODE, threading.Event()
    good = code.read_bytes()

    def swap():
        while not stop.is_set():
            for data in (other_library, good):
                new = code.with_suffix(".new")
                new.write_bytes(data)
                new.replace(code)

    writer = threading.Thread(target=swap)
    writer.start()
    ran = refused = 0
    try:
        while ran < 100 or refused < 20:
            try:
                with load(swapped, threads=1) as program:
                    assert answers(program)
                ran += 1
            except BundleError:
                refused += 1
    finally:
        stop.set()
        writer.join()


def test_many_at_once_need_no_descriptor_each(native):
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    programs = [load(native, threads=1) for _ in range(50)]
    assert len(list(descriptors.iterdir())) <= before + len(programs)  # the mapped weights', if any
    assert all(answers(program) for program in programs)
    for program in programs:
        program.close()


def test_a_name_that_somebody_else_has_used_is_not_taken(native, monkeypatch):
    """Another part of the process loaded a memory file by the very path that would be next."""
    import itertools

    data = (native / CODE).read_bytes()
    first = library.load_bytes(data)
    monkeypatch.setattr(library, "_names", itertools.count())
    second = library.load_bytes(data)
    assert first._handle != second._handle


@pytest.fixture
def code(native):
    return (native / CODE).read_bytes()


def test_without_memory_files_nothing_is_loaded(code, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(LibraryUnsealed, match="found no `memfd_create`, expected Linux"):
        library.load_bytes(code)


@pytest.mark.parametrize("number", [1, 12, 13, 24, 38])  # EPERM, ENOMEM, EACCES, EMFILE, ENOSYS
def test_a_refused_memory_file_is_named(code, monkeypatch, number):
    def refuse(name, flags):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(LibraryUnsealed) as raised:
        library.load_bytes(code)
    assert raised.value.exit_code == 7
    assert "found" in str(raised.value)
    assert "hint: " in str(raised.value)


def test_a_limit_of_file_sizes_is_named(code):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(code) - 1, limits[1]))
        with pytest.raises(LibraryUnsealed, match=f"file size limit of {len(code) - 1} bytes"):
            library.load_bytes(code)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert library.load_bytes(code)


def test_a_limit_of_the_shell_ends_the_command_with_7(native):
    command = f"ulimit -f 1; exec {sys.executable} -m aotc.aot.cli verify {native}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert ran.returncode == 7, ran.stderr
    assert "expected at least" in ran.stdout + ran.stderr


@pytest.mark.parametrize("is_planted", [False, True])
def test_a_folder_that_is_no_procfs_is_refused(code, tmp_path, monkeypatch, is_planted):
    """In a changed root `/proc` may be empty, or an ordinary folder with a library in it."""
    if is_planted:
        planted = tmp_path / "planted.so"
        planted.write_bytes(code)
    monkeypatch.setattr(library, "_fresh_name", lambda descriptor: str(tmp_path / "planted.so"))
    with pytest.raises(LibraryUnsealed, match=r"expected the system's procfs at `/proc`"):
        library.load_bytes(code)


def test_a_native_back_end_that_cannot_be_sealed_is_refused(code, monkeypatch):
    from aotc.runtime.backends.library import open_bytes

    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(LibraryUnsealed):
        open_bytes(code, "0" * 64, "somewhere.so")


def test_bytes_that_are_no_library_stay_a_fault_of_the_driver():
    with pytest.raises(DriverFault) as raised:
        library.load_bytes(b"\x7fELF" + bytes(100))
    assert not isinstance(raised.value, LibraryUnsealed)
