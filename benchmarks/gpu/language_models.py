"""Causal language models as one bundle each: size, time to the first token, decode steps, tokens.

    python -m benchmarks.gpu.language_models llama-1b          # prefill and decode of any batch
    python -m benchmarks.gpu.language_models llama-1b --fixed  # of one sequence and one length
    python -m benchmarks.gpu.language_models llama-1b --layers 2  # of so many layers
    python -m benchmarks.gpu.language_models llama-1b --quantize int4,fp8  # decode beside bf16
    python -m benchmarks.gpu.language_models qwen2-0.5b        # by transformers' own exporter

Weights are random, of the published shapes, in bf16. Each part prints its seconds. The process
that starts has neither torch nor numpy, and byte code, as packages have that pip installed. Tokens
are those after prompts and tokens of eager's own, step by step, compared wherever eager's two best
logits differ by more than TOLERANCE.
"""

from __future__ import annotations

import argparse
import compileall
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from aotc import runtime

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-1b": (
        "Llama",
        {
            "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "head_dim": 64,
            "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
            "rope_theta": 500000.0, "tie_word_embeddings": True,
        },
    ),
    "qwen2-0.5b": (
        "Qwen2",
        {
            "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
            "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
            "rope_theta": 1000000.0, "tie_word_embeddings": True,
        },
    ),
    "tiny": (
        "Llama",
        {
            "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True,
        },
    ),
}  # fmt: skip
MAX_PROMPT, MAX_LENGTH, BATCH, KEYS = 2048, 2112, 64, 512
STEPS, CALLS = 256, 200
TOLERANCE = 0.05  # of logits of up to about 5, which bf16 has in steps of 2^-6 or less
LM = """
from aotc.aot.huggingface import causal_lm

model, entry_points = causal_lm({folder!r}, {sizes}, sampling=False)
"""
DECODE_ALONE = """
entry_points = {"decode": entry_points["decode"]}
"""
EXPORTED = """
import torch, transformers
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

decoder = transformers.AutoModelForCausalLM.from_pretrained({folder!r}).eval()
decoder.generation_config = transformers.GenerationConfig(
    use_cache=True, cache_implementation="static",
    cache_config={{"batch_size": 1, "max_cache_len": {length}}},
)
model = TorchExportableModuleWithStaticCache(decoder)
example_inputs = {{"input_ids": torch.tensor([[1]]), "cache_position": torch.tensor([0])}}
"""
START = """
import sys, time
from array import array
from aotc import runtime
bundle, device, began, with_sizes = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4] == "1"
program = runtime.load(bundle, device=device)
loaded = time.monotonic()
sizes = {{"batch": 1, "length": {keys}}} if with_sizes else {{}}
session = program.session(**sizes)
ids = memoryview(array("q", range(1, 17))).cast("B").cast("q", [1, 16])
found = session.prefill(ids, array("q", [16]), array("q", [0]))
memoryview(found["tokens"]).tolist()
first = time.monotonic()
found = session.decode(array("q", [5]), array("q", [16]))
memoryview(found["tokens"]).tolist()
second = time.monotonic()
assert not {{"torch", "triton", "numpy"}} & set(sys.modules)
print(f"start to loaded {{loaded - began:.2f}} s, to the first token {{first - began:.2f}} s, "
      f"the second (first of decode) {{second - first:.3f}} s later")
session.close()
if with_sizes:
    began = time.monotonic()
    for batch in range(1, {batch} + 1):
        with program.session(batch=batch, length={keys}) as session:
            rows = array("q", bytes(8 * batch))
            memoryview(session.decode(rows, rows)["tokens"]).tolist()
    print(f"{batch} decode batches, each in a new session: {{time.monotonic() - began:.3f}} s")
"""


@contextmanager
def part(name: str) -> Any:
    """Print a part's name and its seconds."""
    began_s = time.perf_counter()
    yield
    print(f"[{name}: {time.perf_counter() - began_s:.1f} s]", flush=True)


