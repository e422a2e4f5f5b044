"""Causal masks and windows of dynamic sizes become attributes of the attention."""

from __future__ import annotations

import textwrap

import pytest

pytest.importorskip("torch")

from aotc.aot.capture.capture import capture
from aotc.aot.capture.spec import load_spec
from aotc.aot.rewrites.rewrite import rewrite_each
from aotc.aot.targets.cuda.machines import GPUS

SPEC = """
    import torch
    from torch.export import Dim
    from torch.nn.functional import scaled_dot_product_attention as attend

    def model(x):
        rows, keys = torch.arange(x.shape[2])[:, None], torch.arange(x.shape[2])[None, :]
        return {model}

    example_inputs = (torch.randn(2, 2, 8, 16),)
    dynamic_shapes = ({{0: Dim("batch", max=8), 2: Dim("seq", min=2, max=64)}},)
"""
ALL = (None, 0)  # keys are seen
# Variant → the offset and the window; None: the mask stays an operand.
VARIANTS = {
    "attend(x, x, x, is_causal=True)": (0, 0),
    "attend(x, x, x)": ALL,
    "attend(x, x, x, attn_mask=keys <= rows)": (0, 0),
    "attend(x, x, x, attn_mask=rows > keys - 3)": (2, 0),
    "attend(x, x, x, attn_mask=(keys <= rows) & (rows - keys < 5))": (0, 5),
    "attend(x, x, x, attn_mask=(keys > rows - 5) & (keys <= rows))": (0, 5),
    "attend(x, x, x, attn_mask=(keys - rows).abs() <= 3)": (3, 7),
    "attend(x, x, x, attn_mask=4 > (rows - keys).abs())": (3, 7),
    "attend(x, x, x, attn_mask=~(keys > rows))": (0, 0),
    "attend(x, x, x, attn_mask=keys > rows - 5)": None,
    "attend(x, x, x, attn_mask=keys < rows + x.shape[2])": ALL,
    "attend(x, x, x, attn_mask=keys + rows < 9)": None,
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_causal_masks(variant, tmp_path):
    path = tmp_path / "spec.py"
    path.write_text(textwrap.dedent(SPEC.format(model=variant)))
    graph, _ = rewrite_each(capture(load_spec(str(path))).graph, {"cuda": GPUS[90]})["cuda"]
    (found,) = (node for node in graph.nodes() if node.op == "attention")
    seen = VARIANTS[variant]
    assert len(found.inputs) == (4 if seen is None else 3)
    offset = found.attr("offset") if found.attr("causal") else None
    assert (offset, found.attr("window")) == (seen or ALL)
