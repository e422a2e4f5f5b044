"""The functions of `aotc.kernels`: numbers and gradients against f64, in every type and layout, by
themselves, behind torch.compile, torch.export and `aotc build`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from kernel_cases import CASES, EPSILON, Net, assert_near, compare  # noqa: E402

from aotc import kernels  # noqa: E402
from aotc.aot.errors import (  # noqa: E402
    KernelDimInvalid,
    KernelDtypeUnsupported,
    KernelShapeInvalid,
    KernelTargetInvalid,
    KernelValueInvalid,
)
from aotc.runtime import load  # noqa: E402
from aotc.runtime.errors import AotcError  # noqa: E402

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
"""In turns over the small sizes; the nightly test takes all for each size."""
SMALL = [
    pytest.param(case, shape, DTYPES[(number + place) % 3], id=f"{case.name}-{shape}")
    for number, case in enumerate(CASES)
    for place, shape in enumerate(case.sizes)
]
WIDE = [
    pytest.param(case, shape, dtype, id=f"{case.name}-{shape}-{dtype}")
    for case in CASES
    for shape in (*case.sizes, *case.long)
    for dtype in DTYPES
]


def check(case, shape, dtype):
    """Results and gradients of all arguments."""
    compare(case, case.tensors(shape, dtype), dtype)


@pytest.mark.parametrize(("case", "shape", "dtype"), SMALL)
def test_numbers_and_gradients(case, shape, dtype):
    torch.manual_seed(len(case.name) + sum(shape))
    check(case, shape, dtype)


def test_roundings_between_are_those_that_are_documented():
    """Of the norm's rows, whose rounding may weigh more than that of any result: on the CPU the
    first three draws were beyond the bound where the reference did not round them."""
    (case,) = [each for each in CASES if each.name == "layer_norm_linear_gelu_dropout"]
    for seed in (66, 122, 203, *range(300, 360)):
        torch.manual_seed(seed)
        check(case, (4, 7), torch.float16)


@pytest.mark.nightly
@pytest.mark.parametrize(("case", "shape", "dtype"), WIDE)
def test_numbers_and_gradients_of_all_types_and_sizes(case, shape, dtype):
    torch.manual_seed(len(case.name) + sum(shape))
    check(case, shape, dtype)


@pytest.mark.parametrize("case", [each for each in CASES if each.sizes], ids=lambda case: case.name)
def test_gradients_by_differences(case):
    torch.manual_seed(1)
    tensors = case.tensors(case.gradcheck, torch.float64)
    assert torch.autograd.gradcheck(case.ours, tensors)


@pytest.mark.parametrize("case", [each for each in CASES if each.sizes], ids=lambda case: case.name)
def test_any_strides_and_no_elements(case):
    torch.manual_seed(2)
    tensors = case.tensors(case.gradcheck, torch.float64, is_grad=False)
    x, rest = tensors[0], tensors[1:]
    wider = torch.randn(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
    views = [
        x.transpose(0, 1).contiguous().transpose(0, 1),
        wider.narrow(-1, 1, x.shape[-1]),  # rows with gaps
        wider[..., ::2],
        x[:1].expand(x.shape),
        x.flip(0)[1:2],
        x[:0],
    ]
    for view in views:
        others = [view if each.shape == x.shape else each for each in rest]
        view = view.detach().requires_grad_()
        found, expected = case.ours(view, *others), case.reference(view, *others)
        if case.name.startswith("attention") and view.stride(-1) == 1:
            assert found.stride() == torch.empty_like(view).stride()
        else:
            assert found.is_contiguous()
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
        gradient = torch.randn_like(expected)
        laid = gradient.mT.contiguous().mT if gradient.dim() > 1 else gradient
        for one, other in zip(
            torch.autograd.grad(found, view, laid),
            torch.autograd.grad(expected, view, gradient),
            strict=True,
        ):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_random_shapes_types_and_layouts(case):
    """Against f64, with dims of 1 among them, and arguments that are views of other tensors."""
    generator = random.Random(case.name)
    for number in range(12):
        torch.manual_seed(number)
        shape = [
            generator.choice((1, size, generator.randint(1, min(2 * size, 3000))))
            for size in generator.choice((*case.sizes, *case.long))
        ]
        for axis in case.even:
            shape[axis] += shape[axis] % 2
        dtype = generator.choice(DTYPES)
        tensors = case.tensors(shape, dtype, is_grad=False)
        order = generator.sample(range(len(shape)), len(shape))
        back = sorted(range(len(shape)), key=order.__getitem__)
        tensors[0] = tensors[0].permute(order).contiguous().permute(back)
        if generator.random() < 0.5 and shape:  # gaps between rows
            tensors[0] = torch.cat([tensors[0], tensors[0]], -1).narrow(-1, 0, shape[-1])
        compare(case, tensors, dtype)


def test_special_values_are_as_eagers():
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[1.0, -inf, 2], [-inf, -inf, -inf], [inf, 1, 2], [nan, 1, 2]])
    long = x.repeat_interleave(30000, 1)
    for data in (x, long):
        torch.testing.assert_close(kernels.softmax(data), torch.softmax(data, -1), equal_nan=True)
        found, expected = kernels.log_softmax(data), torch.log_softmax(data, -1)
        torch.testing.assert_close(found, expected, equal_nan=True)
    assert kernels.softmax(torch.tensor(3.0), 0) == 1


def test_wrong_arguments_raise_named_errors_of_eagers_types():
    x, whole = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.int64)
    with pytest.raises(KernelDtypeUnsupported, match=r"`softmax`: `x` is of type torch\.int64"):
        kernels.softmax(whole)
    with pytest.raises(NotImplementedError, match=r"`weight` is of type torch\.float16"):
        kernels.layer_norm(x, [3], torch.ones(3).half())
    with pytest.raises(KernelDimInvalid, match="`dim` is 2, expected a number from -2 to 1"):
        kernels.log_softmax(x, 2)
    with pytest.raises(IndexError):
        kernels.softmax(x, -3)
    with pytest.raises(KernelShapeInvalid, match=r"`x` has shape \[2, 3\]"):
        kernels.rms_norm(x, [4])
    with pytest.raises(RuntimeError, match=r"`bias` has shape \[2\], expected \[3\]"):
        kernels.layer_norm(x, [3], None, torch.ones(2))
    with pytest.raises(KernelValueInvalid, match="a divisor of the 3 channels"):
        kernels.group_norm(x, 2)
    with pytest.raises(RuntimeError):
        kernels.vector_add(x, torch.ones(2))
    with pytest.raises(AttributeError, match="no attribute `hardmax`"):
        kernels.hardmax  # noqa: B018


# Words of the hint → what is called with tensors of [2, 3] in f32 and i64.
HINTS = {
    "`help(aotc.kernels.rms_norm)`": lambda x, n: kernels.rms_norm(x, [4]),
    ".to(dtype)": lambda x, n: kernels.softmax(n),
    "backwards from -1": lambda x, n: kernels.softmax(x, 2),
    "`help(aotc.kernels.cross_entropy)`": lambda x, n: kernels.cross_entropy(x, n[:, 0], 0, "all"),
    "a row for every number": lambda x, n: kernels.embedding_bag(n + 5, x),
    "lengths.cumsum(0) - lengths": lambda x, n: kernels.embedding_bag(n[0], x, n[0]),
    "`ignore_index`": lambda x, n: kernels.cross_entropy(x, n[:, 0] + 7),
    "`aotc.kernels.attention_varlen`": lambda x, n: kernels.attention(x, x, x),
    "`aotc.kernels.attention`": lambda x, n: kernels.attention_varlen(x, x, x, n, n, 1, 1),
    "`.unsqueeze(0)`": lambda x, n: kernels.group_norm(x[0], 1),
    "outputs by inputs": lambda x, n: kernels.linear(x, x[0]),
    "`torch.nn.SiLU`": lambda x, n: kernels.SiLU(inplace=True),
    "an instance": lambda x, n: kernels.patch(torch.nn.Linear),
    "`skip=(name,)`": lambda x, n: kernels.patch(torch.nn.Linear(1, 1), skip="rope"),
    "before the first step": lambda x, n: kernels.adamw_step([x.T], [x.T], [x.T], [x.T], 1),
}


@pytest.mark.parametrize("words", HINTS)
def test_wrong_arguments_come_with_what_helps(words):
    with pytest.raises(AotcError) as caught:
        HINTS[words](torch.ones(2, 3), torch.ones(2, 3, dtype=torch.int64))
    assert words in caught.value.hint_text


def results(function, module, x):
    found, loss = function(x)
    whole = found.square().sum() + loss
    return [found, loss, *torch.autograd.grad(whole, list(module.parameters()))]


@pytest.fixture
def forgetful(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.getbasetemp() / "caches-of-kernels"
    monkeypatch.setenv("AOTC_CACHE_DIR", str(folder / "aotc"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "torch"))
    torch._dynamo.reset()
    torch.manual_seed(3)
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("eager", {}),
        pytest.param("aot_eager", {}, marks=pytest.mark.nightly),
        pytest.param("inductor", {}, marks=pytest.mark.nightly),
        ("aotc", {"options": {"fallback": "error"}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_compiled_modules_train(forgetful, backend, options):
    module, x = Net(), torch.randn(6, 24)
    expected = results(module, module, x)
    compiled = torch.compile(module, backend=backend, fullgraph=True, **options)
    for found, wanted in zip(results(compiled, module, x), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_dynamic_sizes_are_compiled_once(forgetful):
    def function(x, weight):
        x = kernels.layer_norm(kernels.gelu(x), [24], weight)
        x = kernels.dropout(kernels.swiglu(*x.chunk(2, -1)), 0.25, seed=5)
        targets = torch.arange(x.shape[0], device=x.device) % 12
        return kernels.softmax(x, 0), kernels.cross_entropy(x, targets)

    # What is checked on a GPU is left to torch.
    options = {"fallback": "error", "unchecked_indices": torch.get_default_device().type != "cpu"}
    compiled = torch.compile(
        function, backend="aotc", dynamic=True, fullgraph=True, options=options
    )
    weight = torch.randn(24)
    for rows in (3, 21):
        x = torch.randn(rows, 24)
        for found, expected in zip(compiled(x, weight), function(x, weight), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


SPEC = """
import torch
from kernel_cases import Net