def make(name: str, layers: int | None, folder: Path, device: str) -> None:
    """Write a model of random weights."""
    import transformers

    family, fields = SHAPES[name]
    fields = fields | ({} if layers is None else {"num_hidden_layers": layers})
    config = getattr(transformers, f"{family}Config")(
        **fields, max_position_embeddings=4096, dtype=torch.bfloat16, pad_token_id=0,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        model = getattr(transformers, f"{family}ForCausalLM")(config)
    model.to(torch.bfloat16).save_pretrained(folder)


def build(spec: str, folder: Path, target: str, flags: list[str]) -> Path:
    """The bundle of a spec; prints what the build says."""
    (folder / "spec.py").write_text(spec)
    line = [sys.executable, "-m", "aotc.aot.cli", "build", folder / "spec.py", "-o", folder / "b"]
    line += ["--target", target, "--cache-dir", folder / "cache", *flags]
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True, check=False)
    rows = [row for row in done.stderr.splitlines() if "…" not in row]
    print("\n".join(row for row in [*rows, *done.stdout.splitlines()] if "golden   ok" not in row))
    if done.returncode:
        sys.exit(done.returncode)
    return folder / "b"


def mean_ms(call: Any, device: str, times: int = 7) -> list[float]:
    """Milliseconds of a call, back to back, so many times."""
    found = []
    for _ in range(times):
        _synchronise(device)
        began_s = time.perf_counter()
        for _ in range(CALLS):
            call()
        _synchronise(device)
        found.append(1e3 * (time.perf_counter() - began_s) / CALLS)
    return found


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _said(name: str, times_ms: list[float]) -> None:
    rows = ", ".join(f"{each:.3f}" for each in sorted(times_ms))
    print(f"{name}: median {statistics.median(times_ms):.3f} ms of [{rows}]", flush=True)


def decode_speed(program: Any, device: str, batches: tuple[int, ...], with_sizes: bool) -> None:
    """Bound decode calls at KEYS stored tokens."""
    for batch in batches:
        sizes = {"batch": batch, "length": KEYS + 64} if with_sizes else {}
        with program.session(**sizes) as session:
            ids = torch.ones(batch, dtype=torch.int64, device=device)
            call = session.decode.bind(ids, torch.full_like(ids, KEYS))
            call()
            _said(f"decode, batch {batch}, {KEYS} keys", mean_ms(call, device))


def prefill_speed(program: Any, device: str, with_sizes: bool) -> None:
    """Bound prefill calls of one prompt."""
    one = torch.ones(1, dtype=torch.int64, device=device)
    for length in (1, 32, 128, 256, 512, 1024, MAX_PROMPT):
        ids = torch.ones(1, length, dtype=torch.int64, device=device)
        sizes = {"batch": 1, "length": length + 1} if with_sizes else {}
        with program.session(**sizes) as session:
            call = session.prefill.bind(ids, one * length, one * 0)
            call()
            _synchronise(device)
            began_s = time.perf_counter()
            for _ in range(10):
                call()
            _synchronise(device)
            print(f"prefill of {length}: {100 * (time.perf_counter() - began_s):.3f} ms")


