"""Targets: Triton source to machine code, one folder a device family."""
