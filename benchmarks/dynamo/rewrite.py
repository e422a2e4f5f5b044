"""`backend="aotc_rewrite"` beside plain Inductor, on models written in plain arithmetic.

    python -m benchmarks.dynamo.rewrite [MODEL …]

One process; calls of both back ends are sampled in turns. Prints a table: median milliseconds of a
call forward without gradients and of a step forward and backward, and what was rewritten. In f32 on
the CPU, in bf16 on a GPU if there is one. Run it on a machine with nothing to do.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from aotc.aot.dynamo.rewriting import rewrite_module, summary
from benchmarks.machine import facts
from benchmarks.report import table

BACKENDS = ("inductor", "aotc_rewrite")
ROUNDS, SECONDS_A_TURN = 9, 0.4
TOKENS = 128
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32


def gpt2() -> torch.nn.Module:
    """Four layers of GPT-2, its attention and GELU in arithmetic."""
    import transformers

    sizes = {"n_layer": 4, "n_positions": TOKENS, "vocab_size": 1024}
    off = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(**sizes, **off, **ends, attn_implementation="eager")
    return transformers.GPT2LMHeadModel(config)  # type: ignore[no-any-return]


def llama() -> torch.nn.Module:
    """Four layers of Llama, its norms and attention in arithmetic, heads shared."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=512, intermediate_size=1376, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, vocab_size=1024, attn_implementation="eager",
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)  # type: ignore[no-any-return]


MODELS: Mapping[str, Callable[[], torch.nn.Module]] = {"gpt2": gpt2, "llama": llama}


def main() -> None:
    """Measure the models that are asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=list(MODELS))
    models = parser.parse_args().models
    print(f"{facts()}\non {torch.cuda.get_device_name() if DEVICE == 'cuda' else 'the CPU'}\n")
    rows = []
    for name in models:
        torch.manual_seed(0)
        model, tokens = MODELS[name]().eval(), torch.randint(0, 1024, (1, TOKENS))
        model, tokens = model.to(DEVICE, DTYPE), tokens.to(DEVICE)
        for what, step in STEPS.items():
            times = compare({each: step(model, tokens, each) for each in BACKENDS})
            ratio = times["inductor"] / times["aotc_rewrite"]
            cells = [f"{times[each]:.2f}" for each in BACKENDS]
            rows.append([f"{name}, {what}", *cells, f"{ratio:.2f}"])
        rows.append([f"{name}, rewritten", "", rewrites_of(model, tokens), ""])
    print(table(["", *(f"{each}, ms" for each in BACKENDS), "ratio"], rows))


def forward(model: torch.nn.Module, tokens: torch.Tensor, backend: str) -> Callable[[], Any]:
    """A call without gradients."""
    compiled = torch.compile(model, backend=backend)

    def call() -> Any:
        with torch.no_grad():
            return compiled(tokens, use_cache=False).logits

    call()
    return call


def both(model: torch.nn.Module, tokens: torch.Tensor, backend: str) -> Callable[[], Any]:
    """A call and the gradients of every weight."""
    compiled = torch.compile(model, backend=backend)

    def call() -> Any:
        model.zero_grad()
        return compiled(tokens, use_cache=False).logits.square().mean().backward()

    call()
    return call


STEPS = {"forward": forward, "forward and backward": both}


def compare(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Median milliseconds of each call, sampled in turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            call()  # caches of the processor as this back end leaves them
            started = time.perf_counter()
            while time.perf_counter() - started < SECONDS_A_TURN:
                begun = time.perf_counter()
                call()
                if DEVICE == "cuda":
                    torch.cuda.synchronize()
                found[name].append((time.perf_counter() - begun) * 1e3)
    return {name: statistics.median(times) for name, times in found.items()}


def rewrites_of(model: torch.nn.Module, tokens: torch.Tensor) -> str:
    """What the back end prints of a model."""
    done: list[str] = []

    def rewriting(module: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        done.append(summary(rewrite_module(module)))
        return module.forward

    torch._dynamo.reset()
    torch.compile(model, backend=rewriting)(tokens, use_cache=False)
    return "; ".join(done)


if __name__ == "__main__":
    main()
