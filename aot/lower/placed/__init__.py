"""Ops on memory as calls of kernels of ours."""
