"""Every convolution of ResNet-50 at batch 8: our kernels over their configs, and cuDNN.

`python -m benchmarks.gpu.convolution [--dtype bf16|f32|tf32] [--seconds S] [--all] [NAME …]`: for
each layer the fastest configs, cuDNN's convolution alone (in f32 without TF32) and with its
epilogue in torch (with TF32, torch's default), and the limit set by bytes and operations; at the
end the sums, each layer as often as the network has it. `tf32` is tensors of f32 whose products are
of TF32. Kernels are generated as a build would and compiled in parallel. A time is that of one
launch in a CUDA graph of many, each with weights from a buffer of its own: the median of several
replays.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy

from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, Node, make
from aotc.aot.ir.types import DTYPES, TensorType
from aotc.aot.lower.convolution.source import lower_convolution
from aotc.aot.lower.matmul.gpu_source import lower_matmul_gpu
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from benchmarks.gpu.kernel_timing import LAUNCHES, Binary, Device, compile_one

BATCH = 8
BYTES_PER_US, OPERATIONS_PER_US = 4.3e6, 790e6
# By precision: operations of one multiplication and addition, and the worst error of a result,
# relative to its largest number.
WORK, WORST = {"bf16": 2, "f32": 12, "tf32": 4}, {"bf16": 1e-2, "f32": 2e-6, "tf32": 5e-3}


@dataclass(frozen=True, slots=True)
class Layer:
    """One convolution with bias and what follows it; `count` times in the network."""

    name: str
    count: int
    inputs: int
    side: int
    size: int
    outputs: int
    stride: int = 1
    has_residual: bool = False
    has_relu: bool = True
    precision: str = "bf16"

    @property
    def dtype(self) -> str:
        """Element type in memory."""
        return "f32" if self.precision == "tf32" else self.precision

    @property
    def out_side(self) -> int:
        """Positions along each axis of the result."""
        return self.side // self.stride

    @property
    def rows(self) -> int:
        """Rows of the product."""
        return BATCH * self.out_side**2

    @property
    def limit_us(self) -> float:
        """Time that the bytes or the operations need at the least."""
        elements = BATCH * self.side**2 * self.inputs // (self.stride**2 if self.size == 1 else 1)
        elements += self.rows * self.outputs * (2 if self.has_residual else 1)
        elements += self.size**2 * self.inputs * self.outputs
        work = WORK[self.precision] * self.rows * self.outputs * self.inputs * self.size**2
        nbytes = DTYPES[self.dtype].itemsize_bytes * elements
        return max(nbytes / BYTES_PER_US, work / OPERATIONS_PER_US)


LAYERS: tuple[Layer, ...] = (
    Layer("2.middle", 3, 128, 28, 3, 128),
    Layer("3.middle", 5, 256, 14, 3, 256),
    Layer("4.middle", 2, 512, 7, 3, 512),
    Layer("1.middle", 3, 64, 56, 3, 64),
    Layer("3.expand", 6, 256, 14, 1, 1024, has_residual=True),
    Layer("3.reduce", 5, 1024, 14, 1, 256),
    Layer("2.expand", 4, 128, 28, 1, 512, has_residual=True),
    Layer("2.reduce", 3, 512, 28, 1, 128),
    Layer("1.expand", 3, 64, 56, 1, 256, has_residual=True),
    Layer("1.reduce", 2, 256, 56, 1, 64),
    Layer("4.expand", 3, 512, 7, 1, 2048, has_residual=True),
    Layer("4.reduce", 2, 2048, 7, 1, 512),
    Layer("2.first.middle", 1, 128, 56, 3, 128, 2),
    Layer("3.first.middle", 1, 256, 28, 3, 256, 2),
    Layer("4.first.middle", 1, 512, 14, 3, 512, 2),
    Layer("2.around", 1, 256, 56, 1, 512, 2, has_relu=False),
    Layer("3.around", 1, 512, 28, 1, 1024, 2, has_relu=False),
    Layer("4.around", 1, 1024, 14, 1, 2048, 2, has_relu=False),
    Layer("stem", 1, 3, 224, 7, 64, 2),
    Layer("1.around", 1, 64, 56, 1, 256, has_relu=False),
    Layer("1.first.reduce", 1, 64, 56, 1, 64),
    Layer("2.first.reduce", 1, 256, 56, 1, 128),
    Layer("3.first.reduce", 1, 512, 28, 1, 256),
    Layer("4.first.reduce", 1, 1024, 14, 1, 512),
)
STEM_WIDTH, STEM_CHANNELS = 230, 4  # the padded input


def _constant(name: str, dtype: str, *shape: int) -> Node:
    return build.constant(name, TensorType(dtype, shape))


def _windows(layer: Layer, data: Node) -> Node:
    """The rows of A."""
    if layer.size == 1 and layer.stride == 1:
        return build.reshape(data, (layer.rows, layer.inputs))
    margin = layer.size // 2
    sizes = (layer.size, layer.size)
    if layer.name != "stem":
        margins = (0, margin, margin, 0)
        data = build.pad(data, margins, margins, 0.0)
    attrs = {
        "axes": (1, 2),
        "sizes": sizes,
        "strides": (layer.stride, layer.stride),
        "dilations": (1, 1),
    }
    windows = make("window", (data,), attrs)
    for axis in (1, 2):
        windows = build.slice_axis(windows, axis, 0, layer.out_side)
    inner = sizes[0] * sizes[1] * data.shape[3]
    return build.reshape(build.permute(windows, (0, 1, 2, 4, 5, 3)), (layer.rows, inner))


def graph_of(layer: Layer) -> Graph:
    """The layer as the rewrites leave it: input, then residual; weights [Co, K] and f32 bias."""
    shape: tuple[int, ...] = (BATCH, layer.side, layer.side, layer.inputs)
    if layer.name == "stem":
        shape = (BATCH, layer.side + 6, STEM_WIDTH, STEM_CHANNELS)
    data = make("input", (), {"name": "data", "dtype": layer.dtype, "shape": shape})
    rows = _windows(layer, data)
    weight = _constant("weight", layer.dtype, layer.outputs, rows.shape[1])
    product = build.cast(make("matmul", (rows, build.transpose(weight))), "f32")
    result = build.cast(product + _constant("bias", "f32", 1, layer.outputs), layer.dtype)
    inputs = [data]
    if layer.has_residual:
        shape = (layer.rows, layer.outputs)
        inputs.append(make("input", (), {"name": "residual", "dtype": layer.dtype, "shape": shape}))
        result = result + inputs[1]
    if layer.has_relu:
        result = build.unary("relu", result)
    types = {"weight": weight.type, "bias": TensorType("f32", (1, layer.outputs))}
    dummies = {"bf16": "uint16", "f32": "float32"}  # the values come at run time
    constants = {
        name: Constant(name, kind, numpy.zeros(kind.shape, dummies[kind.dtype]))
        for name, kind in types.items()
    }
    return Graph(tuple(inputs), (result,), ("data", "residual")[: len(inputs)], ("out",), constants)


@dataclass(slots=True)
class Trial:
    """One config of one spec."""

    spec: KernelSpec
    candidate: Candidate
    names: tuple[str, ...]  # graph names of the pointer parameters
    label: str
    is_overlapping: bool = False  # launched by programmatic dependent launch
    binary: Future[Binary] | None = None
    time_us: float = float("inf")
    error: str = ""


class Case:
    """The buffers of one layer and its result by torch in f32."""

    def __init__(self, layer: Layer, device: Device) -> None:
        torch = device.torch
        self.layer, self.device = layer, device
        torch.manual_seed(0)
        self.dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[layer.dtype]
        on = {"device": "cuda", "dtype": self.dtype}
        self.data = torch.randn(BATCH, layer.side, layer.side, layer.inputs, **on)
        fan = layer.inputs * layer.size**2
        shape = (layer.size, layer.size, layer.inputs, layer.outputs)
        self.weights = [torch.randn(*shape, **on) * (2 / fan) ** 0.5 for _ in range(LAUNCHES)]
        self.bias = torch.randn(layer.outputs, device="cuda")
        self.residual = torch.randn(layer.rows, layer.outputs, **on)
        self.out = torch.empty(layer.rows, layer.outputs, **on)
        self.image = self.data.permute(0, 3, 1, 2)
        self.filters = [
            weight.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
            for weight in self.weights
        ]
        self.own_data, own_weights = self.data, self.weights
        if layer.name == "stem":
            pads = (0, STEM_CHANNELS - 3, 3, STEM_WIDTH - layer.side - 3, 3, 3)
            self.own_data = torch.nn.functional.pad(self.data, pads)
            pads = (0, 0, 0, STEM_CHANNELS - 3)
            own_weights = [torch.nn.functional.pad(weight, pads) for weight in self.weights]
        self.own_weights = [
            weight.reshape(-1, layer.outputs).T.contiguous() for weight in own_weights
        ]
        self.expected = self._finished(self._convolved(torch.float64))

    def _convolved(self, dtype: Any) -> Any:
        torch, layer = self.device.torch, self.layer
        torch.backends.cudnn.allow_tf32 = False
        image, filters = self.image.to(dtype), self.filters[0].to(dtype)
        conv = torch.nn.functional.conv2d
        result = conv(image, filters, None, layer.stride, layer.size // 2)
        return result.permute(0, 2, 3, 1).reshape(layer.rows, layer.outputs)

    def _finished(self, rows: Any) -> Any:
        result = rows + self.bias
        if self.layer.has_residual:
            result = result + self.residual
        return result.relu() if self.layer.has_relu else result

    def peers_us(self) -> tuple[float, float]:
        """cuDNN's convolution alone, and with bias, residual and ReLU as torch's eager kernels."""
        torch, layer = self.device.torch, self.layer
        bias = self.bias.to(self.dtype)
        residual = self.residual.view(BATCH, layer.out_side, layer.out_side, layer.outputs)
        residual = residual.permute(0, 3, 1, 2)
        conv = torch.nn.functional.conv2d

        def alone(number: int) -> None:
            conv(self.image, self.filters[number], None, layer.stride, layer.size // 2)

        def whole(number: int) -> None:
            out = conv(self.image, self.filters[number], bias, layer.stride, layer.size // 2)
            if layer.has_residual:
                out += residual
            if layer.has_relu:
                out.relu_()

        times = []
        for body, has_tf32 in ((alone, layer.precision == "tf32"), (whole, True)):
            torch.backends.cudnn.allow_tf32 = has_tf32
            body(0)
            times.append(self.device.time_us(body))
        return times[0], times[1]

    def run(self, trial: Trial) -> None:
        """Check the trial's numbers, then time it."""
        torch, device = self.device.torch, self.device
        assert trial.binary is not None
        binary = trial.binary.result()
        function = device.function(binary)
        grid = trial.candidate.grid
        scratch = [
            torch.zeros(row.nbytes, dtype=torch.uint8, device="cuda")
            for row in trial.candidate.scratch
        ]
        programs = grid[0] * grid[1] * grid[2]
        own = torch.empty(
            max(256, binary.scratch_bytes * programs), dtype=torch.uint8, device="cuda"
        )
        tensors = {
            "data": self.own_data,
            "bias": self.bias,
            "residual": self.residual,
            "out": self.out,
        }
        extra = [*(row.data_ptr() for row in scratch), own.data_ptr(), 0]

        def body(number: int) -> None:
            at = {**tensors, "weight": self.own_weights[number]}
            addresses = [at[name].data_ptr() for name in trial.names]
            device.launch(function, binary, grid, [*addresses, *extra], trial.is_overlapping)

        self.out.fill_(float("nan"))
        body(0)
        body(0)
        torch.cuda.synchronize()
        error = (self.out.double() - self.expected).abs().max() / self.expected.abs().max()
        if not error.item() < WORST[self.layer.precision]:
            trial.error = f"wrong by {error.item():.3g}"
            return
        trial.time_us = device.time_us(body)


