"""`aotc backends`: what it lists, what it reports of libraries that crash, what it writes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aotc.aot.cli.program import run
from tests.backends.conftest import EXAMPLES, HEADERS

AOTC = f"{sys.executable} -m aotc.aot.cli"


@pytest.fixture
def says(capsys):
    def call(*arguments):
        code = run(["backends", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_include_dir(says):
    code, out, _ = says("include-dir")
    assert code == 0
    assert out == f"{HEADERS}\n"
    assert {"aotc_backend.h", "aotc_backend.hpp", "cmake"} <= {
        each.name for each in Path(out.strip()).iterdir()
    }


def test_check_of_a_sound_library(says, example):
    code, out, _ = says("check", example("gemm"))
    assert code == 0
    assert "back end   gemm 1.0.0, ABI 1" in out
    assert "matmul(a: f32[·, ·], b: f32[·, ·]) -> (c: f32[·, ·]) on cpu" in out
    assert "tiled, with workspace" in out
    assert out.endswith("ok\n")
    code, out, _ = says("check", example("gemm"), "--json")
    record = json.loads(out)
    assert record["schema"] == "aotc.backends.check/1"
    assert record["functions"][0]["tensors"][0]["name"] == "c"
    assert record["problems"] == []


CRASHES = {
    "-DCRASH=SIGSEGV": "crashed with SIGSEGV in `initialize`",
    "-DCRASH=SIGABRT": "crashed with SIGABRT in `initialize`",
    "-DEXIT=0": "ended the process with exit code 0 in `initialize`",
    "-DABI=3u": "has ABI 3, expected ABI 1",
    "-DKERNEL=NULL": "kernel of function `fill` is NULL",
}


@pytest.mark.parametrize("flag", CRASHES)
def test_check_of_a_library_that_fails(says, compile_library, flag):
    code, out, _ = says("check", compile_library("odd.c", "odd", flag))
    assert code == 1
    assert CRASHES[flag] in out


def test_check_of_no_back_end(says, compile_library, tmp_path):
    code, out, _ = says("check", compile_library("foreign.c", "foreign"))
    assert code == 1
    assert "exports no `aotc_backend_init`" in out
    code, _, err = says("check", tmp_path / "libabsent.so")
    assert code == 2
    assert "does not exist" in err


def test_check_of_a_file_of_another_name(says, compile_library):
    code, out, _ = says("check", compile_library("odd.c", "renamed"))
    assert code == 1
    assert "the file is called `librenamed.so`, expected `libodd.so`" in out


def test_ls(says, compile_library, example, on_path):
    first = compile_library("odd.c", "odd")
    on_path(
        first,
        compile_library("odd.c", "odd", "-DALIGNMENT=8"),
        compile_library("odd.c", "odd", "-DCRASH=SIGSEGV"),
        compile_library("odd.c", "renamed"),
        example("custom_add"),
    )
    code, out, _ = says("ls")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["name", "version", "devices"]
    assert "shadowed" not in lines[1]
    assert "shadowed by another `odd` before it" in lines[2]
    assert "crashed with SIGSEGV" in lines[3]
    assert "holds `odd`, expected `renamed`" in lines[4]
    assert "custom_add" in lines[5]
    code, out, _ = says("ls", "--json")
    record = json.loads(out)
    assert record["schema"] == "aotc.backends/1"
    assert [row["is_shadowed"] for row in record["backends"]] == [False, True, True, True, False]


def test_ls_of_nothing(says, monkeypatch, tmp_path):
    monkeypatch.setenv("AOTC_BACKEND_PATH", str(tmp_path / "absent"))
    expected = f"none; looked in: {tmp_path / 'absent'}, entry points `aotc.backends`\n"
    assert says("ls")[1] == expected


@pytest.mark.parametrize("name", ["Name", "two words", "9lives", "a/b", "ä"])
def test_new_with_a_name_that_cannot_be(says, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = says("new", name)
    assert code == 2
    assert "cannot be the name of a back end" in err
    assert not list(tmp_path.iterdir())


def test_new_does_not_write_into_a_folder(says, tmp_path):
    code, _, err = says("new", "mine", "--output", tmp_path)
    assert code == 2
    assert "exists already" in err


def make(folder, *arguments):
    for tool in ("make", "cc", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs `{tool}`")
    command = ["make", "-C", str(folder), f"AOTC={AOTC}", f"PYTHON={sys.executable}", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_new_makes_and_passes_its_test(says, tmp_path):
    folder = tmp_path / "my_library"
    code, out, _ = says("new", "my_library", "--output", folder)
    assert code == 0
    assert "make test" in out
    make(folder)
    assert (folder / "libmy_library.so").is_file()
    assert "my_library: ok" in make(folder, "test")


@pytest.mark.parametrize("name", ["custom_add", "image_filter", "gemm"])
def test_examples_make_and_run(name, tmp_path):
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("lib*.so"))
    assert f"<native back end {name} 1.0.0" in make(folder, "test")


@pytest.mark.parametrize("name", ["custom_add", "image_filter", "gemm"])
def test_examples_by_cmake(name, tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("needs `cmake`")
    build = tmp_path / "build"
    configure = ["cmake", "-S", EXAMPLES / name, "-B", build, f"-DCMAKE_PREFIX_PATH={HEADERS}"]
    for command in (configure, ["cmake", "--build", build]):
        ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (build / f"lib{name}.so").is_file()


def test_the_cuda_example_compiles(tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("needs `nvcc`")
    folder = tmp_path / "cuda_axpy"
    shutil.copytree(EXAMPLES / "cuda_axpy", folder, ignore=shutil.ignore_patterns("lib*.so"))
    make(folder, "NVCCFLAGS=-O1 -arch=sm_80")
    ran = subprocess.run(
        [sys.executable, "-m", "aotc.aot.cli", "backends", "check", folder / "libcuda_axpy.so"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "axpy(x: f32[…], y: f32[…], alpha: float) -> (out: f32[…]) on cuda" in ran.stdout
