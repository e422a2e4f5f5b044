"""Opening libraries: what is refused, by which typed error, and what `get_backend` finds."""

from __future__ import annotations

import gc
import importlib
import shutil
import subprocess
import sys

import numpy
import pytest

from aotc import runtime
from aotc.aot.native.library import tie
from aotc.runtime.backends import discovery, errors
from aotc.runtime.backends.library import open_file
from aotc.runtime.errors import SettingInvalid

ODD = {
    "another ABI": (["-DABI=2u"], errors.BackendAbi, "has ABI 2, expected ABI 1"),
    "no table": (["-DREFUSE"], errors.BackendAbi, "refuses this ABI or failed to start"),
    "short table": (["-DSTRUCT_BYTES=16"], errors.BackendMalformed, "struct_bytes is 16"),
    "no name": (['-DNAME=""'], errors.BackendMalformed, "name is ``"),
    "name with a slash": (['-DNAME="a/b"'], errors.BackendMalformed, "letters, digits and `_`"),
    "unknown device": (["-DDEVICES=4u"], errors.BackendMalformed, "devices is 0x4"),
    "no kernel": (["-DKERNEL=NULL"], errors.BackendMalformed, "kernel of function `fill` is NULL"),
    "no dtypes": (["-DDTYPES=0"], errors.BackendMalformed, "dtypes of tensor 0"),
    "unknown role": (["-DROLE=9"], errors.BackendMalformed, "role of tensor 0"),
    "listed otherwise": (['-DLISTED="other"'], errors.BackendMalformed, "name of function `other`"),
    "odd alignment": (["-DALIGNMENT=12"], errors.BackendMalformed, "alignment_bytes of tensor 0"),
}


@pytest.mark.parametrize("case", ODD)
def test_libraries_that_break_the_header(compile_library, case):
    flags, kind, text = ODD[case]
    path = compile_library("odd.c", "odd", *flags)
    with pytest.raises(kind, match=text) as caught:
        runtime.get_backend(path).functions  # noqa: B018
    assert str(path) in str(caught.value)


def test_a_library_that_is_no_back_end(compile_library):
    path = compile_library("foreign.c", "foreign")
    with pytest.raises(errors.BackendSymbolMissing, match="exports no `aotc_backend_init`"):
        runtime.get_backend(path)


def test_a_file_that_is_no_library(tmp_path):
    path = tmp_path / "libtext.so"
    path.write_text("no machine code")
    with pytest.raises(errors.BackendUnloadable, match="cannot be loaded"):
        runtime.get_backend(path)
    with pytest.raises(errors.BackendUnloadable, match="No such file"):
        runtime.get_backend(tmp_path / "libabsent.so")


def test_a_name_that_does_not_match(compile_library, on_path):
    path = compile_library("odd.c", "other")
    on_path(path)
    with pytest.raises(errors.BackendName, match="holds the back end `odd`, expected `other`"):
        runtime.get_backend("other")


def test_a_function_that_is_not_there(compile_library):
    odd = runtime.get_backend(compile_library("odd.c", "odd"))
    for ask in (lambda: odd.empty, lambda: odd.get_function_ptr("no such"), lambda: odd["x"]):
        with pytest.raises(errors.FunctionUnknown, match=r"`odd` has no function .* one of: fill"):
            ask()
    assert not hasattr(odd, "__wrapped__")


def test_found_by_name(example, on_path):
    on_path(example("custom_add"))
    library = runtime.get_backend("custom_add")
    assert (library.name, library.version, library.devices) == ("custom_add", "1.0.0", ("cpu",))
    assert str(library.functions["add"]).startswith("add(a: f64|f32[…]")
    assert "add" in dir(library)


