"""The kernels compile for a GPU, with the tiles that a GPU takes, on machines without one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from gpu_compilation import compiling_for_a_gpu  # noqa: E402
from kernel_cases import CASES  # noqa: E402

from aotc import kernels  # noqa: E402
from aotc.kernels import driver  # noqa: E402
from aotc.kernels.library import attention, cross_entropy, products, tiles  # noqa: E402

pytestmark = pytest.mark.cpu_only("it has launches on the CPU compile for a GPU")


@pytest.fixture
def compiled(monkeypatch):
    """Each launch on the CPU also compiles the kernel for a GPU; gives what was compiled."""
    found = []
    monkeypatch.setattr(driver, "run_on_cpu", compiling_for_a_gpu(found, driver.run_on_cpu))
    for table in (
        tiles.TILES,
        tiles._PERSISTENT,
        tiles.POINTWISE,
        cross_entropy.GRADIENT_TILE,
        products.TILES,
        attention.TILES,
    ):
        monkeypatch.setitem(table, "cpu", table["cuda"])
    tiles._row_tile.cache_clear()
    tiles.persistent_tile.cache_clear()
    yield found
    tiles._row_tile.cache_clear()
    tiles.persistent_tile.cache_clear()


def check(case, shape, dtype, compiled):
    tensors = case.tensors(shape, dtype)
    result = case.ours(*tensors)
    torch.autograd.grad(result.sum(), tensors)
    assert compiled
    for kernel in compiled:
        assert "st.global" in kernel.asm["ptx"]
        assert kernel.metadata.shared <= 99 * 1024  # of all GPUs since sm_80


NAMES = ("softmax", "layer_norm", "cross_entropy with smoothing", "rope", "swiglu")
DEFAULT = [case for case in CASES if case.name in NAMES]


@pytest.mark.parametrize("case", DEFAULT, ids=lambda case: case.name)
def test_kernels_compile_for_a_gpu(case, compiled):
    check(case, case.sizes[0], torch.bfloat16, compiled)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_kernels_compile_for_a_gpu(case, dtype, compiled):
    for shape in (*case.sizes, *case.long):
        check(case, shape, dtype, compiled)


def test_the_optimizers_kernel_compiles_for_a_gpu(compiled):
    kernels.adamw_step(*([torch.rand(5)] for _ in range(4)), 1)
    (kernel,) = compiled
    assert kernel.asm["ptx"].count("st.global") >= 3
