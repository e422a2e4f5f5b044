"""Convolutions for GPUs, as matrix products over windows of the input."""