def trials_of(layer: Layer, wants_all: bool, overlap: bool = False) -> list[Trial]:
    """Configs to try, those of the matmul kernels too where the layer is a plain product."""
    precision = "tf32" if layer.precision == "tf32" else "ieee"
    traits = replace(GPUS[90], dot_precision=precision)
    planned = schedule(graph_of(layer), traits)
    (group,) = planned.groups
    names = tuple(
        str(node.attr("name")) if node.op in ("input", "constant") else "out"
        for node in (*group.reads, *(root.node for root in group.roots))
    )
    found = []
    spec = lower_convolution(group, traits)
    if spec is not None:
        found += [Trial(spec, candidate, names, "windows") for candidate in spec.candidates]
    if layer.size == 1 and layer.stride == 1:
        other = lower_matmul_gpu(group, traits)
        plain = [each for each in other.candidates if not each.maps]  # launches here make none
        chosen = plain if wants_all else plain[:8]
        found += [Trial(other, candidate, names, "matmul") for candidate in chosen]
    if overlap:
        chosen = [trial for trial in found if _is_interesting(trial.candidate)]
        found += [replace(trial, label=f"{trial.label}+", is_overlapping=True) for trial in chosen]
    return found


def _is_interesting(candidate: Candidate) -> bool:
    """Leaves out what differs little from another."""
    config = dict(candidate.config)
    return (config["BK"], config["num_stages"]) in ((64, 4), (32, 3), (128, 4))


