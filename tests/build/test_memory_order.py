"""Inputs and outputs in the order of memory that the example's and the model's own have."""

import json
import random

import pytest

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

from aotc.runtime import load  # noqa: E402
from aotc.runtime.errors import InputNotContiguous, OutputUnusable  # noqa: E402
from aotc.runtime.serving.batcher import Batcher  # noqa: E402

LAST, LAST_3D = (0, 2, 3, 1), (0, 2, 3, 4, 1)

# Shapes, element types and orders drawn by a seed; each output is its input, changed alone.
DRAWN = """
import random

import torch

TYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")


def tensor(draw, place):
    rank = draw.randrange(2, 6)
    shape = [draw.randrange(1, 5) for _ in range(rank)]
    order = draw.sample(range(rank), rank)
    if place % 3 == 0 and rank > 3:
        order = [0, *range(2, rank), 1]
    data = torch.randint(0, 2 if place % 8 == 7 else 90, [shape[axis] for axis in order])
    data = data.to(getattr(torch, TYPES[place % 8]))
    return data.permute([order.index(axis) for axis in range(rank)])


def example_inputs(seed=SEED):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    return ([tensor(draw, place) for place in range(24)],)


def model(xs):
    return [~x if x.dtype == torch.bool else x + 3 for x in xs]
"""

NET = """
import torch
from torch import nn

from aotc.aot import EntryPoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.last = nn.Conv2d(16, 8, 1)
        self.register_buffer("seen", torch.zeros(1, 8, 1, 1))

    def forward(self, x):
        return self.last(self.first(x).relu())

    def planes(self, x, bias):
        y = self.forward(x)
        return {"y": y + bias, "mean": y.mean((2, 3)), "rows": x.transpose(2, 3) * 2}

    def running(self, x):
        self.seen.add_(x.mean((2, 3), keepdim=True).repeat(1, 3, 1, 1)[:, :8].sum(0, keepdim=True))
        return x - self.seen[:, :3]


torch.manual_seed(0)
model = Net().eval().to(memory_format=torch.channels_last)
x = torch.randn(2, 3, 9, 12).to(memory_format=torch.channels_last)
batch = torch.export.Dim("batch", min=1, max=8)
entry_points = {
    "forward": EntryPoint((x,), ({0: batch},)),
    "planes": EntryPoint((x, torch.randn(8, 1, 1))),
    "running": EntryPoint((x,)),
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory, cache):
    """A function that builds a model's text for targets; gives the module and the bundle."""
    from aotc.aot.cli.program import run

    folder = tmp_path_factory.mktemp("memory_order")

    def build(name, text, *targets):
        path, bundle = folder / f"{name}.py", folder / name
        if not bundle.exists():
            path.write_text(text)
            words = ["build", path, "-o", bundle, "--quiet", "--cache-dir", cache]
            words += [word for target in targets for word in ("--target", target)]
            assert run([str(word) for word in words]) == 0
        module = {}
        exec(text, module)
        return module, bundle

    return build


class Lender:
    """An array that knows nothing but DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **named):
        return self.tensor.__dlpack__(**named)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def relaid(tensor, draw):
    """The same elements in memory of another order, with gaps now and then."""
    order = draw.sample(range(tensor.dim()), tensor.dim())
    moved = tensor.permute(order).contiguous()
    if draw.random() < 0.3:
        moved = moved.repeat_interleave(2, dim=-1)[..., ::2]
    return moved.permute([order.index(axis) for axis in range(tensor.dim())])


def is_channels_last(tensor):
    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return (
        form is not None and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=form)
    )


@pytest.mark.parametrize("seed", range(3))
def test_drawn_orders(built, seed):
    module, bundle = built(f"drawn{seed}", DRAWN.replace("SEED", str(seed)))
    (examples,) = module["example_inputs"]()
    draw = random.Random(seed)
    with load(bundle) as program:
        for spec, example in zip(program.inputs, examples, strict=True):
            order = spec.order or tuple(range(example.dim()))
            assert example.permute(order).is_contiguous()
            assert bool(spec.order) == (not example.is_contiguous())
        assert sum(bool(spec.order) for spec in program.inputs) > 5
        # As the example lies, nothing is copied.
        bound = program.bind(examples)
        bound()
        rows = [examples, *([relaid(each, draw) for each in examples] for _ in range(3))]
        for xs in rows:
            expected = module["model"](examples)
            found = program(xs)
            for spec, one, other in zip(program.outputs, found, expected, strict=True):
                assert torch.equal(one, other)
                assert is_channels_last(one) == bool(spec.order)
                assert bool(spec.order) == is_channels_last(other)
                assert spec.order or one.is_contiguous()
            for kind in (Lender, lambda x: x if x.dtype == torch.bfloat16 else x.numpy()):
                other = program([kind(x) for x in xs])
                for one, want in zip(other, expected, strict=True):
                    assert torch.equal(as_tensor(one, want.dtype), want)


def as_tensor(array, dtype):
    """An array of any kind; numpy's have the bits of bf16."""
    tensor = torch.from_dlpack(array)
    return tensor.view(dtype) if tensor.dtype == torch.uint16 else tensor


