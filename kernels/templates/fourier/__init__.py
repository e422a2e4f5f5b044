"""Fourier transforms of rows: one file a form; `butterflies.py` is what they share."""