def _overlapping(source: str) -> str:
    """The source with programmatic dependent launch: all before the loop runs ahead of time."""
    wait = "    gdc_launch_dependents()\n    gdc_wait()\n    for "
    text = source.replace("\n    for ", f"\n{wait}", 1)
    names = "from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait"
    return text.replace("import triton\n", f"import triton\n{names}\n", 1)


def _submit(pool: ProcessPoolExecutor, trial: Trial) -> None:
    form = trial.spec.form(trial.candidate)
    params = [(row.name, row.type) for row in trial.spec.params_of(trial.candidate)]
    config = (dict(trial.candidate.constexprs), trial.candidate.options)
    text = _overlapping(form.source) if trial.is_overlapping else form.source
    trial.binary = pool.submit(compile_one, text, form.function, params, config)


def _report(layer: Layer, trials: list[Trial], peers: tuple[float, float], shown: int) -> None:
    good = sorted((t for t in trials if t.time_us < float("inf")), key=lambda t: t.time_us)
    alone, whole = peers
    print(
        f"\n{layer.name} ×{layer.count}: {layer.rows}×{layer.outputs}×"
        f"{layer.inputs * layer.size**2}  limit {layer.limit_us:.2f}  cuDNN {alone:.2f}, "
        f"with epilogue {whole:.2f}  first candidate {_first(trials):.2f}"
    )
    for trial in good[:shown]:
        print(f"  {trial.time_us:6.2f} us  {trial.label:8} {trial.candidate}")
    for trial in [t for t in trials if t.error][:2]:
        print(f"  {trial.label} {trial.candidate}: {trial.error[:200]}")


