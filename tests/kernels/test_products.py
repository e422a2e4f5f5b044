"""Products of the kernel library: shapes, errors, blocks of classes, memory, code for a GPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from gpu_compilation import compiling_for_a_gpu  # noqa: E402
from kernel_cases import CASES, compare  # noqa: E402
from torch.nn import functional  # noqa: E402

from aotc import kernels  # noqa: E402
from aotc.aot.errors import (  # noqa: E402
    KernelDtypeUnsupported,
    KernelShapeInvalid,
    KernelTargetInvalid,
    KernelValueInvalid,
)
from aotc.kernels import driver  # noqa: E402
from aotc.kernels.library import linear_cross_entropy as losses  # noqa: E402
from aotc.kernels.library import norm_linear, products  # noqa: E402

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def wide(*shape):
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize(
    ("left", "right"),
    [((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)), ((2, 1, 4, 5), (3, 5, 6)), ((3, 4, 5), (5,)),
     ((5,), (2, 5, 3)), ((0, 5), (5, 3)), ((2, 0), (0, 3)), ((0, 4, 5), (0, 5, 2)),
     ((1, 1), (1, 1))],
)  # fmt: skip
def test_matmul_takes_torchs_shapes(left, right):
    a, b = wide(*left), wide(*right)
    torch.testing.assert_close(kernels.matmul(a, b), torch.matmul(a, b), **CLOSE)


def test_matmul_reads_operands_where_they_lie():
    a, b = wide(9, 8, 7).permute(2, 0, 1)[:, ::2], wide(8, 20)[:, 1::3]
    torch.testing.assert_close(kernels.matmul(a, b), a @ b, **CLOSE)
    row = wide(1, 8).expand(6, 8)
    torch.testing.assert_close(kernels.matmul(row, b), row @ b, **CLOSE)


@pytest.mark.parametrize("activation", ["none", "relu"])
def test_gradients_of_activations(activation):
    tensors = [wide(3, 4), wide(5, 4), wide(5)]
    given = [each.requires_grad_() for each in tensors]
    assert torch.autograd.gradcheck(lambda *all: kernels.linear(*all, activation), given)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_are_in_f32(dtype):
    """Of 4096 terms of 1, and of terms that differ by more than the type's digits."""
    x, weight = torch.ones(2, 4096, dtype=dtype), torch.ones(3, 4096, dtype=dtype)
    assert torch.equal(kernels.linear(x, weight), torch.full((2, 3), 4096.0, dtype=dtype))
    x[:, ::2] = 1 / 512
    assert torch.equal(kernels.linear(x, weight), torch.full((2, 3), 2052.0).to(dtype))


def test_wrong_arguments_are_named():
    x, weight = torch.ones(2, 3), torch.ones(4, 3)
    with pytest.raises(KernelShapeInvalid, match=r"`b` has shape \[4, 3\]"):
        kernels.matmul(x, weight)
    with pytest.raises(KernelShapeInvalid, match="one dim or more"):
        kernels.matmul(x, torch.tensor(1.0))
    with pytest.raises(RuntimeError, match=r"`linear`: `x` has shape \[2, 2\]"):
        kernels.linear(x[:, :2], weight)
    with pytest.raises(KernelDtypeUnsupported, match=r"`weight` is of type torch\.float16"):
        kernels.linear(x, weight.half())
    with pytest.raises(KernelValueInvalid, match="`activation` is 'tanh', expected one of none"):
        kernels.linear(x, weight, activation="tanh")
    with pytest.raises(KernelShapeInvalid, match=r"`norm_bias` has shape \[2\]"):
        kernels.layer_norm_linear(x, None, torch.ones(2), weight)
    with pytest.raises(KernelShapeInvalid, match=r"`target` has shape \[3\]"):
        kernels.linear_cross_entropy(x, weight, torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="`p` is 2"):
        kernels.layer_norm_linear_gelu_dropout(x, None, None, weight, p=2)


