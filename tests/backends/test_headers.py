"""The headers: their structures are those that the runtime reads, in C and in C++ of every year."""

from __future__ import annotations

import ctypes
import json
import subprocess

import pytest

from aotc.runtime.arrays.dlpack import DLTensor
from aotc.runtime.backends import abi
from aotc.runtime.drivers.cpu import executor_abi as frame
from tests.backends.conftest import HEADERS, compiler_of

STRUCTURES = {
    "DLTensor": DLTensor,
    "aotc_context": abi.Context,
    "aotc_tensor_spec": abi.TensorSpecTable,
    "aotc_scalar_spec": abi.ScalarSpecTable,
    "aotc_function": abi.FunctionTable,
    "aotc_config": abi.Config,
    "aotc_backend": abi.BackendTable,
}
# Fields that DLPack nests in structures of their own.
NESTED = {
    "device_type": "device.device_type",
    "device_id": "device.device_id",
    "code": "dtype.code",
    "bits": "dtype.bits",
    "lanes": "dtype.lanes",
}
NUMBERS = {
    "AOTC_BACKEND_ABI": abi.ABI,
    "AOTC_ANY_RANK": abi.ANY_RANK,
    "AOTC_STRIDED": abi.STRIDED,
    "AOTC_CONCURRENT": abi.CONCURRENT,
    "AOTC_TILED": abi.TILED,
    "AOTC_OK": 0,
    "sizeof(aotc_scalar)": abi.SCALAR_BYTES,
    **{f"AOTC_{name.upper()}": bit for name, bit in abi.DEVICE_BITS.items()},
    **{f"AOTC_{name.upper()}": bit for name, bit in abi.DTYPE_BITS.items()},
    "AOTC_INPUT": abi.ROLES.index("input"),
    "AOTC_OUTPUT": abi.ROLES.index("output"),
    "AOTC_WHOLE_NUMBER": abi.SCALAR_KINDS.index("whole"),
    "AOTC_REAL_NUMBER": abi.SCALAR_KINDS.index("real"),
}


def says(tmp_path, language: str, expressions: list[str], options=()) -> list[int]:
    """The values of C expressions by the compiler's word."""
    source = tmp_path / f"say.{language}"
    lines = "".join(f'  printf("%lld,", (long long)({each}));\n' for each in expressions)
    source.write_text(
        f'#include <stddef.h>\n#include "aotc_backend.h"\nint main(void) {{\n{lines}'
        '  printf("0");\n  return 0;\n}\n'
    )
    command = [each for each in compiler_of(source) if each not in ("-shared", "-fPIC")]
    out = tmp_path / "say"
    subprocess.run([*command, *options, str(source), "-o", str(out)], check=True)
    ran = subprocess.run([str(out)], capture_output=True, text=True, check=True)
    return json.loads(f"[{ran.stdout}]")[:-1]


@pytest.mark.parametrize("language", ["c", "cpp"])
def test_structures_and_numbers(tmp_path, language):
    expected, expressions = [], []
    for name, kind in STRUCTURES.items():
        expressions.append(f"sizeof({name})")
        expected.append(ctypes.sizeof(kind))
        for field, *_ in kind._fields_:
            member = NESTED.get(field, field) if name == "DLTensor" else field
            expressions.append(f"offsetof({name}, {member})")
            expected.append(getattr(kind, field).offset)
    expressions += NUMBERS
    expected += NUMBERS.values()
    found = says(tmp_path, language, expressions)
    assert dict(zip(expressions, found, strict=True)) == dict(
        zip(expressions, expected, strict=True)
    )


@pytest.mark.parametrize("standard", ["c++11", "c++17", "c++20"])
def test_the_c_header_in_every_c_plus_plus(tmp_path, standard):
    expressions = ["sizeof(aotc_context)"]
    assert says(tmp_path, "cpp", expressions, [f"-std={standard}", "-pedantic"]) == [72]


def test_dlpacks_own_header_goes_first(tmp_path):
    folder = tmp_path / "dlpack"
    folder.mkdir()
    text = (HEADERS / "aotc_backend.h").read_text()
    begin, end = (
        text.index("#define DLPACK_MAJOR_VERSION"),
        text.index("#endif\n/* ---- DLPack ends"),
    )
    (folder / "dlpack.h").write_text(
        "#ifndef DLPACK_DLPACK_H_\n#define DLPACK_DLPACK_H_\n#define IS_DLPACKS_OWN 1\n"
        f"{text[begin:end]}#endif\n"
    )
    assert says(tmp_path, "c", ["IS_DLPACKS_OWN"], [f"-I{tmp_path}"]) == [1]


def test_frames_are_laid_out_as_the_context_is():
    context = abi.Context
    assert context.tile.offset == frame.CONTEXT_TILE
    assert context.tiles.offset == frame.CONTEXT_TILES
    assert context.stream.offset == frame.CONTEXT_STREAM
    assert context.workspace.offset == frame.CONTEXT_WORKSPACE
    assert context.workspace_bytes.offset == frame.CONTEXT_WORKSPACE + 8
    assert context.message.offset == frame.CONTEXT_MESSAGE
    assert ctypes.sizeof(context) == frame.CONTEXT_BYTES
    assert frame.FRAME_CONTEXT + frame.CONTEXT_BYTES <= frame.FRAME_STATUS
    assert frame.FRAME_BYTES % 8 == 0


def test_wrong_c_plus_plus_signatures_do_not_compile(tmp_path):
    source = tmp_path / "wrong.cpp"
    head = '#include "aotc_backend.hpp"\n'
    tail = (
        'struct B : aotc::Backend {{ B() {{ define<&f>("f", {{{names}}}); }}\n'
        'std::string get_name() const override {{ return "b"; }} }};\nAOTC_EXPORT_BACKEND(B)\n'
    )
    wrong = {
        "void f(const aotc::Context &, aotc::Tensor<long double>) {}": "tensors have elements of",
        "void f(const aotc::Context &, float) {}": "an argument is a Tensor",
        "void f(const aotc::Context &, int64_t, aotc::Tensor<float>) {}": "before scalars",
    }
    for line, text in wrong.items():
        names = '"a", "b"' if "int64_t" in line else '"a"'
        source.write_text(head + line + "\n" + tail.format(names=names))
        command = [*compiler_of(source), str(source), "-o", str(tmp_path / "wrong.so")]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode != 0
        assert text in ran.stderr
