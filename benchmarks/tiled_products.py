"""Models in bf16 on a processor with tiles (AMX), beside torch.

Each model is built for `cpu-x86-64-amx` without tuning and takes turns with eager torch (oneDNN)
and `torch.compile` with freezing, every contender in a process of its own on one thread. Before and
after, the peak of `TDPBF16PS` on registers is measured, with random operands: on numbers that are
all zeros the processor runs faster.
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
from pathlib import Path

from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.isa import ISAS
from aotc.runtime.drivers.cpu.driver import features

TARGET = "cpu-x86-64-amx"
FLOPS = 2 * 16 * 16 * 32  # of one `TDPBF16PS`
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

_PEAK = """
@tiles = internal constant [64 x i8] [i8 1, {zeros}, {row_bytes}, {more}, {rows}, {rest}], align 64
define void @body(ptr %a, i32 %x, i32 %y, i32 %z, ptr %g, ptr %s) #0 {{
entry:
  call void @llvm.x86.ldtilecfg(ptr @tiles)
{loads}
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %n, %loop ]
{products}
  %n = add i32 %i, 1
  %go = icmp slt i32 %n, {turns}
  br i1 %go, label %loop, label %end
end:
  call void @llvm.x86.tilerelease()
  ret void
}}
attributes #0 = {{ nounwind noinline{attributes} }}
"""


def peak_gflops() -> float:
    """What independent products of four accumulators do a second, in GFLOP/s."""
    row = ISAS[TARGET.removeprefix("cpu-")]
    zeros = ", ".join(["i8 0"] * 15)
    text = _PEAK.format(
        zeros=zeros,
        row_bytes=", ".join(["i8 64, i8 0"] * 8),
        more=", ".join(["i8 0"] * 16),
        rows=", ".join(["i8 16"] * 8),
        rest=", ".join(["i8 0"] * 8),
        loads="\n".join(
            f"  call void @llvm.x86.tileloadd64(i8 {tile}, ptr %a, i64 64)" for tile in range(8)
        ),
        products="\n".join(
            f"  call void @llvm.x86.tdpbf16ps(i8 {tile}, i8 {4 + tile // 2}, i8 {6 + tile % 2})"
            for tile in range(4)
        ),
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
        byte for _ in range(512) for byte in (random.randrange(256), random.choice((0x3F, 0xBF)))
    )
    memory = (ctypes.c_char * 1024).from_buffer(numbers)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        library.peak(ctypes.addressof(memory), 0, 0, 0, None, None)
        best = min(best, time.perf_counter() - start)
    return 4 * TURNS * FLOPS / best / 1e9


def measured(text: str, peers: list[str], rounds: int, seconds: float) -> dict[str, float]:
    """Contender → the fastest call, in milliseconds: others may use the machine too."""
    environment = {**os.environ, **ONE_THREAD}
    aotc = [str(Path(sys.executable).parent / "aotc")]
    with tempfile.TemporaryDirectory() as folder:
        spec, bundle = Path(folder, "spec.py"), Path(folder, "bundle")
        spec.write_text(text)
        build = [*aotc, "build", str(spec), "-o", str(bundle), "--target", TARGET, "--quiet"]
        build += ["--tune", "off"]
        subprocess.run(build, check=True, env=environment, capture_output=True)
        bench = [*aotc, "bench", str(bundle), str(spec), "--json", "--rounds", str(rounds)]
        bench += ["--seconds", str(seconds)]
        bench += [word for peer in peers for word in ("--against", peer)]
        found = subprocess.run(bench, check=True, env=environment, capture_output=True, text=True)
    rows = json.loads(found.stdout)["results"]
    return {row["kind"]: row["quantiles_us"][0] / 1e3 for row in rows}


def main() -> None:
    """Print a row for each model, and the peak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--against", nargs="*", default=["eager", "compile"])
    parser.add_argument("--only", default="", help="models whose names have this")
    given = parser.parse_args()
    if "amx_bf16" not in features():
        sys.exit("this processor has no tiles, or its kernel denies them")
    print(f"TDPBF16PS on registers: {peak_gflops():.0f} GFLOP/s, load {os.getloadavg()[0]:.1f}")
    print("| model | " + " | ".join(f"{name}, ms" for name in ("aotc", *given.against)), end="")
    print(" | the best of torch by ours |\n|" + "---|" * (len(given.against) + 3))
    ratios = []
    for name, text in SPECS.items():
        if given.only in name:
            times = measured(text, given.against, given.rounds, given.seconds)
            best = min(times[peer] for peer in given.against)
            ratios.append(best / times["aotc"])
            cells = [f"{times[each]:.2f}" for each in ("aotc", *given.against)]
            print(f"| {name} | {' | '.join(cells)} | {ratios[-1]:.2f} |", flush=True)
    print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")
    print(f"TDPBF16PS on registers: {peak_gflops():.0f} GFLOP/s, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
