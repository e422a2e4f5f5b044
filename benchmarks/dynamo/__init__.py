"""`backend="aotc"` beside torch's own back ends: starts, calls, and a training curve."""