def _first(trials: list[Trial]) -> float:
    return next((trial.time_us for trial in trials), float("nan"))


def main() -> None:
    """Runs the sweep until it is done or the seconds are over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", choices=WORK, default="bf16")
    parser.add_argument("--seconds", type=float, default=85.0)
    parser.add_argument("--shown", type=int, default=6)
    parser.add_argument("--overlap", action="store_true", help="programmatic dependent launch too")
    parser.add_argument(
        "--all", action="store_true", help="all candidates of the matmul kernels too"
    )
    asked = parser.parse_args()
    deadline = time.monotonic() + asked.seconds
    named = [layer for layer in LAYERS if not asked.names or layer.name in asked.names]
    layers = [replace(layer, precision=asked.dtype) for layer in named]
    workers = max(1, (os.cpu_count() or 2) - 1)
    sums = [0.0, 0.0, 0.0, 0.0]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        planned = {layer: trials_of(layer, asked.all, asked.overlap) for layer in layers}
        for trials in planned.values():
            for trial in trials:
                _submit(pool, trial)
        device = Device()
        device.torch.backends.cudnn.benchmark = True
        for layer, trials in planned.items():
            if time.monotonic() > deadline:
                print("out of time before", layer.name)
                break
            _measure(layer, trials, device, deadline)
            peers = Case(layer, device).peers_us()
            _report(layer, trials, peers, asked.shown)
            best = min((trial.time_us for trial in trials), default=float("nan"))
            row = (best, *peers, layer.limit_us)
            sums = [total + layer.count * value for total, value in zip(sums, row, strict=True)]
        pool.shutdown(wait=False, cancel_futures=True)
    print(
        f"\nsums of {len(layers)} layers by count, us: ours {sums[0]:.1f}  cuDNN {sums[1]:.1f}  "
        f"cuDNN with eager epilogue {sums[2]:.1f}  limit {sums[3]:.1f}"
    )


def _measure(layer: Layer, trials: list[Trial], device: Device, deadline: float) -> None:
    case = Case(layer, device)
    for trial in trials:
        if time.monotonic() > deadline:
            return
        try:
            case.run(trial)
        except Exception as error:  # one bad config must not lose the others
            trial.error = f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
