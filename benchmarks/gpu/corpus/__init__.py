"""Workloads at real sizes that no other benchmark holds; `rows.py` lists them."""
