"""What Triton's host side asks of a device: arguments of all types, timers, texts of a kernel."""

from __future__ import annotations

import itertools
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from aotc import kernels
from aotc.kernels.arguments import packer
from aotc.runtime.errors import DriverFault

INTEGERS = {"i1": 1, "i8": 7, "u8": 8, "i16": 15, "u16": 16, "i32": 31, "u32": 32, "u64": 64}


@pytest.fixture(autouse=True, scope="module")
def on_cpu() -> Iterator[None]:
    with kernels.on_cpu():
        yield


class Pair(NamedTuple):
    scale: float
    target: torch.Tensor


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def tuple_kernel(parts, FACTORS: tl.constexpr):
    tl.store(parts[0], parts[1].scale * FACTORS[0])
    tl.store(parts[1].target, parts[1].scale * FACTORS[1])


@triton.jit
def window_kernel(window, out, row, column, M: tl.constexpr, N: tl.constexpr):
    found = window.load([row, column])
    i, j = tl.arange(0, M), tl.arange(0, N)
    tl.store(out + i[:, None] * N + j[None, :], found)


@triton.jit
def move_kernel(window, row, column):
    found = window.load([row, column])
    window.store([row + 4, column], found + 1)


@triton.jit
def narrow_kernel(x, places, out, one):
    i = tl.arange(0, 64)
    place = tl.load(places + i)
    tl.store(out + i, tl.load(x + 128 + place) + tl.load(x + 128 + one.to(tl.int8)))


def scalar_kernel(kind: str) -> triton.JITFunction:
    def kernel(out, value):
        tl.store(out, value.to(out.dtype.element_ty))

    kernel.__annotations__["value"] = kind
    return triton.jit(kernel)


@pytest.mark.parametrize("kind", INTEGERS)
def test_integer_arguments_of_every_width(kind: str) -> None:
    bits = INTEGERS[kind]
    low = 0 if kind[0] == "u" or kind == "i1" else -(1 << bits)
    kernel = scalar_kernel(kind)
    for value in {low, 0, 1, (1 << bits) - 1}:
        out = torch.zeros(1, dtype=torch.int64)
        kernel[(1,)](out, value)
        assert out.item() == (value if value < 1 << 63 else value - (1 << 64))


@pytest.mark.parametrize(
    ("kind", "as_torch"),
    [("fp16", torch.float16), ("bf16", torch.bfloat16), ("fp32", torch.float32),
     ("fp64", torch.float64)],
)  # fmt: skip
def test_float_arguments_of_every_width(kind: str, as_torch: torch.dtype) -> None:
    kernel = scalar_kernel(kind)
    for value in (0.0, 1.5, -(2.0**-9), 1e39, math.inf, -math.inf, math.nan):
        out = torch.zeros(1, dtype=torch.float64)
        kernel[(1,)](out, value)
        expected = torch.tensor([value], dtype=as_torch).double()
        torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


def test_tuples_of_arguments_and_constants() -> None:
    first, second = torch.zeros(1), torch.zeros(1)
    tuple_kernel[(1,)]((first, Pair(2.5, second)), (3, 4))
    assert (first.item(), second.item()) == (7.5, 10.0)


@pytest.mark.parametrize(("row", "column"), list(itertools.product((0, 3, 13, -2), (0, 5, 12))))
def test_windows_of_tensor_descriptors(row: int, column: int) -> None:
    x = torch.arange(16 * 16.0).reshape(16, 16)
    out = torch.full((8, 8), torch.nan)
    window_kernel[(1,)](TensorDescriptor.from_tensor(x, [8, 8]), out, row, column, M=8, N=8)
    wide = torch.zeros(48, 48)
    wide[16:32, 16:32] = x
    expected = wide[16 + row : 24 + row, 16 + column : 24 + column]
    torch.testing.assert_close(out, expected, rtol=0, atol=0)