def compare(program: Any, folder: Path, device: str, batch: int, with_sizes: bool) -> None:
    """Tokens after eager's own, of prompts of different lengths, beside those of the same weights
    in f32: where eager and a bundle differ, f32 says how near the two best logits really are."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    model = model.to(device).eval()
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(3, 60, (batch,), generator=draw)
    ids = torch.randint(1, model.config.vocab_size, (batch, int(lengths.max())), generator=draw)
    ids, lengths = ids.to(device), lengths.to(device)
    sizes = {"batch": batch, "length": int(lengths.max()) + STEPS + 1} if with_sizes else {}
    prompts = [ids[row, : int(lengths[row])] for row in range(batch)]
    ours, theirs, logits = [], [], []  # of each step, [batch]; [batch, vocabulary]
    with torch.inference_mode(), program.session(**sizes) as session:
        found = session.prefill(ids, lengths, torch.arange(batch, device=device))["tokens"]
        caches: list[Any] = [None] * batch
        for step in range(STEPS):
            ours.append(torch.as_tensor(found).to(device).clone())
            rows = []
            for row in range(batch):
                own = prompts[row] if step == 0 else theirs[-1][row : row + 1]
                result = model(input_ids=own[None], past_key_values=caches[row], use_cache=True)
                caches[row] = result.past_key_values
                rows.append(result.logits[0, -1].float())
            logits.append(torch.stack(rows))
            theirs.append(logits[-1].argmax(-1))
            found = session.decode(theirs[-1].clone(), lengths + step)["tokens"]
        exact = _in_f32(model, prompts, torch.stack(theirs))
    agree(f"batch {batch}", torch.stack(ours), torch.stack(logits), exact)


def _in_f32(model: Any, prompts: list[torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """Logits [STEPS, batch, vocabulary] of the same weights in f32, after the same tokens."""
    found = []
    model.float()
    for row, prompt in enumerate(prompts):
        whole = torch.cat([prompt, tokens[:-1, row]])[None]
        found.append(model(input_ids=whole, logits_to_keep=STEPS).logits[0])
    return torch.stack(found, 1)


def agree(
    name: str, ours: torch.Tensor, eager_logits: torch.Tensor, exact_logits: torch.Tensor
) -> None:
    """Print how many tokens [STEPS, batch] are those that eager and f32 choose."""
    eager, exact = eager_logits.argmax(-1), exact_logits.argmax(-1)

    def gap(logits: torch.Tensor) -> torch.Tensor:
        best = logits.topk(2).values
        return best[..., 0] - best[..., 1]

    def equal(own: torch.Tensor, wanted: torch.Tensor, is_sure: torch.Tensor) -> str:
        return f"{int((own == wanted)[is_sure].sum())} of {int(is_sure.sum())}"

    by_eager, by_exact = gap(eager_logits) > TOLERANCE, gap(exact_logits) > TOLERANCE
    away = (eager_logits - exact_logits).abs()
    print(f"tokens, {name}, {STEPS} steps, where the two best logits differ by {TOLERANCE}")
    print(f"  as eager's, by eager's logits: {equal(ours, eager, by_eager)}")
    print(f"  as those of f32, by its logits: {equal(ours, exact, by_exact)}, "
          f"of eager {equal(eager, exact, by_exact)}")  # fmt: skip
    print(f"  as those of f32, everywhere: {equal(ours, exact, by_eager | ~by_eager)}, "
          f"of eager {equal(eager, exact, by_eager | ~by_eager)}")  # fmt: skip
    print(f"  eager's logits are off by {away.max():.3f} at most, {away.mean():.4f} on average")
    for step, row in (by_eager & (ours != eager)).nonzero().tolist():
        picks = [int(each[step, row]) for each in (ours, eager, exact)]
        rows = (eager_logits[step, row], exact_logits[step, row])
        shown = "; ".join(f"{float(each[picks[0]]):.3f}, {float(each[picks[1]]):.3f}"
                          for each in rows)  # fmt: skip
        print(f"  step {step}, row {row}: {picks[0]}, eager {picks[1]}, f32 {picks[2]}; "
              f"logits of the first two by eager and in f32: {shown}", flush=True)  # fmt: skip


def language_model(given: argparse.Namespace, folder: Path, device: str, target: str) -> None:
    """Prefill and decode of a causal model, as `causal_lm` gives them."""
    fixed = f"max_length={KEYS + 64}, max_prompt={KEYS}, batch=1"
    varied = f"max_length={MAX_LENGTH}, max_prompt={MAX_PROMPT}, batch={BATCH}, session_sizes=True"
    spec = LM.format(folder=str(folder / "model"), sizes=fixed if given.fixed else varied)
    with part("build"):
        bundle = build(spec, folder, target, given.flag)
    files = [path for path in bundle.rglob("*") if path.is_file()]
    print(f"bundle {sum(path.stat().st_size for path in files) / 1e9:.2f} GB, {len(files)} files")
    with part("starts"):
        compileall.compile_dir(Path(runtime.__file__).parent, quiet=1)
        script = START.format(keys=KEYS + 64, batch=BATCH)
        for _ in range(3):
            words = [str(bundle), device, str(time.monotonic()), str(int(not given.fixed))]
            subprocess.run([sys.executable, "-c", script, *words], check=False)
    with runtime.load(bundle, device=device) as program:
        with part("decode"):
            decode_speed(program, device, (1,) if given.fixed else (1, 8, BATCH), not given.fixed)
        if not given.fixed:
            with part("prefill"):
                prefill_speed(program, device, with_sizes=True)
        with part("tokens"):
            compare(program, folder / "model", device, 1, not given.fixed)
            if not given.fixed:
                compare(program, folder / "model", device, 8, with_sizes=True)
    if device == "cuda":
        show_profile(bundle, ["--entry", "decode"])


def quantised(given: argparse.Namespace, folder: Path, device: str, target: str) -> None:
    """Decode of one sequence with weights of each kind, in turns; built one after the other, since
    builds that tune on one GPU at once disturb each other."""
    kinds = ["bf16", *given.quantize.split(",")]
    sizes = f"max_length={KEYS + 64}, max_prompt={KEYS}, batch=1"
    spec = LM.format(folder=str(folder / "model"), sizes=sizes) + DECODE_ALONE

    def built(kind: str) -> Path:
        (folder / kind).mkdir(exist_ok=True)
        own = [] if kind == "bf16" else ["--quantize", kind]
        return build(spec, folder / kind, target, [*given.flag, *own])

    with part("builds"):
        bundles = list(map(built, kinds))
    with part("decode"), ExitStack() as opened:
        calls = []
        for bundle in bundles:
            program = opened.enter_context(runtime.load(bundle, device=device))
            session = opened.enter_context(program.session())
            ids = torch.ones(1, dtype=torch.int64, device=device)
            calls.append(session.decode.bind(ids, torch.full_like(ids, KEYS)))
            calls[-1]()
        rounds = [[mean_ms(call, device, 1)[0] for call in calls] for _ in range(9)]
        medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
        for kind, ms in zip(kinds, medians, strict=True):
            print(f"decode, {kind}, {KEYS} keys: {ms:.3f} ms ({medians[0] / ms:.2f} of bf16)")
    for bundle in bundles if device == "cuda" else ():
        show_profile(bundle, ["--entry", "decode"])


def exported(given: argparse.Namespace, folder: Path, device: str, target: str) -> None:
    """One token a step, as transformers' own exporter gives it."""
    spec = EXPORTED.format(folder=str(folder / "model"), length=KEYS + 64)
    with part("build"):
        bundle = build(spec, folder, target, given.flag)
    with runtime.load(bundle, device=device) as program, part("decode"):
        ids = torch.ones(1, 1, dtype=torch.int64, device=device)
        place = torch.full((1,), KEYS, device=device)
        with program.session() as session:
            call = session.bind(ids, place)
            call()
            _said(f"a step at {KEYS} keys", mean_ms(call, device))
    if device == "cuda":
        show_profile(bundle, [])


def show_profile(bundle: Path, flags: list[str]) -> None:
    """What the launches of a call take."""
    line = [sys.executable, "-m", "aotc.aot.cli", "profile", str(bundle), *flags]
    with part("profile"):
        subprocess.run(line, check=False)


def main() -> None:
    """Build one model, then measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--fixed", action="store_true", help="one sequence, one cache length")
    parser.add_argument("--quantize", default="", help="kinds of weights to compare: int4,fp8")
    parser.add_argument("--layers", type=int, help="of the model, in place of the shape's own")
    parser.add_argument("--flag", action="append", default=[], help="of `aotc build`")
    parser.add_argument("--work", type=Path, help="folder that stays")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "model").is_dir():
            with part("model"):
                make(given.shape, given.layers, folder / "model", device)
        print(json.dumps({"shape": given.shape, "torch": torch.__version__, "device": device}))
        measure = exported if given.shape.startswith("qwen2") else language_model
        measure = quantised if given.quantize else measure
        measure(given, folder, device, device)


if __name__ == "__main__":
    main()
