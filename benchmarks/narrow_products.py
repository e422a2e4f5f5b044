"""Models in bf16 and layers in int8 on a processor that multiplies these, beside torch.

Each model is built for the processor without tuning and takes turns with eager torch (oneDNN) and
`torch.compile` with freezing, every contender in a process of its own on one thread. Before and
after, the peak of `TDPBF16PS` or `VDPBF16PS` on registers is measured, with random operands: on
numbers that are all zeros the processor runs faster. Layers in int8 have activations that are
quantised by row at each call (torchao's `Int8DynamicActivationInt8WeightConfig`), and stand beside
the same layers in bf16; convolutions are written out as PT2E does, with static scales, and stand
beside the same ones in f32.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.isa import ISAS
from aotc.runtime.drivers.cpu.driver import best_isa, features

TURNS = 2_000_000
MODELS = Path(__file__).parent / "models"
ONE_THREAD = {"AOTC_THREADS": "1", "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_FREEZING": "1"}

_PATH = f"import sys\nsys.path.insert(0, {str(MODELS)!r})\n"
SPECS = {
    "MLP 256×1024→4096→1024": """
import torch
from torch import nn

def build_model():
    return nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).bfloat16().eval()

example_inputs = (torch.randn(256, 1024).bfloat16(),)
""",
    "BERT-base 4×128": _PATH
    + """
from bert_base import build_model
from bert_base import example_inputs as inputs

example_inputs = inputs(4, 128)
""",
    "ResNet-50 b4": _PATH
    + """
import importlib.util
from pathlib import Path

found = importlib.util.spec_from_file_location("net", Path(sys.path[0], "resnet.py"))
net = importlib.util.module_from_spec(found)
found.loader.exec_module(net)
build_model = net.build_model
example_inputs = (net.example_inputs()[0][:1].expand(4, -1, -1, -1).contiguous(),)
""",
    "ViT-B/16 b1": _PATH
    + """
from vit_b16 import build_model
from vit_b16 import example_inputs as inputs

example_inputs = inputs(1)
""",
    "GPT-2 decode, 128 before": """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.cache_utils import DynamicCache

