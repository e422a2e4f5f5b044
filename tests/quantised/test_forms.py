"""Quantised weights in the forms in which models have them: right numbers, and stored small."""

from __future__ import annotations

import numpy
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines the ops
from torch import nn

from aotc.aot.capture.capture import capture
from aotc.aot.capture.spec import spec_of
from aotc.aot.errors import OpsUnsupported
from aotc.aot.ir.graph import Graph
from aotc.aot.ir.reference import interpret
from aotc.aot.lower.matmul.decoding import decoding_of
from aotc.aot.lower.matmul.operands import product_of
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

N, K, GROUP = 192, 256, 32
TARGETS = {"cpu": CPU, "cuda": GPUS[90]}


class Form(nn.Module):
    """A product with weights in one form; `parts` are what it stores."""

    def __init__(self, **parts: torch.Tensor) -> None:
        super().__init__()
        for name, tensor in parts.items():
            self.register_buffer(name, tensor)


def _weight() -> torch.Tensor:
    return torch.randn(N, K)


def _int8() -> tuple[torch.Tensor, torch.Tensor]:
    weight = _weight()
    scale = weight.abs().amax(1) / 127
    return torch.round(weight / scale[:, None]).to(torch.int8), scale


class ScaledColumns(Form):
    def __init__(self) -> None:
        q, scale = _int8()
        super().__init__(q=q, scale=scale)

    def forward(self, x):
        return torch.mm(x, self.q.t().to(x.dtype)) * self.scale


class PerTensor(Form):
    def __init__(self) -> None:
        super().__init__(q=torch.randint(0, 256, (N, K), dtype=torch.uint8))

    def forward(self, x):
        ops = torch.ops.quantized_decomposed
        given = ops.quantize_per_tensor.default(x, 0.05, 3, -128, 127, torch.int8)
        x = ops.dequantize_per_tensor.default(given, 0.05, 3, -128, 127, torch.int8)
        weight = ops.dequantize_per_tensor.default(self.q, 0.02, 128, 0, 255, torch.uint8)
        return nn.functional.linear(x, weight)


class PerChannel(Form):
    def __init__(self) -> None:
        q, scale = _int8()
        super().__init__(q=q, scale=scale, zero=torch.zeros(N, dtype=torch.int64))

    def forward(self, x):
        ops = torch.ops.quantized_decomposed
        weight = ops.dequantize_per_channel.default(
            self.q, self.scale, self.zero, 0, -128, 127, torch.int8
        )
        return nn.functional.linear(x, weight)


