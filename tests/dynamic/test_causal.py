"""Causal masks of dynamic sizes become an attribute of the attention."""

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
# Variant → whether it is causal, and by which offset; None: the mask stays an operand.
VARIANTS = {
    "attend(x, x, x, is_causal=True)": 0,
    "attend(x, x, x)": None,
    "attend(x, x, x, attn_mask=keys <= rows)": 0,
    "attend(x, x, x, attn_mask=rows > keys - 3)": 2,
    "attend(x, x, x, attn_mask=keys < rows + x.shape[2])": None,
    "attend(x, x, x, attn_mask=keys + rows < 9)": None,
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_causal_masks(variant, tmp_path):
    path = tmp_path / "spec.py"
    path.write_text(textwrap.dedent(SPEC.format(model=variant)))
    graph, _ = rewrite_each(capture(load_spec(str(path))).graph, {"cuda": GPUS[90]})["cuda"]
    (found,) = (node for node in graph.nodes() if node.op == "attention")
    offset = VARIANTS[variant]
    assert found.attr("causal") == (offset is not None)
    assert len(found.inputs) == (4 if "attn_mask" in variant and offset is None else 3)
    if offset is not None:
        assert found.attr("offset") == offset
