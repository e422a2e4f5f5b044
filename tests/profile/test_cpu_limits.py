"""What a processor reaches: the loop that is measured is what an assembler makes of its text."""

import mmap
import shutil
import subprocess

import pytest

from aotc.aot.profile import cpu_limits
from aotc.aot.profile.cpu_limits import assembly, machine_code, measure_limits


@pytest.mark.parametrize("registers", ["ymm", "zmm"])
def test_the_machine_code_is_its_assembly(registers, tmp_path):
    if shutil.which("as") is None or shutil.which("objcopy") is None:
        pytest.skip("no assembler on this machine")
    (tmp_path / "loop.s").write_text(assembly(registers))
    for words in (
        ("as", "--64", "loop.s", "-o", "loop.o"),
        ("objcopy", "-O", "binary", "-j", ".text", "loop.o", "loop.bin"),
    ):
        subprocess.run(words, cwd=tmp_path, check=True)
    assert (tmp_path / "loop.bin").read_bytes() == machine_code(registers)


def test_limits_are_measured_where_vectors_multiply_and_add(monkeypatch):
    monkeypatch.setattr(cpu_limits, "COPY_TOTAL_BYTES", 1 << 20)
    monkeypatch.setattr(cpu_limits, "TURNS", 100)
    monkeypatch.setattr(cpu_limits, "ROUNDS_S", 0.0)
    found = measure_limits(("avx2", "fma"))
    assert found.bytes_per_s > 0
    assert found.operations_per_s > 0
    assert found.products == "f32 products"
    assert measure_limits(("sse2",)) is None


def test_the_widest_registers_that_the_code_uses(monkeypatch):
    asked = []
    code = machine_code("ymm")
    monkeypatch.setattr(cpu_limits, "machine_code", lambda name: asked.append(name) or code)
    monkeypatch.setattr(cpu_limits, "COPY_TOTAL_BYTES", 1 << 20)
    monkeypatch.setattr(cpu_limits, "TURNS", 100)
    monkeypatch.setattr(cpu_limits, "ROUNDS_S", 0.0)
    measure_limits(("fma", "avx512f"))
    measure_limits(("avx", "fma"))
    assert asked == ["zmm", "ymm"]


def test_a_system_that_executes_no_memory_gives_no_limits(monkeypatch):
    def refused(*_, **__):
        raise PermissionError(1, "operation not permitted")

    monkeypatch.setattr(mmap, "mmap", refused)
    assert measure_limits(("fma",)) is None