def build_model():
    torch.manual_seed(3)
    return Net()

example_inputs = (torch.randn(6, 24),)
"""


@pytest.mark.cpu_only("its bundle is one for the CPU")
def test_a_bundle_computes_them_in_fused_kernels(tmp_path, aotc, cache):
    spec, out = tmp_path / "spec.py", tmp_path / "bundle"
    spec.write_text(SPEC)
    code, text, errors = aotc(
        "build", spec, "-o", out, "--json", "--quiet", "--cache-dir", cache, "--target", "cpu"
    )
    assert code == 0, errors
    assert json.loads(text)["kernels"] <= 9  # of some 24 operations in its source
    torch.manual_seed(3)
    module, x = Net(), torch.randn(6, 24)
    for found, expected in zip(load(out)(x), module(x), strict=True):
        torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", [each for each in CASES if each.sizes], ids=lambda case: case.name)
def test_torchs_own_checks_of_ops(case):
    """Schema, autograd, fake tensors, and AOTAutograd with dynamic shapes."""
    torch.manual_seed(4)
    calls = []

    class Noted(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            if op.namespace == "aotc":
                calls.append((op, args))
            return op(*args, **(kwargs or {}))

    tensors = case.tensors(case.gradcheck, torch.float32)
    with Noted():
        case.ours(*tensors).sum().backward()
    assert calls
    forward, backward = calls[0], calls[-1]
    given = [each.detach() if isinstance(each, torch.Tensor) else each for each in forward[1]]
    known = {each.data_ptr(): each for each in tensors if each.shape == forward[1][0].shape}
    given = [
        known.get(each.data_ptr(), each) if isinstance(each, torch.Tensor) else each
        for each in given
    ]
    torch.library.opcheck(forward[0], tuple(given))
    tests = ("test_schema", "test_faketensor")
    given = [each.detach() if isinstance(each, torch.Tensor) else each for each in backward[1]]
    torch.library.opcheck(backward[0], tuple(given), test_utils=tests)


SECOND = """
import sys
from concurrent.futures import ThreadPoolExecutor
from aotc import kernels
assert not {"torch", "triton"} & sys.modules.keys()
assert "softmax" in dir(kernels) and "softmax" in kernels.__all__
import torch, triton
compiled = []
triton.knobs.compilation.listener = lambda **named: compiled.append(named["cache_hit"])
x = torch.randn(3, 5, requires_grad=True)
kernels.softmax(x).sum().backward()
print(compiled)
"""


def test_a_second_process_compiles_nothing(tmp_path):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SECOND]
    for expected in ("[False, False]", "[True, True]"):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert done.stdout.strip() == expected


def test_dropout_is_a_function_of_its_seed():
    """The masks of the kernel and of its gradient are one; a fourth is 0."""
    torch.manual_seed(5)
    for count in (0, 1, 2047, 2049, 9000):
        x = torch.randn(count, requires_grad=True)
        found = kernels.dropout(x, 0.25, seed=77)
        (gradient,) = torch.autograd.grad(found.sum(), x)
        assert bool(((gradient == 0) | (gradient == torch.tensor(4 / 3))).all())
        torch.testing.assert_close(found, x * gradient)
        same = kernels.dropout(x.double(), 0.25, seed=77)
        assert torch.equal(same == 0, found == 0)
    share = float((kernels.dropout(torch.ones(200_000), 0.25, seed=1) == 0).float().mean())
    assert abs(share - 0.25) < 6 * (0.25 * 0.75 / 200_000) ** 0.5  # deviations of a count
    first, second = (kernels.dropout(torch.ones(99), seed=seed) for seed in (1, 1 << 40))
    assert not torch.equal(first, second)
    assert kernels.dropout(x, 0.5, training=False) is x
    assert not kernels.dropout(torch.ones(9), 1.0).any()
    assert torch.equal(kernels.dropout(torch.ones(9), 0.0), torch.ones(9))


def test_dropout_without_a_seed_draws_from_torchs_generator():
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(kernels.dropout(torch.ones(99)))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    with pytest.raises(ValueError, match=r"`p` is 1\.5, expected a number from 0 to 1"):
        kernels.dropout(torch.ones(3), 1.5)


@pytest.mark.cpu_only("on a GPU the loss of such a row is nan")
def test_targets_that_are_no_class_are_named():
    x = torch.randn(3, 4)
    for reduction in ("mean", "none"):
        with pytest.raises(KernelTargetInvalid, match="a target is 4, expected a number from 0"):
            kernels.cross_entropy(x, torch.tensor([0, 4, 1]), reduction=reduction)
        with pytest.raises(IndexError):
            kernels.cross_entropy(x, torch.tensor([-1, 1, 1]), reduction=reduction)


def test_cross_entropy_of_special_rows():
    """All rows ignored, infinite logits, no rows."""
    x, target = torch.randn(3, 4), torch.tensor([0, 3, -100])
    with pytest.raises(NotImplementedError, match=r"`target` is of type torch\.int32"):
        kernels.cross_entropy(x, target.int())
    assert kernels.cross_entropy(x, target - target - 100).isnan()
    for data in (x, x.masked_fill(x < 0, -float("inf")), x * 1e30, x[:0]):
        rows = target[: data.shape[0]]
        for reduction in ("mean", "sum", "none"):
            found = kernels.cross_entropy(data, rows, reduction=reduction)
            expected = torch.nn.functional.cross_entropy(data, rows, reduction=reduction)
            torch.testing.assert_close(found, expected, equal_nan=True)
    alone = kernels.cross_entropy(x[0], target[0], reduction="none")
    torch.testing.assert_close(alone, torch.nn.functional.cross_entropy(x[0], target[0]))


def test_norms_of_16_bits_take_weights_of_32(forgetful):
    """As training under autocast has them; with gradients of their own type."""
    torch.manual_seed(6)
    x = torch.randn(5, 48).bfloat16().requires_grad_()
    weight, bias = (torch.randn(48, requires_grad=True) for _ in range(2))
    wide = [each.detach().double().requires_grad_() for each in (x, weight, bias)]
    expected = torch.nn.functional.layer_norm(wide[0], [48], *wide[1:])
    gradients = torch.autograd.grad(expected.square().sum(), wide)
    compiled = torch.compile(
        kernels.layer_norm, backend="aotc", fullgraph=True, options={"fallback": "error"}
    )
    for function in (kernels.layer_norm, compiled):
        result = function(x, [48], weight, bias)
        assert_near(result.detach(), expected.detach(), torch.bfloat16, 48)
        found = torch.autograd.grad(result.double().square().sum(), (x, weight, bias))
        for one, other, dtype in zip(
            found, gradients, (x.dtype, *[torch.float32] * 2), strict=True
        ):
            # the gradient of the result is 2 y, y rounded to 16 bits
            assert one.dtype == dtype
            assert_near(
                one, other, dtype, 48, 8 * EPSILON[torch.bfloat16] * float(other.abs().max())
            )
    with pytest.raises(KernelDtypeUnsupported, match=r"expected torch\.bfloat16 or torch\.float32"):
        kernels.rms_norm(x, [48], weight.half())
    with pytest.raises(KernelDtypeUnsupported, match=r"`bias` is of type torch\.bfloat16"):
        kernels.group_norm(x.float(), 2, None, bias.bfloat16())


def test_threads_do_not_disturb_each_other():
    inputs = [torch.randn(50, 300) * (1 + number) for number in range(4)]
    expected = [kernels.softmax(x) for x in inputs]

    def repeat(place):
        return all(torch.equal(kernels.softmax(inputs[place]), expected[place]) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(repeat, range(4)))


@pytest.mark.cpu_only("it makes the CPU the active driver of Triton")
def test_tritons_active_driver_stays_what_it_is():
    """Also where a program has made the CPU the active one."""
    before = triton.runtime.driver._active
    kernels.softmax(torch.randn(3, 11))
    assert triton.runtime.driver._active is before
    with kernels.on_cpu():
        active = triton.runtime.driver.active
        kernels.softmax(torch.randn(3, 12))
        assert triton.runtime.driver.active is active