class Step(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.model = GPT2LMHeadModel(GPT2Config())

    def forward(self, ids, place, keys, values):
        cache = DynamicCache()
        for layer in range(len(self.model.transformer.h)):
            cache.update(keys[layer], values[layer], layer)
        return self.model(ids, position_ids=place, past_key_values=cache, use_cache=True).logits

def build_model():
    return Step().bfloat16().eval()

before = torch.randn(2, 12, 1, 12, 128, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
example_inputs = (torch.tensor([[11]]), torch.tensor([[128]]), *before)
""",
}

# Parts of models, which are no part of the mean: attention alone as ViT-B and BERT have it.
HEADS = """
import torch
from torch import nn
from torch.nn import functional


class Heads(nn.Module):
    def forward(self, joined):
        shape = {images}, {rows}, 3, 12, 64
        q, k, v = joined.reshape(shape).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(q, k, v)
        return found.transpose(1, 2).reshape({images}, {rows}, 768)


def build_model():
    return Heads().bfloat16().eval()

example_inputs = (torch.randn({images}, {rows}, 2304).bfloat16(),)
"""
PARTS = {
    f"attention {images} × 12 × {rows} × 64": HEADS.format(images=images, rows=rows)
    for images, rows in ((1, 197), (4, 128))
}

# rows, depth, columns
LAYERS = ((1, 1024, 4096), (8, 1024, 4096), (32, 1024, 4096), (256, 1024, 4096), (512, 768, 3072))
LAYER = """
import torch
from torch import nn


class Int8(nn.Module):
    def __init__(self):
        super().__init__()
        weight = nn.Linear({depth}, {columns}).weight.detach()
        scale = weight.abs().amax(1) / 127
        rows = (weight / scale[:, None]).round().to(torch.int8)
        self.register_buffer("rows", rows)
        self.register_buffer("scale", scale)

    def forward(self, x):
        wide = x.float()
        scale = wide.abs().amax(-1, keepdim=True) / 127
        narrow = (wide / scale).round().to(torch.int8)
        return (torch._int_mm(narrow, self.rows.t()).float() * scale * self.scale).to(x.dtype)


def build_model():
    torch.manual_seed(0)
    return Int8() if {is_int8} else nn.Linear({depth}, {columns}, bias=False).bfloat16().eval()


example_inputs = (torch.randn({rows}, {depth}).bfloat16(),)
"""

IMAGES = """
import torch
import torch.ao.quantization.fx._decomposed
from torch import nn

SIZES = ((16, 64, 3, 1, 1), (64, 64, 3, 1, 1), (64, 128, 1, 2, 0), (128, 64, 3, 2, 1))
OPS = torch.ops.quantized_decomposed


class Quantised(nn.Module):
    def __init__(self, layer):
        super().__init__()
        weight, self.layer = layer.weight.detach(), layer
        scale = weight.abs().amax((1, 2, 3)) / 127
        self.register_buffer("codes", (weight / scale[:, None, None, None]).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("zero", torch.zeros(len(scale), dtype=torch.int64))

    def forward(self, x):
        how = 0.03, 117, 0, 255, torch.uint8
        x = OPS.dequantize_per_tensor.default(OPS.quantize_per_tensor.default(x, *how), *how)
        channels = self.scale, self.zero, 0, -128, 127, torch.int8
        weight = OPS.dequantize_per_channel.default(self.codes, *channels)
        spaces = self.layer.stride, self.layer.padding
        return nn.functional.conv2d(x, weight, self.layer.bias, *spaces)


def build_model():
    torch.manual_seed(0)
    layers = [nn.Conv2d(*each) for each in SIZES]
    made = [Quantised(each) for each in layers] if {is_int8} else layers
    return nn.Sequential(*(part for each in made for part in (each, nn.ReLU()))).eval()


example_inputs = (torch.randn(1, 16, 56, 56),)
"""

_PEAK = """
{constants}
define void @body(ptr %a, i32 %x, i32 %y, i32 %z, ptr %g, ptr %s) #0 {{
entry:
{before}
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %n, %loop ]
{products}
  %n = add i32 %i, 1
  %go = icmp slt i32 %n, {turns}
  br i1 %go, label %loop, label %end
end:
{after}
  ret void
}}
attributes #0 = {{ nounwind noinline{attributes} }}
"""


@dataclass(frozen=True, slots=True)
class Peak:
    """Independent products of bf16 on registers: the parts of a loop, and its operations a turn."""

    instruction: str
    constants: str
    before: str
    products: str
    after: str
    turn_flops: int


def _of_tiles() -> Peak:
    """Four tiles of accumulators."""
    sizes = ["i8 1", *["i8 0"] * 15, *["i8 64, i8 0"] * 8, *["i8 0"] * 16, *["i8 16"] * 8]
    configuration = ", ".join([*sizes, *["i8 0"] * 8])
    loads = (f"  call void @llvm.x86.tileloadd64(i8 {tile}, ptr %a, i64 64)" for tile in range(8))
    products = (
        f"  call void @llvm.x86.tdpbf16ps(i8 {tile}, i8 {4 + tile // 2}, i8 {6 + tile % 2})"
        for tile in range(4)
    )
    return Peak(
        "TDPBF16PS",
        f"@tiles = internal constant [64 x i8] [{configuration}], align 64",
        "\n".join(["  call void @llvm.x86.ldtilecfg(ptr @tiles)", *loads]),
        "\n".join(products),
        "  call void @llvm.x86.tilerelease()",
        4 * 2 * 16 * 16 * 32,
    )


def _of_vectors() -> Peak:
    """24 vectors of accumulators, as many as a product keeps."""
    kind, factor, count = "<16 x float>", "<32 x bfloat>", 24
    phis = (
        f"  %t{n} = phi {kind} [ zeroinitializer, %entry ], [ %u{n}, %loop ]" for n in range(count)
    )
    name = "llvm.x86.avx512bf16.dpbf16ps.512"
    calls = (
        f"  %u{n} = call {kind} @{name}({kind} %t{n}, {factor} %l{n % 2}, {factor} %l{2 + n % 2})"
        for n in range(count)
    )
    loads = (
        line
        for n in range(4)
        for line in (
            f"  %p{n} = getelementptr i8, ptr %a, i64 {64 * n}",
            f"  %l{n} = load {factor}, ptr %p{n}, align 2",
        )
    )
    stores = (
        line
        for n in range(count)
        for line in (
            f"  %q{n} = getelementptr i8, ptr %a, i64 {1024 + 64 * n}",
            f"  store {kind} %u{n}, ptr %q{n}, align 4",
        )
    )
    lines = ["\n".join(each) for each in (loads, (*phis, *calls), stores)]
    return Peak("VDPBF16PS", "", *lines, count * 2 * 2 * 16)


PEAKS = {"cpu-x86-64-amx": _of_tiles, "cpu-x86-64-v4-bf16": _of_vectors}
"""By the target that multiplies so."""


def peak_gflops(target: str) -> float:
    """What independent products of bf16 on registers do a second, in GFLOP/s."""
    target = target if target in PEAKS else "cpu-x86-64-v4-bf16"
    row, parts = ISAS[target.removeprefix("cpu-")], PEAKS[target]()
    text = _PEAK.format(
        constants=parts.constants,
        before=parts.before,
        products=parts.products,
        after=parts.after,
        turns=TURNS,
        attributes=row.attributes,
    )
    made = toolchain.compile_object(text, "peak", row.cpu)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "peak.so")
        path.write_bytes(toolchain.link({"peak": made.data}))
        library = ctypes.CDLL(str(path))
    kinds = [ctypes.c_void_p, *[ctypes.c_int] * 3, ctypes.c_void_p, ctypes.c_void_p]
    library.peak.argtypes, library.peak.restype = kinds, None
    # bf16 of some size between 2⁻¹ and 2, of both signs.
    numbers = bytearray(
        byte for _ in range(2048) for byte in (random.randrange(256), random.choice((0x3F, 0xBF)))
    )
    memory = (ctypes.c_char * 4096).from_buffer(numbers)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        library.peak(ctypes.addressof(memory), 0, 0, 0, None, None)
        best = min(best, time.perf_counter() - start)
    return TURNS * parts.turn_flops / best / 1e9


def measured(
    text: str, given: argparse.Namespace, checkout: Path | None = None
) -> dict[str, float]:
    """Contender → the fastest call, in milliseconds: others may use the machine too. Of another
    checkout only its own."""
    environment = {**os.environ, **ONE_THREAD}
    if checkout is not None:
        environment["PYTHONPATH"] = os.pathsep.join(
            map(str, (checkout / "scripts/alias", checkout))
        )
    against = given.against if checkout is None else ()
    aotc = [sys.executable, "-m", "aotc.aot.cli"]
    with tempfile.TemporaryDirectory() as folder:
        spec, bundle = Path(folder, "spec.py"), Path(folder, "bundle")
        spec.write_text(text)
        build = [*aotc, "build", str(spec), "-o", str(bundle), "--target", given.target, "--quiet"]
        build += ["--tune", "off"]
        place = {"cwd": checkout, "env": environment, "check": True, "capture_output": True}
        subprocess.run(build, **place)
        bench = [*aotc, "bench", str(bundle), str(spec), "--json", "--rounds", str(given.rounds)]
        bench += ["--seconds", str(given.seconds)]
        bench += [word for peer in against for word in ("--against", peer)]
        found = subprocess.run(bench, text=True, **place)
    rows = json.loads(found.stdout)["results"]
    return {row["kind"]: row["quantiles_us"][0] / 1e3 for row in rows}


def narrow_and_wide() -> dict[str, tuple[str, str, str]]:
    """What → its spec in int8, the same in a wider type, and that type."""
    found = {}
    for rows, depth, columns in LAYERS:
        sizes = {"rows": rows, "depth": depth, "columns": columns}
        texts = [LAYER.format(**sizes, is_int8=is_int8) for is_int8 in (True, False)]
        found[f"{rows} × {depth} → {columns}"] = (*texts, "bf16")
    images = [IMAGES.format(is_int8=is_int8) for is_int8 in (True, False)]
    found["four convolutions of PT2E"] = (*images, "f32")
    return found


def print_layers(given: argparse.Namespace) -> None:
    """A row for each layer: int8 with its peers, and by how much a wider type takes longer."""
    peers = [f"{name}, µs" for name in ("aotc", *given.against)]
    print("\n| in int8 | " + " | ".join(peers), end="")
    print(
        " | the best of torch by ours | wider: aotc, µs | the best of torch, µs | wider by int8 |"
    )
    print("|" + "---|" * (len(peers) + 5))
    for name, (text, wide_text, wide_type) in narrow_and_wide().items():
        narrow, wide = measured(text, given), measured(wide_text, given)
        best = min(narrow[peer] for peer in given.against)
        cells = [f"{1e3 * narrow[each]:.0f}" for each in ("aotc", *given.against)]
        torch_wide = min(wide[peer] for peer in given.against)
        cells += [f"{best / narrow['aotc']:.2f}", f"{1e3 * wide['aotc']:.0f} ({wide_type})"]
        cells.append(f"{1e3 * torch_wide:.0f}")
        ratio = wide["aotc"] / narrow["aotc"]
        print(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)


def main() -> None:
    """Print a row for each model, and the peak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--against", nargs="*", default=["eager", "compile"])
    parser.add_argument(
        "--only", default="", help="models whose names have this; `int8`: layers alone"
    )
    parser.add_argument("--before", type=Path, help="another checkout, which is measured too")
    parser.add_argument("--target", default=f"cpu-{best_isa(features())}")
    given = parser.parse_args()

    def print_peak() -> None:
        """Nothing where the target has no instruction for products of bf16."""
        if given.target in PEAKS:
            name, found = PEAKS[given.target]().instruction, peak_gflops(given.target)
            print(f"{name} on registers: {found:.0f} GFLOP/s, load {os.getloadavg()[0]:.1f}")

    print(f"target {given.target}")
    print_peak()
    print("| model | " + " | ".join(f"{name}, ms" for name in ("aotc", *given.against)), end="")
    print(" | the best of torch by ours |\n|" + "---|" * (len(given.against) + 3))
    ratios = []
    for name, text in {**SPECS, **PARTS}.items():
        if given.only in name:
            times = measured(text, given)
            ratio = min(times[peer] for peer in given.against) / times["aotc"]
            ratios += [ratio] if name in SPECS else []
            cells = [f"{times[each]:.2f}" for each in ("aotc", *given.against)]
            if given.before is not None:
                cells[0] += f" ({measured(text, given, given.before)['aotc']:.2f} before)"
            print(f"| {name} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)
    if ratios:
        print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")
    if given.only in "int8":
        print_layers(given)
    print_peak()


if __name__ == "__main__":
    main()
