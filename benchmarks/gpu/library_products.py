"""Functions of `aotc.kernels` with products, on one CUDA device, beside torch.

    python -m benchmarks.gpu.library_products [--only linear_cross_entropy,attention,…] [--out FILE]

Milliseconds of the device for the forward pass and for both passes, bf16: calls are queued while it
sleeps, so that it never waits for the host, the contenders' calls in turn, medians. Beside them the
microseconds that the host needs for a call of both passes, and the memory that both need above
their arguments. Peers are what a user of torch writes: cuBLAS products with separate functions
around them, torch.compile of the same, attention by cuDNN and by FlashAttention. A result that is
further from that in f32 than twice eager's own is not timed.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from aotc import kernels
from benchmarks.gpu.machine import facts
from benchmarks.kernels import device_ms, host_microseconds
from benchmarks.report import table

ROUNDS, HOST_CALLS = 5, 5
QUEUED, QUEUED_LONG = 4, 1  # calls; a device takes a thousand launches before it makes hosts wait
Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """shapes: of the float arguments, all differentiated; contenders: functions by name, ours and
    eager's among them; labels: rows and classes of targets, which follow the arguments."""

    name: str
    shapes: Sequence[tuple[int, ...]]
    contenders: dict[str, Function]
    labels: tuple[int, int] | None = None


def _attention(backend: SDPBackend) -> Function:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return run


def _with_compiled(ours: Function, eager: Function) -> dict[str, Function]:
    return {"aotc": ours, "eager": eager, "torch.compile": torch.compile(eager, dynamic=False)}


