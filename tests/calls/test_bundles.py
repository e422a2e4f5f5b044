"""Bundles of models that call Triton kernels of their own, against eager torch."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc import kernels  # noqa: E402
from aotc.aot.capture.spec import load_spec  # noqa: E402
from aotc.runtime import load  # noqa: E402

SPEC = __file__.replace("test_bundles", "kernels_of_user")
OUTPUTS = (
    "scaled",
    "softmax",
    "largest",
    "sums",
    "changed",
    "changed_twice",
    "blend",
    "gate",
    "gate_of_halves",
    "scaled_halves",
)
pytestmark = [pytest.mark.torch, pytest.mark.triton]


@pytest.fixture(scope="module")
def user_model(kernel_bundle):
    return load_spec(SPEC).module


def inputs(seed):
    return torch.randn(23, 70, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def eager(user_model):
    with torch.no_grad(), kernels.on_cpu():
        return {seed: user_model(inputs(seed)) for seed in range(4)}


@pytest.mark.parametrize("name", OUTPUTS)
def test_each_way_to_call_a_kernel_gives_eager_numbers(kernel_bundle, eager, name):
    with load(kernel_bundle, device="cpu") as program:
        for seed, expected in eager.items():  # a second call starts from memory as it was
            found = program(inputs(seed))[name]
            assert (found.dtype, found.shape) == (expected[name].dtype, expected[name].shape)
            torch.testing.assert_close(found, expected[name], rtol=1e-5, atol=1e-5)


def test_several_threads_call_at_once(kernel_bundle, eager):
    with load(kernel_bundle, device="cpu") as program, ThreadPoolExecutor(4) as pool:
        for seed, found in zip(eager, pool.map(lambda s: program(inputs(s)), eager), strict=True):
            for name in OUTPUTS:
                torch.testing.assert_close(found[name], eager[seed][name], rtol=1e-5, atol=1e-5)


def test_both_targets_run_the_users_kernels_by_their_names(kernel_bundle, aotc):
    code, text, errors = aotc("inspect", kernel_bundle, "--kernels")
    assert code == 0, errors
    for name in ("scale_add", "statistics", "normalize", "buckets", "accumulate", "gated"):
        assert name in text
    sources = {path.name for path in (kernel_bundle / "sources").iterdir()}
    assert {"cpu-x86-64-v4.json", "cuda-sm_90.json"} & sources
    assert any(name.startswith("buckets-") for name in sources)


def test_tuning_measures_the_configs_of_an_autotuned_kernel(kernel_bundle, cache, aotc, tmp_path):
    record = tmp_path / "record.txt"
    options = ["--tune", "quick", "--record", record, "--quiet", "--cache-dir", cache]
    code, _, errors = aotc("build", SPEC, "-o", tmp_path / "tuned", "--target", "cpu", *options)
    assert code == 0, errors
    assert "IS_SQUARED=1" in record.read_text()
    assert load(tmp_path / "tuned", device="cpu")(inputs(0))["sums"].shape == (5,)


GRIDS = """
import torch, triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

@triton.jit
def add_one(x_ptr):
    at = x_ptr + tl.program_id(0)
    tl.store(at, tl.load(at) + 1)

@triton_op("aotc_tests::add_ones", mutates_args={})
def add_ones(x: torch.Tensor, count: int) -> torch.Tensor:
    out = x.clone()
    wrap_triton(add_one)[(count,)](out)
    return out

def model(x):
    return add_ones(x, 2), add_ones(x, 5), add_ones(x.reshape(2, 4), 3), add_ones(x.sin(), 2)

example_inputs = (torch.zeros(8),)
"""


def test_calls_that_differ_in_their_grid_alone_stay_apart(aotc, cache, tmp_path):
    path = tmp_path / "grids.py"
    path.write_text(GRIDS)
    out = tmp_path / "bundle"
    code, _, errors = aotc("build", path, "-o", out, "--quiet", "--cache-dir", cache)
    assert code == 0, errors
    with load(out) as program:
        found = program(torch.arange(8.0))
        again = program(torch.arange(8.0))
    ones = [(torch.arange(8) < count).float() for count in (2, 5, 3, 2)]
    base = torch.arange(8.0)
    expected = [
        base + ones[0],
        base + ones[1],
        (base + ones[2]).reshape(2, 4),
        base.sin() + ones[3],
    ]
    for one, two, wanted in zip(found, again, expected, strict=True):
        torch.testing.assert_close(one, wanted)
        torch.testing.assert_close(two, wanted)


def test_a_build_leaves_tritons_driver_as_it_was(kernel_bundle):
    from triton.runtime import driver

    assert type(driver._active).__name__ != "CpuDriver"
    assert "aotc.kernels.driver" in sys.modules


def test_kernels_of_the_users_run_at_all_sizes_of_a_dim(cache, tmp_path):
    from aotc import aot

    user_model = load_spec(SPEC).module  # ops of a file that was loaded again are the last one's
    rows = torch.export.Dim("rows", min=4, max=29)  # it reads row 3, and 2,048 elements
    targets = ["cpu", "cuda:sm_90"]
    where = {"cache_dir": str(cache), "targets": targets}
    aot.build(user_model, (inputs(0),), tmp_path / "b", dynamic_shapes=({0: rows},), **where)
    with load(tmp_path / "b", device="cpu") as program:
        for count in (23, 4, 29, 5, 23):
            x = torch.randn(count, 70, generator=torch.Generator().manual_seed(count))
            with torch.no_grad(), kernels.on_cpu():
                expected = user_model(x)
            for name, found in program(x).items():
                torch.testing.assert_close(found, expected[name], rtol=1e-5, atol=1e-5, msg=name)