def test_tensor_descriptors_write_within_their_tensor() -> None:
    whole = torch.zeros(20, 16)
    x = whole[:16]
    expected = whole.clone()
    expected[14:16, 8:16] = 1
    move_kernel[(1,)](TensorDescriptor.from_tensor(x, [4, 8]), 10, 8)
    torch.testing.assert_close(whole, expected, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_offsets_of_every_width(kind: torch.dtype) -> None:
    x = torch.arange(256.0)
    places = torch.arange(-128, 128, 4).to(kind)
    out = torch.zeros(64)
    narrow_kernel[(1,)](x, places, out, -3)
    torch.testing.assert_close(out, x[::4] + x[125])


def test_a_kernel_has_its_texts_and_registers() -> None:
    x = torch.ones(16)
    compiled = add_kernel[(1,)](x, x, torch.empty(16), 16, BLOCK=16)
    assert compiled.n_regs in (16, 32)
    assert "tt.func" in compiled.asm["ttir"]
    assert "define void @body" in compiled.asm["llir"]
    assert "ret" in compiled.asm["s"]
    assert compiled.asm["so"][:4] == b"\x7fELF"


def test_warmup_compiles_and_does_not_run() -> None:
    out = torch.zeros(16)
    compiled = add_kernel.warmup(out, out, out, 16, BLOCK=8, grid=(2,))
    assert "tt.func" in compiled.asm["ttir"]
    assert not out.any()


def test_triton_can_time_a_kernel() -> None:
    x, out = torch.ones(16), torch.empty(16)
    run = lambda: add_kernel[(1,)](x, x, out, 16, BLOCK=16)  # noqa: E731
    found = triton.testing.do_bench(run, warmup=1, rep=1, quantiles=[0.5, 0.2, 0.8])
    assert len(found) == 3
    assert min(found) > 0


SCRIPT = """
import sys
import triton
from triton.backends import backends
assert "torch" not in sys.modules and "aotc.kernels.driver" not in sys.modules
from aotc.kernels.triton_backend import compiler, driver
row = backends.get("aotc-x86")
if row is None:  # an installation from before the entry point
    from triton.backends import Backend
    row = backends["aotc-x86"] = Backend(compiler.Compiler, driver.Driver)
assert row == type(row)(compiler.Compiler, driver.Driver)
if sys.argv[1] == "gpu":
    other = type("Other", (driver.Driver,), {"is_active": classmethod(lambda cls: True)})
    backends["gpu"] = type(row)(compiler.Compiler, other)
if not row.driver.is_active():
    sys.exit("not active")
import torch, triton.language as tl
@triton.jit
def kernel(x):
    tl.store(x + tl.arange(0, 8), 3.0)
x = torch.zeros(8)
kernel[(1,)](x)
assert (x == 3).all()
assert triton.runtime.driver.active.get_active_torch_device().type == "cpu"
"""


@pytest.mark.parametrize(
    ("value", "others", "is_active"),
    [("1", "", True), ("0", "", False), ("", "", False), ("1", "gpu", False)],
)
def test_the_environment_makes_the_cpu_active_where_no_gpu_is(
    value: str, others: str, is_active: bool, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "AOTC_TRITON_CPU": value}
    if not value:
        del environment["AOTC_TRITON_CPU"]
    made = subprocess.run(
        [sys.executable, str(script), others], env=environment, capture_output=True, text=True
    )
    assert made.returncode == (0 if is_active else 1), made.stderr
    assert is_active or made.stderr.strip() == "not active"


@triton.jit
def count_kernel(out, n, start):
    found = start
    for _ in range(n):
        found += 1
    tl.store(out, found)


def test_threads_launch_one_kernel_at_once() -> None:
    count_kernel[(1,)](torch.zeros(1, dtype=torch.int64), 3, 0)
    wrong: list[int] = []

    def launch(start: int) -> None:
        out = torch.zeros(1, dtype=torch.int64)
        for turn in range(500):
            count_kernel[(1,)](out, 3, 1000 * start + turn)
            if out.item() != 1000 * start + turn + 3:
                wrong.append(start)

    threads = [threading.Thread(target=launch, args=(start,)) for start in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@triton.jit
def one_kernel(out):
    tl.store(out, 1.0)


def test_a_hook_may_launch_the_kernel_again() -> None:
    first, other = torch.zeros(1), torch.zeros(1)
    one_kernel[(1,)](first)
    first.zero_()
    launched: list[int] = []

    def hook(_: object) -> None:
        if not launched:
            launched.append(1)
            one_kernel[(1,)](other)

    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(hook)
    try:
        one_kernel[(1,)](first)
    finally:
        hooks.remove(hook)
    assert (first.item(), other.item()) == (1.0, 1.0)


@triton.jit
def bare_kernel():
    pass


def test_a_kernel_without_arguments_and_one_without_programs() -> None:
    bare_kernel[(1,)]()
    out = torch.zeros(1)
    one_kernel[(0,)](out)
    assert out.item() == 0.0
    one_kernel[(1,)](out)
    assert out.item() == 1.0


PROGRAM_THAT_LEAVES_THE_CPU = """
import gc, sys
import torch, triton, triton.language as tl
from aotc import kernels
sys.unraisablehook = lambda found: print("ignored", found.exc_value)

@triton.jit
def fill_kernel(out):
    tl.store(out, 3.0)

out = torch.zeros(1)
with kernels.on_cpu():
    fill_kernel[(1,)](out)
fill_kernel.device_caches.clear()
gc.collect()
print(out.item())
"""


def test_kernels_end_after_the_driver_that_loaded_them(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM_THAT_LEAVES_THE_CPU)
    found = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert found.stdout == "3.0\n"


def test_a_tensor_elsewhere_is_refused() -> None:
    x = torch.ones(16)
    with pytest.raises(DriverFault, match="on `meta`"):
        add_kernel[(1,)](x, torch.ones(16, device="meta"), x, 16, BLOCK=16)


def test_the_flags_of_a_descriptor_are_those_of_its_parameters() -> None:
    """Each release of Triton passes other flags: slots and parameters are as many."""
    descriptor = TensorDescriptor.from_tensor(torch.zeros(16, 16), [8, 8])
    compiled = window_kernel.warmup(descriptor, torch.empty(8, 8), 3, 5, M=8, N=8, grid=(1,))
    (head,) = [line for line in compiled.asm["ttir"].splitlines() if "tt.func public" in line]
    described = {"x": "tensordesc<fp32[8, 8]>", "out": "*fp32", "row": "i32", "column": "i32"}
    parameters = re.findall(r"%[\w.]+: (?:!tt.ptr<)?[a-z]", head)
    assert len(packer(described, {}).slots) == len(parameters)


@triton.jit
def hinted_kernel(out, n, IS_DISABLED: tl.constexpr, IS_WHILE: tl.constexpr):
    total = 0
    if IS_WHILE:
        i = 0
        while tl.condition(i < n, disable_licm=IS_DISABLED):
            i += 1
            total += i
            tl.store(out, total)
    else:
        for i in tl.range(0, n, disable_licm=IS_DISABLED):
            total += i + 1
            tl.store(out, total)


@pytest.mark.parametrize("is_while", [False, True])
@pytest.mark.parametrize("is_disabled", [False, True])
def test_loops_whose_invariants_stay_inside_say_so_to_llvm(
    is_disabled: bool, is_while: bool
) -> None:
    out = torch.zeros(1, dtype=torch.int32)
    compiled = hinted_kernel[(1,)](out, 10, IS_DISABLED=is_disabled, IS_WHILE=is_while)
    assert out.item() == 55
    assert ("llvm.licm.disable" in compiled.asm["llir"]) is is_disabled
