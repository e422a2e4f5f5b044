"""Capture: SPEC → torch.export → our Graph with named constants and golden numbers."""