class PerGroup(Form):
    def __init__(self) -> None:
        shape = (N, K // GROUP)
        super().__init__(
            q=torch.randint(-8, 8, (N, K), dtype=torch.int8),
            scale=torch.rand(shape) + 0.1,
            zero=torch.randint(-2, 3, shape, dtype=torch.int32),
        )

    def forward(self, x):
        weight = torch.ops.quantized_decomposed.dequantize_per_channel_group.default(
            self.q, self.scale, self.zero, -8, 7, torch.int8, GROUP, torch.float32
        )
        return nn.functional.linear(x, weight)


class DynamicPerTensor(PerChannel):
    def forward(self, x):
        ops = torch.ops.quantized_decomposed
        scale, zero = ops.choose_qparams.tensor(x, -128, 127, 1e-6, torch.int8)
        x = ops.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
        x = ops.dequantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
        return super().forward(x)


class DynamicPerToken(PerChannel):
    def forward(self, x):
        ops = torch.ops.quantized_decomposed
        scale, zero = ops.choose_qparams_per_token_asymmetric.default(x, torch.int8)
        x = ops.quantize_per_token.default(x, scale, zero, -128, 127, torch.int8)
        x = ops.dequantize_per_token.default(x, scale, zero, -128, 127, torch.int8, torch.float32)
        return super().forward(x)


class IntegerProduct(ScaledColumns):
    def forward(self, x):
        scale = x.abs().amax(1, keepdim=True) / 127
        given = torch.round(x / scale).to(torch.int8)
        return torch._int_mm(given, self.q.t()).to(x.dtype) * scale * self.scale


class Int8Pack(ScaledColumns):
    def forward(self, x):
        return torch.ops.aten._weight_int8pack_mm.default(x, self.q, self.scale)


class Nibbles(Form):
    def __init__(self) -> None:
        super().__init__(
            q=torch.randint(0, 256, (N, K // 2), dtype=torch.uint8),
            scale=torch.rand(N, K // GROUP, 1) + 0.1,
        )

    def forward(self, x):
        q = torch.stack([self.q & 15, self.q >> 4], -1).to(torch.int8) - 8
        groups = q.reshape(N, K // GROUP, GROUP).to(x.dtype)
        return nn.functional.linear(x, (groups * self.scale).reshape(N, K))


class Float8Weight(Form):
    kind = torch.float8_e4m3fn

    def __init__(self) -> None:
        weight = _weight()
        scale = weight.abs().amax(1, keepdim=True) / torch.finfo(self.kind).max
        super().__init__(q=(weight / scale).to(self.kind), scale=scale)

    def forward(self, x):
        weight = self.q.t().to(torch.float32) * self.scale.t()
        return x @ weight.to(x.dtype)


class Float8e5Weight(Float8Weight):
    kind = torch.float8_e5m2


class Float8Product(Float8Weight):
    def forward(self, x):
        scale = x.abs().amax(1, keepdim=True) / 448
        given = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        return torch._scaled_mm(given, self.q.t(), scale, self.scale.t(), out_dtype=torch.float32)


class Embedded(Form):
    def __init__(self) -> None:
        q, scale = _int8()
        super().__init__(q=q, scale=scale[:, None])

    def forward(self, x):
        rows = x[:, 0].abs().mul(10).long().remainder(N)
        return nn.functional.embedding(rows, self.q.float() * self.scale)


FORMS = (
    ScaledColumns, PerTensor, PerChannel, PerGroup, DynamicPerTensor, DynamicPerToken,
    IntegerProduct, Int8Pack, Nibbles, Float8Weight, Float8e5Weight, Float8Product, Embedded,
)  # fmt: skip


def _bytes(graph: Graph) -> int:
    return sum(each.type.nbytes for each in graph.constants.values())


@pytest.mark.parametrize("form", FORMS)
def test_forms_are_right_and_stored_as_small_as_they_come(form) -> None:
    torch.manual_seed(7)
    model = form().eval()
    if form is Int8Pack:
        model = model.to(torch.bfloat16)
        model.q = model.q.to(torch.int8)
    x = torch.randn(32, K).to(torch.bfloat16 if form is Int8Pack else torch.float32)
    stored = sum(each.nbytes for each in model.buffers())
    with torch.no_grad():
        expected = model(x).double().numpy()
    captured = capture(spec_of(model, (x,)))
    for traits in TARGETS.values():
        graph, _log = rewrite(captured.graph, traits)
        assert _bytes(graph) <= 1.1 * stored + 64
        (found,) = interpret(graph, captured.golden_inputs)
        if found.dtype == numpy.uint16:
            found = (found.astype(numpy.uint32) << 16).view(numpy.float32)
        tolerance = 2e-2 if form is Int8Pack else 2e-5
        assert numpy.abs(found - expected).max() <= tolerance * numpy.abs(expected).max()


@pytest.mark.parametrize("form", [form for form in FORMS if form is not Embedded])
def test_products_on_a_gpu_read_codes_however_a_model_widens_them(form) -> None:
    torch.manual_seed(7)
    dtype = torch.bfloat16 if form is Int8Pack else torch.float32
    model = form().eval()
    if form is Int8Pack:
        model = model.to(dtype)
    graph, _log = rewrite(capture(spec_of(model, (torch.randn(2, K).to(dtype),))).graph, GPUS[90])
    products = [group for group in schedule(graph, GPUS[90]).groups if group.kind == "matmul"]
    assert products
    assert all(decoding_of(product_of(group), GPUS[90]) is not None for group in products)


def test_every_float8_is_widened_and_rounded_as_torch_does() -> None:
    class Round(nn.Module):
        def __init__(self, kind: torch.dtype) -> None:
            super().__init__()
            self.kind = kind
            self.register_buffer("all", torch.arange(256, dtype=torch.uint8).view(kind))

        def forward(self, x):
            return x.to(self.kind).float(), self.all.float() + 0 * x[:256]

    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(-(2**31), 2**31, (4096,), dtype=torch.int32, generator=generator)
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
        near = torch.arange(256, dtype=torch.uint8).view(kind).float()
        near = near[near.isfinite()]
        middles = (near.sort().values[1:] + near.sort().values[:-1]) / 2
        x = torch.cat([bits.view(torch.float32), near, middles, middles * (1 + 2**-20)])
        x = torch.where(x.isnan(), torch.zeros_like(x), x)
        model = Round(kind)
        captured = capture(spec_of(model, (x,)))
        graph, _log = rewrite(captured.graph, CPU)
        for found, expected in zip(interpret(graph, captured.golden_inputs), model(x), strict=True):
            assert numpy.array_equal(found, expected.numpy(), equal_nan=True), kind


def test_a_class_that_is_not_known_is_refused_by_its_name() -> None:
    class Ternary(torch.Tensor):
        """Numbers that only its own `numpy` would widen."""

    model = nn.Linear(4, 4)
    model.weight = nn.Parameter(torch.randn(4, 4).as_subclass(Ternary), requires_grad=False)
    with pytest.raises(OpsUnsupported, match="Ternary"):
        capture(spec_of(model, (torch.randn(2, 4),)))


def test_torchao_weights_unwrapped_and_as_they_are() -> None:
    quantization = pytest.importorskip("torchao.quantization", reason="needs torchao")
    utils = pytest.importorskip("torchao.utils", reason="needs torchao")
    share = 0.55
    for config in (
        quantization.Int8WeightOnlyConfig(),
        quantization.Int8DynamicActivationInt8WeightConfig(),
        quantization.Float8WeightOnlyConfig(),
    ):
        for unwraps in (True, False):
            torch.manual_seed(3)
            layers = (nn.Linear(256, 256, bias=False), nn.GELU(), nn.Linear(256, 256, bias=False))
            model = nn.Sequential(*layers).to(torch.bfloat16).eval()
            whole = sum(each.nbytes for each in model.parameters())
            quantization.quantize_(model, config)
            if unwraps:
                utils.unwrap_tensor_subclass(model)
            captured = capture(spec_of(model, (torch.randn(4, 256, dtype=torch.bfloat16),)))
            for traits in TARGETS.values():
                graph, _log = rewrite(captured.graph, traits)
                assert _bytes(graph) <= share * whole, (config, unwraps)
