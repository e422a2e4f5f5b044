"""Names a kernel by what it is like, for the eyes of readers."""

from __future__ import annotations

from aotc.aot.ir.graph import Node

LONGEST = 3  # operations in a name
WORK_KINDS = ("pointwise", "reduce", "check")


def label(kind: str, nodes: tuple[Node, ...]) -> str:
    """`softmax`, `layer_norm`, `matmul_add_gelu`, `add_mul` … from the nodes of a kernel."""
    work = [node.op for node in nodes if node.kind in WORK_KINDS and node.op != "cast"]
    if kind == "row":
        return _row_label(work)
    if kind == "attention":
        causal = any(node.kind == "attention" and node.attr("causal") for node in nodes)
        return "causal_attention" if causal else "attention"
    if kind == "matmul":
        return "_".join([_matmul_name(nodes), *_after_matmul(nodes)[:LONGEST]])
    moved = [node.op for node in nodes if node.kind in ("pad", "concat", "take", "gather")]
    return "_".join(list(dict.fromkeys(moved + work))[:LONGEST]) or "copy"


def _row_label(work: list[str]) -> str:
    if {"max", "exp", "sum"} <= set(work):
        return "softmax"
    if {"rsqrt", "sqrt"} & set(work):
        return "layer_norm" if work.count("sum") > 1 else "rms_norm"
    return "_".join(list(dict.fromkeys(work))[:LONGEST])


def _matmul_name(nodes: tuple[Node, ...]) -> str:
    return "convolution" if any(node.op == "window" for node in nodes) else "matmul"


def _after_matmul(nodes: tuple[Node, ...]) -> list[str]:
    at = next(place for place, node in enumerate(nodes) if node.kind.startswith("matmul"))
    return [node.op for node in nodes[at:] if node.kind == "pointwise" and node.op != "cast"]
