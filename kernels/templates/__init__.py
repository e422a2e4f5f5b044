"""Kernel templates: Triton files that run on their own, with holes that `lower` fills."""
