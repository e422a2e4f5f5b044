"""Attention: one file a form, as real Triton kernels with holes; `blocks.py` is what they share."""
