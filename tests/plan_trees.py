"""Plans as plain maps, written by hand: their kernels are used as their launches are."""

from __future__ import annotations

KINDS = {"int": "int", "weight": "read", "input": "read"}


def with_uses(tree: dict) -> dict:
    """The plan with a use for each launch, which reaches nothing; parts that are no launch stay."""
    kernels = [{**kernel, "uses": []} for kernel in tree["kernels"]]
    variants = []
    for variant in tree["variants"]:
        steps = [_step(step, kernels, variant["ranges"]) for step in variant["steps"]]
        variants.append({**variant, "steps": steps})
    return {**tree, "kernels": kernels, "variants": variants}


def _step(step: dict, kernels: list, ranges: list) -> dict:
    if step.get("kind") != "kernel":
        return step
    use = {"grid": step["grid"], "maps": step["maps"], "parameters": [], "ranges": ranges}
    for space, value in (pair for pair in step["args"] if len(pair) == 2):
        kind = KINDS.get(space, "write")
        use["parameters"].append([kind, value if kind == "int" else 0])
    if not 0 <= step["kernel"] < len(kernels):
        return {**step, "use": 0}
    kernels[step["kernel"]]["uses"].append(use)
    return {**step, "use": len(kernels[step["kernel"]]["uses"]) - 1}
