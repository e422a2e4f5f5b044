"""Cross-compilation: cubins for several architectures, on a machine without GPU or driver.

Each compilation takes a worker about a second, so that they share one pool and are few.
"""

import sys
from pathlib import Path

import pytest

from aotc.aot.errors import KernelTooLarge
from aotc.aot.targets.binary import KernelBinary, kernel_symbol
from aotc.aot.targets.cuda.compile import compile_kernel
from aotc.aot.targets.cuda.machines import assembler_architectures
from aotc.aot.targets.cuda.target import library
from aotc.aot.targets.toolchain import ToolchainError
from aotc.aot.tasks.task import Request
from aotc.aot.tasks.workers import Workers

pytest.importorskip("triton")

PRODUCT = """
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, 512, BK):
        k = start + tl.arange(0, BK)
        acc = tl.dot(tl.load(a + m * 512 + k[None, :]), tl.load(b + k[:, None] * 256 + n), acc)
    tl.store(c + m * 256 + n, acc)
"""
PARAMS = (("a", "*bf16"), ("b", "*bf16"), ("c", "*fp32"))
TILES = (("BM", 64), ("BN", 64), ("BK", 32))
CONFIG = (*TILES, ("num_warps", 4), ("num_stages", 3))
ADD_ONE = """
import triton
import triton.language as tl


@triton.jit
def add_one(x, y, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + at, tl.load(x + at) + 1)
"""
ADD_PARAMS = (("x", "*fp32"), ("y", "*fp32"))


def compiled(*arguments):
    """In a worker: the figures and texts of a kernel as plain values."""
    binary = compile_kernel(*arguments)
    return binary.symbol, binary.code, binary.facts, dict(binary.texts)


def in_workers(*calls):
    """One outcome a call; this module is found by the workers through its folder."""
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        with Workers(2) as workers:
            requests = [Request("kernel", "test_compile:compiled", call) for call in calls]
            return [outcome.unwrap() for outcome in workers.map(requests)]
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def products():
    """The product for one architecture of each generation, and for the first of them again."""
    names = ("sm_80", "sm_90", "sm_100", "sm_120", "sm_90")
    return in_workers(*((PRODUCT, "product", PARAMS, CONFIG, name) for name in names))


def test_each_generation_gets_its_own_matrix_instructions(products):
    words = {"sm_80": "mma.sync", "sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma"}
    for (_, code, _, texts), (name, word) in zip(products, words.items(), strict=False):
        assert code[:4] == b"\x7fELF"
        assert word in texts["ptx"]
        assert f".target {name}" in texts["ptx"]
    assert "mma.sync" in products[3][3]["ptx"]


def test_kernels_from_9_0_on_wait_before_anything_else(products):
    """A launch before the end of the kernel before it would be a race without this."""
    for (_, _, facts, texts), name in zip(products, ("80", "90", "100", "120"), strict=False):
        body = texts["ptx"].partition("\n{\n")[2]
        first = next(line.strip() for line in body.splitlines() if line.strip()[:1] not in ".$/")
        assert facts["is_programmatic"] == (first == "griddepcontrol.wait;") == (name != "80")


def test_what_a_launch_needs_is_known(products):
    for symbol, _, facts, texts in products:
        assert f".visible .entry {symbol}(" in texts["ptx"]
        assert facts["threads"] == 128
        assert facts["shared_bytes"] > 2 * 64 * 32 * 2
        assert 16 < facts["registers"] <= 255
        assert facts["spill_bytes"] == 0


def test_equal_sources_give_equal_bytes(products):
    assert products[1][:3] == products[4][:3]


def test_texts_name_no_folder(products):
    for _, code, _, texts in products:
        for word in (str(Path.cwd()), str(Path.home()), "/tmp"):
            assert len(word) < 4 or word.encode() not in code
            assert len(word) < 4 or word not in texts["ptx"]


def test_threads_are_those_of_the_entry_and_not_of_the_options():
    facts = compile_kernel(
        ADD_ONE, "add_one", ADD_PARAMS, (("N", 256), ("num_warps", 8)), "sm_90"
    ).facts
    assert facts["threads"] == 256
    assert facts["shared_bytes"] == 0


def test_too_much_shared_memory_is_refused_by_its_size():
    config = (("BM", 128), ("BN", 128), ("BK", 128), ("num_warps", 8), ("num_stages", 3))
    with pytest.raises(KernelTooLarge) as caught:
        compile_kernel(PRODUCT, "product", PARAMS, config, "sm_86")
    assert caught.value.found > caught.value.expected == 99 * 1024


def test_a_source_that_triton_refuses_is_a_typed_error():
    broken = ADD_ONE.replace("tl.arange(0, N)", "tl.arange(0, 3)")
    with pytest.raises(ToolchainError, match="power of 2"):
        compile_kernel(broken, "add_one", ADD_PARAMS, (("N", 256),), "sm_90")


def test_the_symbol_depends_on_everything_that_the_code_depends_on():
    arguments = (PRODUCT, "product", PARAMS, CONFIG, "sm_90")
    others = (PRODUCT + "\n", "other", PARAMS[:2], TILES, "sm_80")
    symbols = {
        kernel_symbol(*arguments[:place], other, *arguments[place + 1 :])
        for place, other in enumerate(others)
    }
    assert len(symbols | {kernel_symbol(*arguments)}) == len(others) + 1


def test_nothing_is_written_in_the_users_home_and_their_settings_do_nothing(tmp_path, monkeypatch):
    """With nothing on the PATH, so that no compiler could be called either."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/nonexistent")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(home / "cache"))
    ((_, code, _, _),) = in_workers((ADD_ONE, "add_one", ADD_PARAMS, (("N", 128),), "sm_80"))
    assert code
    assert list(home.iterdir()) == []


def test_the_assemblers_know_the_usual_architectures():
    assert {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"} <= assembler_architectures()


def test_images_lie_side_by_side_aligned_and_by_symbol():
    kernels = [
        KernelBinary("k2", b"b" * 100, threads=64, shared_bytes=7),
        KernelBinary("k1", b"a" * 64, threads=128, scratch_bytes=9),
        KernelBinary("k2", b"b" * 100, threads=64, shared_bytes=7),
    ]
    made = library(kernels, {})
    assert made.data == b"a" * 64 + b"b" * 100 + bytes(28)
    assert made.images["k2"].as_map() == {
        "offset": 64,
        "nbytes": 100,
        "threads": 64,
        "shared_bytes": 7,
        "scratch_bytes": 0,
        "is_programmatic": False,
    }
