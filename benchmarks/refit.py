"""What new weights cost: `load_weights`, `apply_lora` of all projections, and the next call.

    python -m benchmarks.refit [--target cuda] [--layers 2] [--hidden 2048] [--inner 8192]

A Llama shape with random weights (16 layers, 2048 and 8192 are Llama-1B's). Medians; the
file is in the page cache.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SPEC = """
import torch
from torch import nn
from torch.nn import functional

HIDDEN, INNER, LAYERS, VOCABULARY = {hidden}, {inner}, {layers}, {vocabulary}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.q, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(HIDDEN, HIDDEN // 4, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(HIDDEN, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def forward(self, x):
        y = self.first(x)
        k, v = (each(y).repeat(1, 1, 4) for each in (self.k, self.v))
        x = x + self.o(functional.scaled_dot_product_attention(self.q(y), k, v))
        y = self.second(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN)

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return functional.linear(self.norm(x)[:, -1], self.tokens.weight)


torch.manual_seed(0)
torch.set_default_dtype(torch.{dtype})
model = Model().eval()
example_inputs = (torch.arange(16).reshape(1, 16) % VOCABULARY,)
"""


def main() -> None:
    """Build, then measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--dtype", default="bfloat16")
    for name, value in (("layers", 2), ("hidden", 2048), ("inner", 8192), ("vocabulary", 32000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(given, Path(folder))


def measure(given: argparse.Namespace, folder: Path) -> None:
    """Print one line a figure."""
    import torch
    from safetensors.torch import save_file

    from aotc import runtime
    from aotc.aot.capture.spec import load_spec
    from aotc.aot.options import BuildOptions
    from aotc.aot.pipeline import build
    from aotc.aot.project import cache_folder

    path = folder / "model.py"
    path.write_text(SPEC.format(**vars(given)))
    options = BuildOptions(cache_folder(None), adapters=True)
    began = time.perf_counter()
    built = build(str(path), folder / "bundle", [given.target], options)
    print(
        f"build {time.perf_counter() - began:.1f} s, {built.bundle_bytes / 1e9:.2f} GB", flush=True
    )
    state = dict(load_spec(str(path)).module.state_dict())
    save_file(state, folder / "new.safetensors")
    write_adapter(folder / "adapter", state, given.rank)
    program = runtime.load(folder / "bundle")
    ids = torch.arange(16).reshape(1, 16) % given.vocabulary
    program(ids)
    nbytes = sum(each.nbytes for each in state.values())
    report("call", given.times, lambda: program(ids))
    load_s = report(
        "load_weights", given.times, lambda: program.load_weights(folder / "new.safetensors")
    )
    print(f"  {nbytes / 1e9:.2f} GB of parameters, {nbytes / 1e9 / load_s:.2f} GB/s")
    report("next call", 1, lambda: program(ids))
    program.reset_weights()
    report("apply_lora", given.times, lambda: program.apply_lora(folder / "adapter"))
    report("next call", 1, lambda: program(ids))
    report("reset_weights", given.times, program.reset_weights)
    if program.device != "cpu":
        compare(program, folder / "adapter")
    report("call", given.times, lambda: program(ids))


def compare(program: Any, adapter: Path) -> None:
    """Whether the device's sums are those of the host, bit by bit."""
    from unittest.mock import patch

    from aotc.runtime.programs.device_weights import DeviceSums

    program.apply_lora(adapter)
    found = digest(program)
    program.reset_weights()
    own = digest(program)
    with patch.object(DeviceSums, "of", lambda *_: None):
        report("on the host", 1, lambda: program.apply_lora(adapter))
    is_equal = found == digest(program) != own
    print(f"sums of device and host: {'equal' if is_equal else 'DIFFERENT'}")
    program.reset_weights()
    print(f"after a reset: {'the own weights' if digest(program) == own else 'OTHERS'}")


def digest(program: Any) -> str:
    """Of all weights that a program has on its device."""
    executable, spans = program._loaded.executable, program._loaded.spans
    found = hashlib.sha256()
    for name in sorted(executable.weights):
        memory = ctypes.create_string_buffer(spans[name][1])
        place = ctypes.addressof(memory)
        executable.gpu.copy_to_host(place, executable.weights[name], len(memory))
        found.update(memory)
    return found.hexdigest()


def write_adapter(folder: Path, state: dict, rank: int) -> None:
    """An adapter of all projections."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    tensors = {}
    for name, weight in state.items():
        if weight.ndim == 2 and "tokens" not in name:
            module = f"base_model.model.{name.removesuffix('.weight')}"
            tensors[f"{module}.lora_A.weight"] = torch.randn(rank, weight.shape[1])
            tensors[f"{module}.lora_B.weight"] = torch.randn(weight.shape[0], rank) / 64
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "lora_alpha": rank, "r": rank}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def report(name: str, times: int, work: Callable[[], object]) -> float:
    """Run and print the median; returns it in seconds."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    median = statistics.median(found)
    print(f"{name:14} {median * 1e3:10.2f} ms  ({min(found) * 1e3:.2f} to {max(found) * 1e3:.2f})",
          flush=True)  # fmt: skip
    return median


if __name__ == "__main__":
    main()
