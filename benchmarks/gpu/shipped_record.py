"""The tuning record that the package has for GPUs like this one: `aot/tune/records/`.

    python -m benchmarks.gpu.shipped_record [--only llama-1b,qwen2-0.5b] [--from FOLDER]

Builds models of published shapes with `--tune quick` on this machine's device, some at a time, and
merges their tuning records with those in FOLDER (`build/bench-gpu` after
`python -m benchmarks.gpu`) into the package's file for the device's target. A kernel has a line
there by the digest of its text: what changes the texts of kernels takes their lines out of use, and
this is to be run anew.
A build says how many of its kernels had a line ("choices from the package's record").
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from aotc.aot.tune.record import RECORDS, merge, print_record, read_record
from benchmarks.gpu import language_models, tensor_parallel

JOBS, AT_ONCE = 5, 3
CAUSAL = """
import torch, transformers
from aotc.aot.huggingface import causal_lm

config = transformers.{family}Config(**{fields!r}, max_position_embeddings=4096,
                                     dtype=torch.bfloat16, pad_token_id=0)
torch.manual_seed(0)
with torch.device("cuda"):
    model = transformers.{family}ForCausalLM(config).to(torch.bfloat16)
model, entry_points = causal_lm(model.cpu(), {sizes}, sampling=False)
"""
VARIED = "max_length=2112, max_prompt=2048, batch=64, session_sizes=True"
FIXED = "max_length=576, max_prompt=512, batch=1"


def _shapes() -> dict[str, tuple[str, dict[str, Any], str]]:
    """Family, fields of its config with four layers, and sizes, by name: layers are alike, and one
    kernel serves them all."""
    llama, qwen = language_models.SHAPES["llama-1b"], language_models.SHAPES["qwen2-0.5b"]
    llama_8b = {**tensor_parallel.SHAPES["llama-8b"], "vocab_size": 128256}
    few = {"num_hidden_layers": 4}
    return {
        "llama-1b": ("Llama", {**llama[1], **few}, FIXED),
        "llama-1b-sizes": ("Llama", {**llama[1], **few}, VARIED),
        "qwen2-0.5b": ("Qwen2", {**qwen[1], **few}, FIXED),
        "llama-8b": ("Llama", {**llama_8b, **few}, FIXED),
    }


def build(name: str, work: Path) -> Path:
    """The tuning record of one shape."""
    family, fields, sizes = _shapes()[name]
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    spec = folder / "spec.py"
    spec.write_text(CAUSAL.format(family=family, fields=fields, sizes=sizes))
    record = folder / "record.txt"
    words = ["build", spec, "-o", folder / "b", "--target", "cuda", "--tune", "quick"]
    words += ["--record", record, "--jobs", JOBS, "--force", "--quiet"]
    began_s = time.perf_counter()
    line = [sys.executable, "-m", "aotc.aot.cli", *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    print(f"{name}: {time.perf_counter() - began_s:.0f} s, exit code {done.returncode}", flush=True)
    if done.returncode:
        print(done.stderr[-2000:], flush=True)
    return record


def main() -> None:
    """Build, merge, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="names of shapes, with commas; `none` builds none")
    parser.add_argument("--from", dest="known", type=Path, help="folder of records")
    parser.add_argument("--work", type=Path, default=Path("build/shipped-record"))
    parser.add_argument("-o", "--out", type=Path, default=RECORDS)
    given = parser.parse_args()
    names = list(_shapes()) if given.only is None else given.only.split(",")
    names = [] if names == ["none"] else names
    if unknown := set(names) - set(_shapes()):
        parser.error(f"unknown shapes {sorted(unknown)}, expected some of {list(_shapes())}")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        paths = list(pool.map(lambda name: build(name, given.work), names))
    if given.known is not None:
        paths += sorted(given.known.glob("*.txt"))
    lines = merge(*(read_record(path).values() for path in paths))
    major, minor = torch.cuda.get_device_capability()
    target = f"cuda-sm_{major}{minor}"
    kept = {
        key: replace(line, runner_up=None, runner_up_us=None)  # which no build reads
        for key, line in lines.items()
        if line.target == target
    }
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{target}.txt"
    path.write_text(print_record(kept))
    print(f"{len(kept)} lines of {len(paths)} records in {path}")


if __name__ == "__main__":
    main()