def test_not_found(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTC_BACKEND_PATH", str(tmp_path))
    with pytest.raises(errors.BackendNotFound, match=f"looked in: {tmp_path}, entry points"):
        runtime.get_backend("custom_add")


def test_the_first_on_the_path_wins(compile_library, on_path):
    first = compile_library("odd.c", "odd", "-DALIGNMENT=8")
    second = compile_library("odd.c", "odd", "-DALIGNMENT=16")
    on_path(first, second)
    assert runtime.get_backend("odd").path == str(first.resolve())
    on_path(second, first)
    assert runtime.get_backend("odd").path == str(second.resolve())


def test_a_build_runs_and_embeds_the_same_bytes(compile_library, tmp_path):
    """The file is replaced between the opening of a library and the reading of its bytes."""
    first = compile_library("odd.c", "odd", "-DALIGNMENT=8")
    second = compile_library("odd.c", "odd", "-DALIGNMENT=16")
    place = tmp_path / "libodd.so"
    place.write_bytes(first.read_bytes())
    opened = open_file(str(place))
    place.unlink()
    place.write_bytes(second.read_bytes())
    kept = tie(opened)
    assert kept.data == second.read_bytes()
    assert kept.library.function("fill").signature.tensors[0].alignment_bytes == 16


def test_the_current_folder_is_never_searched(example, tmp_path, monkeypatch):
    shutil.copy(example("custom_add"), tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    for path in (None, "", ":", f":{tmp_path / 'empty'}:"):
        if path is None:
            monkeypatch.delenv("AOTC_BACKEND_PATH", raising=False)
        else:
            monkeypatch.setenv("AOTC_BACKEND_PATH", path)
        with pytest.raises(errors.BackendNotFound):
            runtime.get_backend("custom_add")
        with pytest.raises(errors.BackendNotFound):
            runtime.get_backend("libcustom_add.so")
    for path in (".", "sub:/absolute"):
        monkeypatch.setenv("AOTC_BACKEND_PATH", path)
        with pytest.raises(SettingInvalid, match="absolute paths"):
            runtime.get_backend("custom_add")
    assert runtime.get_backend("./libcustom_add.so").name == "custom_add"  # on purpose


def test_entry_points(example, on_path, monkeypatch, tmp_path):
    path = example("custom_add")
    package = tmp_path / "site" / "with_backend"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"def library():\n    return {str(path)!r}\n")
    metadata = tmp_path / "site" / "with_backend-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: with-backend\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[aotc.backends]\ncustom_add = with_backend:library\nbroken = no_such_module:path\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delenv("AOTC_BACKEND_PATH", raising=False)
    importlib.invalidate_caches()
    assert runtime.get_backend("custom_add").path == str(path.resolve())
    assert discovery.find("custom_add").origin == "entry point"
    with pytest.raises(errors.BackendUnloadable, match="raised ModuleNotFoundError"):
        runtime.get_backend("broken")
    found = {each.name: each for each in discovery.find_all()}
    assert found["broken"].path == "no_such_module:path"
    assert "ModuleNotFoundError" in found["broken"].problem


def test_configs_reach_initialize(compile_library):
    many = runtime.get_backend(compile_library("many.cpp", "many", "-DA"), {"greeting": "hey"})
    out = numpy.zeros(2, "i8")
    many.count(out=out)
    assert out.tolist() == [1, 3]
    again = runtime.get_backend(many.path, {"greeting": "hey"})
    again.count(out=out)
    assert out.tolist() == [2, 3]
    with pytest.raises(errors.BackendConfigured, match="'hey'"):
        runtime.get_backend(many.path, {"greeting": "other"})


def test_initialize_that_fails(compile_library):
    odd = runtime.get_backend(compile_library("odd.c", "odd", "-DB"), {"refuse": "now"})
    for _ in range(2):
        with pytest.raises(errors.BackendRefusal, match="`odd` cannot use device cpu:0: refuses"):
            odd.fill(1.0, out=numpy.zeros(2, "f4"))
    many = runtime.get_backend(compile_library("many.cpp", "many", "-DB"), {"greeting": "none"})
    with pytest.raises(errors.BackendRefusal, match="no greeting"):
        many.count(out=numpy.zeros(2, "i8"))


def test_closed(compile_library):
    path = compile_library("many.cpp", "many", "-DC")
    many = runtime.get_backend(path)
    out = numpy.zeros(2, "i8")
    many.count(out=out)
    many.count(out=out)
    many.close()
    many.close()
    with pytest.raises(errors.BackendClosed, match="`many` was closed"):
        many.count(out=out)
    runtime.get_backend(path).count(out=out)
    assert out[0] == 1  # a state of its own


def test_finalized_at_the_end_of_the_process(compile_library):
    path = compile_library("many.cpp", "many", "-fsanitize=undefined")
    code = (
        "from aotc import runtime\nfrom array import array\n"
        f"many = runtime.get_backend({str(path)!r})\n"
        "many.count(out=array('q', [0, 0]))\n"
        "kind = type(many._library)\n"
        "close = kind.close\n"
        "kind.close = lambda self: (close(self), print('finalized', self._states))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "finalized {}\n"), ran.stderr


def test_import_does_not_bring_back_ends():
    code = (
        "import sys, aotc.runtime as runtime\n"
        "assert not [name for name in sys.modules if 'backends' in name]\n"
        "assert 'get_backend' in runtime.__all__ and callable(runtime.get_backend)\n"
        "assert 'importlib.metadata' not in sys.modules\n"
        "try: runtime.no_such_name\n"
        "except AttributeError as error: assert 'no_such_name' in str(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_frames_of_many_shapes_are_not_kept_for_ever(example):
    adder = runtime.get_backend(example("custom_add"))
    add = adder["add"]
    for size in range(200):
        a = numpy.ones(size, "f4")
        add(a, a, size, out=a)
    gc.collect()
    assert len(add._ready) <= 64
