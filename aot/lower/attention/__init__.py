"""Attention, by filled templates."""