@pytest.mark.cpu_only("on a GPU data are not looked at")
def test_wrong_targets_are_named():
    with pytest.raises(KernelTargetInvalid, match="a target is 4"):
        kernels.linear_cross_entropy(torch.ones(2, 3), torch.ones(4, 3), torch.tensor([0, 4]))


def test_fused_dropout_drops_what_dropout_drops():
    """Over several groups of its counters; without training nothing."""
    x, weight = wide(70, 5), wide(67, 5)
    found = kernels.layer_norm_linear_gelu_dropout(x, None, None, weight, p=0.5, seed=1 << 40)
    linear = kernels.layer_norm_linear(x, None, None, weight, activation="gelu")
    torch.testing.assert_close(found, kernels.dropout(linear, seed=1 << 40), **CLOSE)
    still = kernels.layer_norm_linear_gelu_dropout(x, None, None, weight, training=False)
    assert torch.equal(still, linear)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_losses_by_blocks_of_classes(monkeypatch, reduction):
    """Three blocks, the last one partial, and parts of the forward pass that end in a tile."""
    monkeypatch.setattr(losses, "MOST_LOGITS", 6 * 128)
    x, weight, bias = (each.requires_grad_() for each in (wide(6, 5), wide(300, 5), wide(300)))
    target = torch.tensor([0, 299, 128, -100, 127, 256])
    found = kernels.linear_cross_entropy(x, weight, target, bias, reduction=reduction)
    logits = functional.linear(x, weight, bias)
    expected = functional.cross_entropy(logits, target, reduction=reduction)
    torch.testing.assert_close(found, expected, **CLOSE)
    for one, other in zip(
        torch.autograd.grad(found, (x, weight, bias)),
        torch.autograd.grad(expected, (x, weight, bias)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, **CLOSE)


def test_losses_of_no_rows_and_of_ignored_rows():
    weight = torch.randn(5, 3, requires_grad=True)
    none = torch.zeros(0, dtype=torch.int64)
    found = kernels.linear_cross_entropy(torch.zeros(0, 3), weight, none, reduction="sum")
    assert found == 0
    assert not torch.autograd.grad(found, weight)[0].any()
    ignored = torch.full((2,), -100)
    assert kernels.linear_cross_entropy(torch.ones(2, 3), weight, ignored).isnan()


def largest_allocation(function):
    """Bytes of the largest tensor that is made meanwhile, by torch's own record of memory."""
    with torch.profiler.profile(profile_memory=True) as profile:
        function()
    events = profile.profiler.kineto_results.events()
    return max(each.nbytes() for each in events if each.name() == "[memory]")


@pytest.mark.cpu_only("it reads the profile of the CPU's memory")
def test_logits_are_never_in_memory(monkeypatch):
    """A counter of the largest allocation, forward and backward; that of the unfused one counts."""
    rows, depth, classes = 512, 16, 8192
    monkeypatch.setattr(losses, "MOST_LOGITS", rows * 256)
    x = torch.randn(rows, depth, requires_grad=True)
    weight = torch.randn(classes, depth, requires_grad=True)
    target = torch.randint(0, classes, (rows,))

    def fused():
        kernels.linear_cross_entropy(x, weight, target).backward()

    def unfused():
        functional.cross_entropy(functional.linear(x, weight), target).backward()

    fused()  # compiles
    logits = rows * classes * 4
    assert largest_allocation(unfused) >= logits
    assert largest_allocation(fused) <= max(rows * 256, weight.numel()) * 4 <= logits // 16


NIGHTLY = [pytest.param(each, marks=pytest.mark.nightly) for each in (torch.float32, torch.float64)]


@pytest.mark.cpu_only("it has launches on the CPU compile for a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, *NIGHTLY])
def test_whole_tiles_compile_for_a_gpu(monkeypatch, dtype):
    """Of what a GPU has since sm_80: shared memory, and units for products of 16-bit floats."""
    found = []
    monkeypatch.setattr(driver, "run_on_cpu", compiling_for_a_gpu(found))
    monkeypatch.setitem(products.TILES, "cpu", products.TILES["cuda"])
    x, weight = torch.zeros(128, 128, dtype=dtype), torch.zeros(128, 128, dtype=dtype)
    kernels.layer_norm_linear_gelu_dropout(x, None, None, weight, seed=1)
    kernels.linear(x, weight, weight[0], "silu")
    kernels.linear_cross_entropy(x, weight, torch.zeros(128, dtype=torch.int64))
    assert len(found) == 4
    for kernel in found[1:]:
        assert kernel.metadata.shared <= 99 * 1024
        assert dtype != torch.bfloat16 or "wgmma.mma_async" in kernel.asm["ptx"]


@pytest.fixture
def as_on_cuda(monkeypatch):
    """Products of 16 bits are torch's, as on CUDA; gives how often each of torch's is called."""
    calls = {"wide": 0}

    def wide_product(added, a, b, dtype, *, beta, out):
        calls["wide"] += 1
        out.copy_(a.to(dtype) @ b.to(dtype) + (added if beta else 0))

    for module in (products, norm_linear):
        monkeypatch.setattr(module, "is_cublas", lambda x: x.element_size() == 2)
    monkeypatch.setattr(products, "WIDE_PRODUCT", wide_product)
    return calls


WITH_PRODUCTS = [
    case
    for case in CASES
    if case.name.startswith(("matmul", "linear", "layer_norm_linear", "swiglu_mlp"))
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("case", WITH_PRODUCTS, ids=lambda case: case.name)
def test_products_of_16_bits_by_torchs(case, dtype, as_on_cuda):
    for number, shape in enumerate((*case.sizes, *case.long)):
        torch.manual_seed(number)
        compare(case, case.tensors(shape, dtype), dtype)
    assert bool(as_on_cuda["wide"]) == ("cross" in case.name and dtype != torch.float32)


def test_torchs_products_take_given_types_under_autocast(as_on_cuda):
    x = torch.randn(6, 8, dtype=torch.float16, requires_grad=True)
    weight, bias = torch.randn(5, 8, dtype=torch.float16), torch.randn(5, dtype=torch.float16)
    ones = torch.ones(8, dtype=torch.float16)
    with torch.autocast("cpu", torch.bfloat16):
        made = [
            kernels.linear(x, weight, bias, "gelu"),
            kernels.matmul(x, weight.t()),
            kernels.matmul(x.expand(2, 6, 8), weight.t().expand(2, 8, 5)),
            kernels.layer_norm_linear(x, ones, None, weight, bias),
        ]
    for result in made:
        assert result.dtype == torch.float16
        torch.autograd.grad(result.sum(), x)


def test_gradients_that_may_be_differentiated_again_are_the_same(as_on_cuda):
    """`create_graph` has gradients computed while operations are recorded."""
    x = torch.randn(8, 16).bfloat16().requires_grad_()
    weight, labels = torch.randn(300, 16).bfloat16().requires_grad_(), torch.arange(8)
    found = [
        torch.autograd.grad(
            kernels.linear_cross_entropy(x, weight, labels), (x, weight), create_graph=create_graph
        )
        for create_graph in (False, True)
    ]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_what_is_dropped_is_the_same_by_torchs_products(monkeypatch):
    x, gamma = torch.randn(33, 70).bfloat16(), torch.ones(70).bfloat16()
    weight = (torch.randn(90, 70) / 9).bfloat16()

    def dropped():
        return kernels.layer_norm_linear_gelu_dropout(x, gamma, None, weight, p=0.3, seed=7) == 0

    expected = dropped()
    for module in (products, norm_linear):
        monkeypatch.setattr(module, "is_cublas", lambda x: x.element_size() == 2)
    # what is 0 without being dropped may round to it in one of both alone
    assert (expected != dropped()).sum() <= 2