def _loss_of_linear(x: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(functional.linear(x, weight).float(), labels)


def _norm_linear(x: Tensor, gamma: Tensor, beta: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.linear(functional.layer_norm(x, x.shape[-1:], gamma, beta), weight, bias)


def _swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    inner = functional.silu(functional.linear(x, gate)) * functional.linear(x, up)
    return functional.linear(inner, down)


def _linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.gelu(functional.linear(x, weight, bias))


def cases(only: Sequence[str]) -> list[Case]:
    """The cases whose names begin with one of `only`, or all."""
    found = []
    for rows, inner, classes in ((8192, 2048, 128256), (8192, 4096, 128256), (2048, 768, 50257)):
        found.append(
            Case(
                f"linear_cross_entropy {rows} × {inner}, {classes:,} classes",
                [(rows, inner), (classes, inner)],
                _with_compiled(kernels.linear_cross_entropy, _loss_of_linear),
                (rows, classes),
            )
        )
    for rows, inner, outer in ((8192, 768, 3072), (8192, 1024, 4096), (4096, 4096, 4096)):
        found.append(
            Case(
                f"layer_norm_linear {rows} × {inner} → {outer}",
                [(rows, inner), (inner,), (inner,), (outer, inner), (outer,)],
                _with_compiled(kernels.layer_norm_linear, _norm_linear),
            )
        )
        found.append(
            Case(
                f"linear with gelu {rows} × {inner} → {outer}",
                [(rows, inner), (outer, inner), (outer,)],
                _with_compiled(lambda x, w, b: kernels.linear(x, w, b, "gelu"), _linear_gelu),
            )
        )
    for rows, inner, wide in ((4096, 2048, 8192), (8192, 4096, 11008)):
        found.append(
            Case(
                f"swiglu_mlp {rows} × {inner}, {wide:,} wide",
                [(rows, inner), (wide, inner), (wide, inner), (inner, wide)],
                _with_compiled(kernels.swiglu_mlp, _swiglu),
            )
        )
    for size in (1024, 4096, 8192):
        shapes = [(size, size), (size, size)]
        found.append(
            Case(f"matmul {size}³", shapes, {"aotc": kernels.matmul, "eager": torch.matmul})
        )
    for batch, heads, length, width in (
        (8, 12, 1024, 64), (4, 16, 4096, 64), (4, 16, 4096, 128), (1, 32, 16384, 128),
    ):  # fmt: skip
        found.append(
            Case(
                f"attention {batch} × {heads}, {length:,} positions of {width}, causal",
                [(batch, heads, length, width)] * 3,
                {
                    "aotc": lambda q, k, v: kernels.attention(q, k, v, True),
                    "eager": _attention(SDPBackend.FLASH_ATTENTION),
                    "cuDNN": _attention(SDPBackend.CUDNN_ATTENTION),
                },
            )
        )
    return [each for each in found if not only or each.name.startswith(tuple(only))]


def _distance(found: Sequence[Tensor], wide: Sequence[Tensor]) -> float:
    pairs = zip(found, wide, strict=True)
    return max(
        float((one.float() - other).abs().max() / other.abs().max().clamp(min=1e-30))
        for one, other in pairs
    )


def measure(case: Case) -> dict[str, Any]:
    """By contender: milliseconds of the forward and both passes, MiB, or why it was not timed."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    tensors = [
        (torch.randn(shape, device="cuda") * (shape[-1] ** -0.5 if at else 1.0)).bfloat16()
        for at, shape in enumerate(case.shapes)
    ]
    tensors = [each.requires_grad_() for each in tensors]
    rest: tuple[Tensor, ...] = ()
    if case.labels is not None:
        rest = (torch.arange(case.labels[0], device="cuda") * 31 % case.labels[1],)
    wide = _in_f32(case, [each.detach().float().requires_grad_() for each in tensors], rest)
    allowed = 2 * _distance(_both(case.contenders["eager"], tensors, rest), wide) + 2**-7
    rows: dict[str, Any] = {}
    taken = {}
    for name, call in case.contenders.items():
        try:
            away = _distance(_both(call, tensors, rest), wide)
            if away > allowed:
                rows[name] = {"refused": f"{away:.3g} away, {allowed:.3g} allowed"}
                continue
            rows[name] = {"MiB": _needed_mebibytes(call, tensors, rest)}
            taken[name] = call
        except Exception as error:  # a peer that does not take these sizes
            rows[name] = {"refused": f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"}
            torch.cuda.empty_cache()
    calls = QUEUED if case.labels is None else QUEUED_LONG
    for name, figures in _timed(taken, tensors, rest, calls).items():
        rows[name] |= figures
    return rows


def _both(call: Function, tensors: Sequence[Tensor], rest: Sequence[Tensor]) -> list[Tensor]:
    """The result of the forward pass, and the gradients."""
    result = call(*tensors, *rest)
    return [result.detach(), *torch.autograd.grad(result.sum(), list(tensors))]


def _needed_mebibytes(call: Function, tensors: Sequence[Tensor], rest: Sequence[Tensor]) -> float:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    _both(call, tensors, rest)
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def _timed(
    taken: dict[str, Function], tensors: Sequence[Tensor], rest: Sequence[Tensor], calls: int
) -> dict[str, dict[str, float]]:
    """By contender: milliseconds of the forward and both passes, and the host's microseconds."""
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in taken}
    for _ in range(ROUNDS):
        for name, call in taken.items():
            with torch.no_grad():
                forward = device_ms(functools.partial(call, *tensors, *rest), calls)
            both = device_ms(functools.partial(_both, call, tensors, rest), calls)
            for kind, value in (("forward", forward), ("both", both)):
                samples[name].setdefault(kind, []).append(value)
    found = {}
    for name, call in taken.items():
        found[name] = {kind: statistics.median(row) for kind, row in samples[name].items()}
        both = functools.partial(_both, call, tensors, rest)
        found[name]["host"] = host_microseconds(both, "cuda", HOST_CALLS * calls)
    return found


def _in_f32(case: Case, wider: Sequence[Tensor], rest: Sequence[Tensor]) -> list[Tensor]:
    """Eager's results in f32; those of attention by its plain form."""
    call = case.contenders["eager"]
    if case.name.startswith("attention"):
        call = _attention(SDPBackend.EFFICIENT_ATTENTION)
    return _both(call, wider, rest)


def page(found: dict[str, Any]) -> str:
    """The table."""
    rows = []
    for name, contenders in found["cases"].items():
        ours = contenders["aotc"]
        for each, row in contenders.items():
            if "refused" in row:
                rows.append([name, each, row["refused"], "", "", "", ""])
                continue
            times = [f"{row['forward']:.3f}", f"{row['both']:.3f}", f"{row['host']:,.0f}"]
            cells = [*times, f"{row['MiB']:,.0f}"]
            ratio = "" if "refused" in ours else f"{row['both'] / ours['both']:.2f}"
            rows.append([name, each, *cells, ratio])
    heads = ["function", "by", "forward ms", "both passes ms", "host µs", "MiB", "its time / ours"]
    facts_line = ", ".join(f"{key} {value}" for key, value in found["facts"].items())
    return f"{facts_line}\n\n{table(heads, rows)}\n"


def main() -> None:
    """Measure the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    found: dict[str, Any] = {"facts": facts(), "cases": {}}
    for case in cases([each for each in chosen.only.split(",") if each]):
        found["cases"][case.name] = measure(case)
        torch.cuda.empty_cache()
        if chosen.out is not None:
            chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    print(page(found), flush=True)


if __name__ == "__main__":
    main()