def test_a_net_of_several_entry_points_and_dynamic_batch(built):
    module, bundle = built("net", NET)
    net, example = module["model"], module["x"]
    with load(bundle) as program, torch.no_grad():
        forward, planes = program["forward"], program["planes"]
        assert [spec.order for spec in (*forward.inputs, *forward.outputs)] == [LAST, LAST]
        assert [spec.order for spec in planes.inputs] == [LAST, ()]
        named = dict(zip((spec.name for spec in planes.outputs), planes.outputs, strict=True))
        assert {name: spec.order for name, spec in named.items()} == {
            "y": LAST, "mean": (), "rows": ()
        }  # fmt: skip
        for size in (1, 2, 5, 8):
            x = torch.randn(size, 3, 9, 12)
            for given in (x, x.to(memory_format=torch.channels_last), x[:, :, :, :]):
                found = forward(given)
                torch.testing.assert_close(found, net(x))
                assert found.is_contiguous(memory_format=torch.channels_last)
            numbers = forward(x.numpy())
            numpy.testing.assert_allclose(numbers, net(x).numpy(), rtol=1e-4, atol=1e-5)
            assert numbers.transpose(LAST).flags.c_contiguous
            plain = forward(memoryview(x.numpy()))
            assert plain.c_contiguous
            numpy.testing.assert_array_equal(numpy.asarray(plain), numbers)
        bias = torch.randn(8, 1, 1)
        found, expected = planes(example, bias), net.planes(example, bias)
        for name in expected:
            torch.testing.assert_close(found[name], expected[name])


def test_states_of_a_program_with_orders(built):
    module, bundle = built("net", NET)
    net = module["model"]
    with load(bundle) as program, torch.no_grad(), program.session() as session:
        for _ in range(3):
            x = torch.randn(2, 3, 9, 12)
            torch.testing.assert_close(session["running"](x), net.running(x))


def test_outputs_of_the_caller(built):
    module, bundle = built("net", NET)
    net, x = module["model"], module["x"]
    with load(bundle) as program, torch.no_grad():
        forward, expected = program["forward"], net(x)
        last = torch.empty_like(expected)
        plain, array = torch.empty(expected.shape), numpy.empty(expected.shape, "f4")
        flat = bytearray(expected.numel() * 4)
        for out in (last, plain, array, flat):
            assert forward(x, out=out) is out
        for found in (last, plain, torch.from_numpy(array)):
            torch.testing.assert_close(found, expected)
        numbers = torch.frombuffer(flat, dtype=torch.float32).reshape(expected.shape)
        torch.testing.assert_close(numbers, expected)
        other = torch.empty(expected.shape[::-1]).permute(3, 2, 1, 0)
        with pytest.raises(OutputUnusable, match=r"the order \[0, 2, 3, 1\]"):
            forward(x, out=other)
        for out in (last, plain, flat):  # the memory of both is read and written by each call
            given = x.clone(memory_format=torch.preserve_format)
            bound = forward.bind(given, out=out)
            given.mul_(2)
            bound()
            view = numbers if out is flat else out
            torch.testing.assert_close(view, net(2 * x))
        with pytest.raises(InputNotContiguous):
            forward.bind(x.contiguous())


def test_batches_are_joined(built):
    module, bundle = built("stateless", NET.replace('    "running": EntryPoint((x,)),\n', ""))
    net = module["model"]
    with load(bundle) as program, torch.no_grad():
        batcher = Batcher(program, max_batch=4, max_wait_ms=200, entry="forward")
        xs = [torch.randn(size, 3, 9, 12) for size in (1, 2, 1)]
        xs[1] = xs[1].to(memory_format=torch.channels_last)
        futures = [batcher.submit(x) for x in xs]
        for x, future in zip(xs, futures, strict=True):
            torch.testing.assert_close(future.result(), net(x))
        assert batcher.batches == 1
        batcher.close()


def test_a_graph_begins_with_a_view(built, capsys):
    """No target has a kernel that only transposes, and `aotc inspect` shows the orders."""
    from aotc.aot.cli.program import run

    text = NET[: NET.index("entry_points")] + "example_inputs = (x,)\n"
    _, bundle = built("targets", text, "cuda:sm_90", "cpu-x86-64-v3", "cpu")
    capsys.readouterr()
    assert run(["inspect", str(bundle), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    (entry,) = facts["entries"]
    assert [row["order"] for row in entry["inputs"] + entry["outputs"]] == [[*LAST], [*LAST]]
    assert "memory-order" in facts["features"]
    for target in facts["targets"]:
        names = [kernel["name"] for kernel in target["kernels"]]
        assert names
        assert not any("permute" in name or "copy" in name for name in names), names
    assert run(["inspect", str(bundle)]) == 0
    assert "f32[2, 3, 9, 12] in memory order [0, 2, 3, 1]" in capsys.readouterr().out


def test_retuned_bundles_keep_their_orders(built, tmp_path, cache):
    from aotc.aot.cli.program import run

    module, bundle = built("net", NET)
    out = tmp_path / "tuned"
    words = ["tune", bundle, "-o", out, "--quiet", "--tune-budget", 2, "--cache-dir", cache]
    assert run([str(word) for word in words]) == 0
    x = module["x"]
    with load(out) as program, torch.no_grad():
        assert program["forward"].inputs[0].order == LAST
        torch.testing.assert_close(program["forward"](x), module["model"](x))
