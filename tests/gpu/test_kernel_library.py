"""Functions of `aotc.kernels` over rows on a GPU: results and gradients against f64, on shapes
drawn around the borders of the tables that choose their tiles."""

import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kernel_cases import CASES, compare  # noqa: E402

from aotc import kernels  # noqa: E402

DRAWS = 16
MOST_ELEMENTS = 1 << 21
DTYPES = (torch.bfloat16, torch.float32, torch.float16)
KINDS = ("softmax", "norm", "cross_entropy")
OVER_ROWS = [
    case for case in CASES if any(kind in case.name for kind in KINDS) and "linear" not in case.name
]


def shape_of(case, drawn):
    """Rows near a power of two or anything, few or many of them; channels of images for group
    norms."""
    length = 2 ** drawn.randint(0, 16)
    length = max(1, drawn.choice((length, length + 1, length - 1, drawn.randint(1, 70_000))))
    count = drawn.choice((1, 2, 3, 33, 700))
    if "group" in case.name:
        channels = 2 * drawn.choice((1, 2, 3, 8, 20))
        count, length = min(count, 40), max(1, length // channels)
        count = max(1, min(count, MOST_ELEMENTS // (channels * length)))
        return (count, channels, length)
    count = max(1, min(count, MOST_ELEMENTS // length))
    if "channels" in case.name:
        return (2, length, min(count, 40))
    return (count, max(2, length))


@pytest.mark.parametrize("number", range(DRAWS))
@pytest.mark.parametrize("case", OVER_ROWS, ids=lambda case: case.name)
def test_rows_are_those_of_f64(case, number):
    drawn = random.Random(f"{case.name} {number}")
    torch.manual_seed(number)
    dtype = drawn.choice(DTYPES)
    shape = shape_of(case, drawn)
    compare(case, [each.cuda() for each in case.tensors(shape, dtype)], dtype)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_in_a_graph_of_cuda_is_that_of_each_replay(reduction):
    """The kernel that adds up losses is launched early; it waits for those before it."""
    x = torch.randn(3000, 1000, device="cuda", dtype=torch.bfloat16)
    labels = torch.arange(3000, device="cuda") % 1000
    kernels.cross_entropy(x, labels, reduction=reduction)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = kernels.cross_entropy(x, labels, reduction=reduction)
    for _ in range(50):
        x.normal_()
        graph.replay()
        expected = torch.nn.functional.cross_entropy(x.double(), labels, reduction=reduction)
        torch.testing.assert_close(loss.double(), expected, rtol=2**-7, atol=0)
