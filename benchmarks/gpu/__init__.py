"""Benchmarks on a CUDA device: kernels and models against torch."""
