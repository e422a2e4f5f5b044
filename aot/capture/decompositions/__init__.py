"""Ops as arithmetic of other ops of torch's, one file a subject; `table.py` has all of them."""
