"""A causal language model on one GPU and split over several: numbers, times of a step, replays.

    python -m benchmarks.gpu.tensor_parallel --ranks 2            # 4 layers of Llama-8B's shape
    python -m benchmarks.gpu.tensor_parallel --ranks 2 --tiny     # seconds, for a look

Weights are random, in bf16; of the layers of Llama-8B and of its vocabulary there is an eighth.
Programs of one and of several GPUs run the same steps in turns: `split` is the model on `--ranks`
GPUs, `share` is what one GPU of these computes, as a model of its own on one GPU (heads, inner
width and vocabulary divided by the ranks), so that the difference between both is what exchanges
take.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from aotc import runtime

from .language_models import build, part

SHAPES: dict[str, dict[str, Any]] = {
    "llama-8b": {
        "vocab_size": 16032, "hidden_size": 4096, "intermediate_size": 14336, "head_dim": 128,
        "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 8,
        "rope_theta": 500000.0, "tie_word_embeddings": False,
    },
    "tiny": {
        "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1024, "head_dim": 64,
        "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 8,
        "tie_word_embeddings": False,
    },
}  # fmt: skip
DIVIDED = ("vocab_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
LENGTH, PROMPT, STEPS, KEYS = 1024, 64, 16, 512
SPEC = """
import torch, transformers
from aotc.aot.huggingface import causal_lm

config = transformers.LlamaConfig(**{shape!r}, max_position_embeddings=4096, dtype=torch.bfloat16)
torch.manual_seed(0)
with torch.device("cuda"):
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
model, entry_points = causal_lm(
    model.cpu(), max_length={length}, max_prompt={prompt}, batch=1, sampling=False, logits=True
)
"""


def built(folder: Path, shape: dict[str, Any], ranks: int, flags: list[str]) -> runtime.Program:
    """The program of a shape on so many GPUs."""
    folder.mkdir()
    text = SPEC.format(shape=shape, length=LENGTH, prompt=PROMPT)
    split = ["--tensor-parallel", str(ranks)] if ranks > 1 else []
    bundle = build(text, folder, "cuda", [*flags, *split])
    return runtime.load(bundle, device="cuda")


def steps(session: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The logits of a prompt and of each step behind it."""
    lengths = torch.tensor([PROMPT], device="cuda")
    slots = torch.zeros(1, dtype=torch.int64, device="cuda")
    found = [session.prefill(tokens[:, :PROMPT], lengths, slots)["logits"]]
    for at in range(PROMPT, PROMPT + STEPS):
        place = torch.tensor([at], device="cuda")
        found.append(session.decode(tokens[:, at], place)["logits"])
    return torch.cat(found)


def step_ms(session: Any, calls: int) -> float:
    """Milliseconds of a step of decode with KEYS before it, of many in a row."""
    ids = torch.tensor([5], device="cuda")
    place = torch.tensor([KEYS], device="cuda")
    bound = session.decode.bind(ids, place)
    bound()
    session.synchronize()
    began_s = time.perf_counter()
    for _ in range(calls):
        bound()
    session.synchronize()
    return (time.perf_counter() - began_s) / calls * 1e3


def in_turns(sessions: dict[str, Any], rounds: int, calls: int) -> dict[str, float]:
    """Milliseconds of a step of each session: medians of so many turns."""
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(rounds):
        for name, session in sessions.items():
            times[name].append(step_ms(session, calls))
    return {name: statistics.median(row) for name, row in times.items()}


def compared(whole: Any, split: Any, vocabulary: int) -> None:
    """How far the logits of the split program are from those of the whole one."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, vocabulary, (1, PROMPT + STEPS), generator=generator).cuda()
    expected, found = (steps(each, tokens).float() for each in (whole, split))
    difference = (found - expected).abs().max().item()
    same = (found.argmax(-1) == expected.argmax(-1)).float().mean().item()
    largest = expected.abs().max().item()
    print(f"logits differ by {difference:.3g} at most, of {largest:.3g}")
    print(f"{same:.0%} of {len(found)} tokens are the same")


def replayed(session: Any, calls: int) -> None:
    """The same step over and over: every result has the bits of the first one."""
    ids, place = torch.tensor([5], device="cuda"), torch.tensor([PROMPT], device="cuda")
    first = session.decode(ids, place)["logits"].clone()
    differing = torch.zeros((), dtype=torch.int64, device="cuda")
    began_s = time.perf_counter()
    for _ in range(calls):
        differing += (session.decode(ids, place)["logits"] != first).any()
    session.synchronize()
    seconds = time.perf_counter() - began_s
    print(f"{calls} steps in {seconds:.1f} s, {int(differing)} of them with other bits")


def main() -> None:
    """Build, compare, time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--no-share", action="store_true", help="build `whole` and `split` alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--replays", type=int, default=0)
    parser.add_argument("--flag", action="append", default=[], help="of `aotc build`")
    chosen = parser.parse_args()
    shape = SHAPES["tiny" if chosen.tiny else "llama-8b"]
    share = {**shape, **{name: shape[name] // chosen.ranks for name in DIVIDED}}
    rows = {"whole": (shape, 1), "split": (shape, chosen.ranks), "share": (share, 1)}
    if chosen.no_share:
        del rows["share"]
    with tempfile.TemporaryDirectory() as folder:
        sessions = {}
        for name, (fields, ranks) in rows.items():
            with part(f"build and load {name}"):
                sessions[name] = built(Path(folder, name), fields, ranks, chosen.flag).session()
        with part("compare"):
            compared(sessions["whole"], sessions["split"], shape["vocab_size"])
        found = in_turns(sessions, chosen.rounds, chosen.calls)
        print(", ".join(f"{name} {value:.4f} ms a step" for name, value in found.items()))
        print(f"split / whole {found['split'] / found['whole']:.3f}")
        if "share" in found:
            exchanges = 2 * shape["num_hidden_layers"] + 2
            each_us = (found["split"] - found["share"]) / exchanges * 1e3
            print(f"{exchanges} exchanges, {each_us:.2f} us each")
        if chosen.replays:
            replayed(sessions["split"], chosen.replays)


if __name__ == "__main__":
    main()
