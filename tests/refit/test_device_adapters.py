"""LoRA adapters added on a device: a fake CUDA driver, with the kernel's arithmetic in numpy."""

import ctypes
import json
import struct

import numpy
import pytest
import torch
from fake_cuda import install
from rounding import product
from safetensors.torch import save_file

from aotc import runtime
from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import build
from aotc.runtime.bundle.placement import PLACEMENT_NAME, Placement
from aotc.runtime.programs.device_weights import _joined

SPEC = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(24, 40, bias=False), nn.Linear(24, 16, bias=False)
        self.gate, self.up = (nn.Linear(24, 32, bias=False) for _ in range(2))
        self.down = nn.Linear(32, 24, bias=False)
        self.norm = nn.RMSNorm(24)  # stored as f32
        self.turned = nn.Parameter(torch.randn(24, 24))  # [in, out]

    def forward(self, x):
        y = torch.cat((self.q(x), self.k(x)), -1)
        x = self.norm(x)
        z = self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return y, z @ self.turned

torch.manual_seed(0)
model = Model().to(torch.{dtype}).eval()
example_inputs = (torch.randn(6, 24, dtype=torch.{dtype}),)
"""
MODULES = ("q", "k", "gate", "up", "down")


@pytest.fixture(scope="module")
def bundle(cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("device")
    (folder / "model.py").write_text(SPEC.format(dtype="bfloat16"))
    options = BuildOptions(cache, adapters=True)
    build(str(folder / "model.py"), folder / "out", ["cuda:sm_90"], options)
    return folder / "out"


@pytest.fixture
def program(bundle, cuda):
    """On a double of the driver that computes sums."""
    data = (bundle / PLACEMENT_NAME).read_bytes()
    for code in Placement.from_bytes(data).sums:
        cuda.kernels[code.symbol] = sums(code)
    program = runtime.load(bundle)
    yield program
    program.close()
    assert cuda.live() == {}


@pytest.fixture
def cuda(monkeypatch):
    from fake_cuda import FakeCuda

    fake = install(monkeypatch, FakeCuda())
    yield fake
    fake.check()


def sums(code):
    """The kernel of the template in numpy, for all programs at once."""

    def run(memory, grid, values):
        weight, left, right, left_bits, right_bits, start, m, n, r, *strides = values[:-2]
        row, left_row, left_rank, right_rank, right_column = strides
        assert grid == (-(-m // code.rows), -(-n // code.columns), 1)
        scales = [
            struct.unpack("<f", struct.pack("<i", each))[0] for each in (left_bits, right_bits)
        ]

        def at(address, offsets, kind):
            size = 4 if kind == "f32" else 2
            first, last = int(offsets.min()), int(offsets.max())
            view = memory(address + first * size, (last - first + 1) * size)
            return view, offsets - first

        def widened(address, offsets):
            view, places = at(address, offsets, code.factors)
            return wide(view, code.factors)[places]

        rows, columns, ranks = (numpy.arange(each) for each in (m, n, r))
        a = widened(left, rows[:, None] * left_row + ranks * left_rank)
        b = widened(right, ranks[:, None] * right_rank + columns * right_column)
        total = product(a * numpy.float32(scales[0]), b * numpy.float32(scales[1]))
        view, places = at(weight, start + rows[:, None] * row + columns, code.dtype)
        old = wide(view, code.dtype)[places]
        new = torch.from_numpy(old + total).to(torch.bfloat16).view(torch.int16).numpy()
        numpy.frombuffer(view, numpy.int16)[places] = new

    return run


def wide(view, kind):
    """The elements as f32."""
    if kind == "f32":
        return numpy.frombuffer(view, numpy.float32)
    raw = torch.frombuffer(
        bytearray(view), dtype={"bf16": torch.bfloat16, "f16": torch.float16}[kind]
    )
    return raw.float().numpy()


def adapter(folder, dtype=torch.float32, rank=5, scale=1.0, **config):
    """An adapter's folder, and the parameters that it makes of a bundle's own."""
    folder.mkdir()
    torch.manual_seed(rank)
    shapes = {"q": (40, 24), "k": (16, 24), "gate": (32, 24), "up": (32, 24), "down": (24, 32)}
    tensors, change = {}, {}
    for name, (rows, inner) in shapes.items():
        a, b = torch.randn(rank, inner).to(dtype), torch.randn(rows, rank).to(dtype)
        tensors[f"base_model.model.{name}.lora_A.weight"] = a
        tensors[f"base_model.model.{name}.lora_B.weight"] = b
        factor = numpy.float32(scale * 8 / rank)
        change[f"{name}.weight"] = product(b.float().numpy() * factor, a.float().numpy())
    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "lora_alpha": 8, "r": rank, **config})
    )
    save_file(tensors, folder / "adapter_model.safetensors")
    return change


def state(folder):
    from aotc.aot.capture.spec import load_spec

    return dict(load_spec(str(folder.parent / "model.py")).module.state_dict())


def merged(weights, change):
    return {
        name: torch.from_numpy(value.float().numpy() + change[name]).to(value.dtype)
        if name in change
        else value
        for name, value in weights.items()
    }


def on_device(program):
    """The bytes of all weights where kernels read them."""
    executable, spans = program._loaded.executable, program._loaded.spans
    return {
        name: ctypes.string_at(address, spans[name][1])
        for name, address in executable.weights.items()
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_device_adds_adapters_to_what_it_has(bundle, program, cuda, tmp_path, dtype):
    own = on_device(program)
    before = cuda.calls["cuMemcpyDtoH_v2"]
    change = adapter(tmp_path / "one", dtype)
    program.apply_lora(tmp_path / "one")
    launched = [row for row in cuda.launches if row.symbol in cuda.kernels]
    assert len(launched) == len(MODULES)
    assert cuda.calls["cuMemcpyDtoH_v2"] == before
    found = on_device(program)
    program.load_weights(merged(state(bundle), change))
    assert found == on_device(program) != own
    program.reset_weights()
    assert on_device(program) == own


def test_adapters_add_up_and_what_the_host_adds_follows(bundle, program, tmp_path, monkeypatch):
    from aotc.runtime.programs.device_weights import DeviceSums

    one, two = adapter(tmp_path / "one", rank=3, scale=0.5), adapter(tmp_path / "two", rank=20)
    program.apply_lora(tmp_path / "one", 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(DeviceSums, "of", classmethod(lambda *_: None))
        program.apply_lora(tmp_path / "two")
    found = on_device(program)
    program.load_weights(merged(merged(state(bundle), one), two))
    assert found == on_device(program)
    program.apply_lora(tmp_path / "one", 0.5)
    program.apply_lora(tmp_path / "two", 0.0)
    assert on_device(program) != found


def test_without_room_for_the_sums_the_host_adds(bundle, program, cuda, tmp_path):
    change = adapter(tmp_path / "one")
    launches = len(cuda.launches)
    cuda.fail("cuMemAlloc_v2", 2)
    program.apply_lora(tmp_path / "one")
    assert len(cuda.launches) == launches
    found = on_device(program)
    program.load_weights(merged(state(bundle), change))
    assert found == on_device(program)


def test_parameters_are_copied_into_the_rows_of_tensors(bundle, program, cuda, tmp_path):
    torch.manual_seed(5)
    weights = {name: torch.randn_like(value) for name, value in state(bundle).items()}
    save_file(weights, tmp_path / "new.safetensors")
    program.load_weights(tmp_path / "new.safetensors")
    found = on_device(program)
    assert cuda.calls["cuMemcpy2DAsync_v2"] > 0
    program.reset_weights()
    program._weights._load_on_device = lambda *_: False
    program.load_weights(weights)
    assert found == on_device(program)
    del program._weights._load_on_device
    program.load_weights(state(bundle))
    program.load_weights(weights)
    assert found == on_device(program)


@pytest.mark.parametrize("name", ["cuLaunchKernel", "cuModuleLoadData", "cuMemcpyDtoDAsync_v2"])
def test_a_call_of_the_driver_that_fails_changes_nothing(program, cuda, tmp_path, name):
    from aotc.runtime.errors import DriverFault

    own = on_device(program)
    adapter(tmp_path / "one")
    cuda.fail(name, 1, nth=2 if name == "cuLaunchKernel" else 1)
    with pytest.raises(DriverFault):
        program.apply_lora(tmp_path / "one")
    assert on_device(program) == own


@pytest.mark.parametrize(
    ("tensors", "runs"),
    [
        ({4096: 512, 4608: 256, 4864: 64}, {4096: 832}),  # beside each other
        ({4864: 64, 4096: 512, 4608: 256}, {4096: 832}),  # in whatever order
        ({4096: 500, 4608: 100}, {4096: 612}),  # a gap up to the next multiple
        ({4096: 512, 5120: 256}, {4096: 512, 5120: 256}),  # a wide gap
        ({4096: 500, 4596: 100}, {4096: 500, 4596: 100}),  # begins at no multiple of the run's
        ({4100: 256, 4356: 8}, {4100: 264}),
    ],
)
def test_factors_that_lie_together_are_copied_together(tensors, runs):
    assert _joined(tensors) == runs
